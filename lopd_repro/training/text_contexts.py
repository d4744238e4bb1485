"""Privileged texts of a step's trajectories, checked against the model's context length.

A text that would not leave room for its trajectory is an error or a counted drop, by policy. It
is never cut.
"""

from __future__ import annotations

from collections.abc import Sequence

from lopd_repro.rollout.episodes import Trajectory
from lopd_repro.rollout.heads import (
    OVERFLOW_POLICIES,
    Context,
    ContextOverflowError,
    TextContext,
    build_head,
)
from lopd_repro.training.method import Preparation, Resources, choice


class TextContexts:
    """Holds the contexts of the trajectories of one step, between `prepare` and `contexts`.

    policy: `error` raises `ContextOverflowError` when head and tail are longer than `limit`
    tokens, `drop` leaves the trajectory without context. limit 0 is the model's own length.
    """

    def __init__(self, method: str, resources: Resources, policy: str, limit: int = 0) -> None:
        self._policy = choice(method, "context_overflow", policy, OVERFLOW_POLICIES)
        self._method = method
        self._resources = resources
        self._limit = limit or int(resources.backbone.model.config.max_position_embeddings)
        self._chosen: dict[int, TextContext | None] = {}

    def plan(
        self, trajectories: Sequence[Trajectory], contexts: Sequence[TextContext | None]
    ) -> Preparation:
        """Keep the contexts that fit; metrics `with_context` (share) and `dropped_contexts`."""
        fitting = [self._fit(t, c) for t, c in zip(trajectories, contexts, strict=True)]
        self._chosen = {id(t): c for t, c in zip(trajectories, fitting, strict=True)}
        given = sum(context is not None for context in contexts)
        kept = [context is not None for context in fitting]
        metrics = {
            "with_context": sum(kept) / max(1, len(kept)),
            "dropped_contexts": float(given - sum(kept)),
        }
        return Preparation(kept, metrics=metrics)

    def of(self, trajectories: Sequence[Trajectory]) -> list[Context]:
        """Planned contexts of trajectories of this step."""
        return [self._chosen[id(t)] for t in trajectories]

    def _fit(self, trajectory: Trajectory, context: TextContext | None) -> TextContext | None:
        if context is None:
            return None
        opening = self._resources.domain.opening(trajectory.task_id)
        room = self._limit - len(trajectory.tail)
        try:
            build_head(self._resources.codec, opening, context, room)
        except ContextOverflowError as error:
            if self._policy == "drop":
                return None
            raise ContextOverflowError(
                f"methods.{self._method}: task {trajectory.task_id}: {error} beside an episode of "
                f"{len(trajectory.tail)}; set context_overflow to drop to go on without it"
            ) from None
        return context
