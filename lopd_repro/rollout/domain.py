"""What the episode loop asks of a task domain (tool use, coding)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from lopd_repro.models.chat import Message


@dataclass(frozen=True)
class Opening:
    """A task's conversation before the first assistant turn: system message, first user message."""

    system: str
    user: str
    tools: tuple[dict[str, Any], ...] = ()

    def messages(self) -> list[Message]:
        """As chat messages; an empty system text gives no system message."""
        start: list[Message] = [{"role": "system", "content": self.system}] if self.system else []
        return [*start, {"role": "user", "content": self.user}]


@dataclass(frozen=True)
class TurnOutcome:
    """The environment's answer to one assistant turn.

    `reward` is given once, with `done`; NaN marks an episode that could not be scored.
    `record` holds the turn's behaviour for reports and traces (JSON values).
    """

    role: str
    observation: str
    done: bool
    reward: float | None = None
    status: str = "ok"
    record: dict[str, Any] = field(default_factory=dict)


class EpisodeTexts(Protocol):
    """Tasks and finished episodes as texts; no environment is needed for them."""

    def task_text(self, task_id: str) -> str:
        """The task's own description, as retrieval and the composer read it."""

    def trace(self, records: Sequence[dict[str, Any]]) -> str:
        """Observation-lite text of an episode's records, one numbered line a step."""


class Domain(EpisodeTexts, Protocol):
    """Runs episodes of tasks named by id."""

    name: str

    def opening(self, task_id: str) -> Opening:
        """The task's first messages, without privileged text."""

    def begin(self, requests: Sequence[tuple[str, int]]) -> list[int]:
        """Start episodes of (task id, environment seed); returns their handles."""

    def turn(self, turns: Sequence[tuple[int, str]]) -> list[TurnOutcome]:
        """Answer (handle, assistant text) pairs."""

    def cut(self, handles: Sequence[int]) -> list[TurnOutcome]:
        """End episodes whose token budget is spent, by the domain's step-cap policy."""
