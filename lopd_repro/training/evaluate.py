"""Scoring a policy on a split's tasks: the same code for validation and for test."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lopd_repro.models.chat import ChatCodec
from lopd_repro.rollout.domain import Domain
from lopd_repro.rollout.engine import RolloutEngine, SamplingParams
from lopd_repro.rollout.episodes import EpisodeRequest, Trajectory, collect, derive_seed
from lopd_repro.rollout.heads import Context


@dataclass(frozen=True)
class EvaluationPlan:
    """Tasks, repeats and seed of an evaluation; equal plans draw equal random numbers."""

    task_ids: tuple[str, ...]
    repeats: int
    seed: int
    sampling: SamplingParams


def evaluate(
    engine: RolloutEngine,
    codec: ChatCodec,
    domain: Domain,
    plan: EvaluationPlan,
    contexts: Sequence[Context] | None = None,
) -> list[Trajectory]:
    """Run every task `repeats` times; trajectories in order of repeat, then task.

    `contexts`, one per task, put privileged context in the policy's own head: that measures a
    teacher by rolling it out.
    """
    requests = [
        EpisodeRequest(
            task_id,
            index,
            derive_seed(plan.seed, "rollout", task_id, repeat),
            derive_seed(plan.seed, "environment", task_id, repeat),
            contexts[index] if contexts is not None else None,
        )
        for repeat in range(plan.repeats)
        for index, task_id in enumerate(plan.task_ids)
    ]
    return collect(engine, codec, domain, requests, plan.sampling)


def rows(trajectories: Sequence[Trajectory], n_tasks: int) -> list[dict[str, Any]]:
    """Per-task rows as the contract has them; an unscored episode counts as 0 with its status."""
    return [
        {
            "task_id": t.task_id,
            "repeat": i // n_tasks,
            "score": 0.0 if math.isnan(t.reward) else t.reward,
            "status": t.status,
            "tokens": t.n_sampled,
            "steps": len(t.records),
            "calls": sum(1 for record in t.records if record.get("executed")),
            "records": _json_values(t.records),
        }
        for i, t in enumerate(trajectories)
    ]


def _json_values(value: Any) -> Any:
    """The same value with numbers that strict JSON lacks (a model may write NaN) as texts."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {key: _json_values(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_json_values(item) for item in value]
    return value


def summary(trajectories: Sequence[Trajectory]) -> dict[str, float]:
    """Mean reward, share of episodes with full reward, mean sampled tokens and turns."""
    n = max(1, len(trajectories))
    rewards = [0.0 if math.isnan(t.reward) else t.reward for t in trajectories]
    return {
        "reward_mean": sum(rewards) / n,
        "success": sum(r == 1.0 for r in rewards) / n,
        "tokens_mean": sum(t.n_sampled for t in trajectories) / n,
        "steps_mean": sum(len(t.records) for t in trajectories) / n,
        "unscored": sum(math.isnan(t.reward) for t in trajectories) / n,
    }
