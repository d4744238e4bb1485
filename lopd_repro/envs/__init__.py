"""Tool environments: reading assistant turns, episodes, and the workers that run their code."""

from lopd_repro.data.trace import TraceStep, format_call, lite_trace
from lopd_repro.envs.pool import EnvPool, EpisodeSpec, Score, StepResult, checklist_reward
from lopd_repro.envs.protocol import Action, parse_action
from lopd_repro.envs.tool_env import Behaviour, Episode, ToolEpisodes, TurnResult
from lopd_repro.envs.worker import Limits

__all__ = [
    "Action",
    "Behaviour",
    "EnvPool",
    "Episode",
    "EpisodeSpec",
    "Limits",
    "Score",
    "StepResult",
    "ToolEpisodes",
    "TraceStep",
    "TurnResult",
    "checklist_reward",
    "format_call",
    "lite_trace",
    "parse_action",
]
