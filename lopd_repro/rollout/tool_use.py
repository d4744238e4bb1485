"""The tool-use domain: EnvScaler tasks behind the episode loop's interface."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lopd_repro.data.schema import Environment, TaskSet, ToolTask
from lopd_repro.envs import Episode, ToolEpisodes, TraceStep, TurnResult, lite_trace
from lopd_repro.errors import UserError
from lopd_repro.rollout.domain import Opening, TurnOutcome


@dataclass(frozen=True)
class ToolPrompts:
    """Texts of a task's first messages.

    system: may hold `{introduction}` and `{rules}`; user: holds `{task}`.
    """

    system: str
    user: str = "{task}"


def tool_opening(task: ToolTask, environment: Environment, prompts: ToolPrompts) -> Opening:
    """First messages of a task: what the policy reads, before any privileged text."""
    rules = "\n".join(f"- {rule}" for rule in environment.rules)
    try:
        system = prompts.system.format(introduction=environment.introduction, rules=rules)
        user = prompts.user.format(task=task.task)
    except (KeyError, IndexError) as error:
        raise UserError(
            f"prompts: unknown slot {error}; allowed: introduction, rules (system), task (user)"
        ) from None
    return Opening(system, user, environment.tools)


class ToolTexts:
    """Tasks and finished episodes as texts; results are cut to `trace_chars` in a trace."""

    def __init__(self, tasks: TaskSet, trace_chars: int = 120) -> None:
        self._tasks = tasks
        self._trace_chars = trace_chars

    def task_text(self, task_id: str) -> str:
        """The task's description."""
        return self._tasks.tasks[task_id].task

    def trace(self, records: Sequence[Mapping[str, Any]]) -> str:
        """Numbered lines `tool(arguments) -> short result` of the calls that ran."""
        steps = [
            TraceStep(r["name"], r["arguments"], r["observation"])
            for r in records
            if r.get("executed")
        ]
        return lite_trace(steps, self._trace_chars)


class ToolUseDomain(ToolTexts):
    """Runs tool-use episodes of a task set."""

    name = "tool_use"

    def __init__(
        self,
        tasks: TaskSet,
        episodes: ToolEpisodes,
        prompts: ToolPrompts,
        trace_chars: int = 120,
    ) -> None:
        super().__init__(tasks, trace_chars)
        self._episodes = episodes
        self._prompts = prompts
        self._running: dict[int, Episode] = {}
        self._next = 0

    def opening(self, task_id: str) -> Opening:
        """The task's first messages."""
        task = self._tasks.tasks[task_id]
        return tool_opening(task, self._tasks.environments[task.env_id], self._prompts)

    def groups(self) -> dict[str, str]:
        """Group of each task for the control with unrelated experiences: its environment."""
        return {task_id: task.env_id for task_id, task in self._tasks.tasks.items()}

    def begin(self, requests: Sequence[tuple[str, int]]) -> list[int]:
        """Start episodes; a world that cannot be built ends its episode at the first turn."""
        starts = []
        for task_id, seed in requests:
            task = self._tasks.tasks[task_id]
            starts.append((task, self._tasks.environments[task.env_id], seed))
        handles = []
        for episode in self._episodes.reset(starts):
            self._running[self._next] = episode
            handles.append(self._next)
            self._next += 1
        return handles

    def turn(self, turns: Sequence[tuple[int, str]]) -> list[TurnOutcome]:
        """Run the turns' actions."""
        live = [(h, text) for h, text in turns if not self._running[h].done]
        results = dict(
            zip(
                (h for h, _ in live),
                self._episodes.turn([(self._running[h], text) for h, text in live]),
                strict=True,
            )
        )
        return [self._outcome(handle, results.get(handle)) for handle, _ in turns]

    def cut(self, handles: Sequence[int]) -> list[TurnOutcome]:
        """Token budget spent: scored as it stands under step cap `submit`, else reward 0."""
        open_ones = [h for h in handles if not self._running[h].done]
        if self._episodes.step_cap == "submit":
            self._episodes.submit([self._running[h] for h in open_ones])
        outcomes = []
        for handle in handles:
            episode = self._running[handle]
            if not episode.done:
                episode.done, episode.reward = True, 0.0
            if episode.status == "ok":
                episode.status = "step_cap"
            outcomes.append(self._outcome(handle, None))
        return outcomes

    def _outcome(self, handle: int, result: TurnResult | None) -> TurnOutcome:
        episode = self._running[handle]
        record: dict[str, Any] = {}
        if result is not None:
            action = result.action
            record = {
                "kind": action.kind,
                "name": action.name,
                "arguments": action.arguments,
                "n_calls": action.n_calls,
                "executed": result.executed,
                "observation": result.observation,
            }
            # Calls that were written beside the one acted on, for reports on behaviour.
            if action.calls and action.calls != ((action.name, action.arguments),):
                record["calls"] = [list(call) for call in action.calls]
            if not result.done:
                return TurnOutcome(result.role, result.observation, False, record=record)
        del self._running[handle]
        self._episodes.close([episode])
        reward = math.nan if episode.reward is None else episode.reward
        return TurnOutcome("user", "", True, reward, episode.status, record)
