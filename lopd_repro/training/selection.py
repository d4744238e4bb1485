"""Choosing a run's step by its validation score.

Rule: the highest mean validation reward among validated steps after the first update; the
earliest of equals. The untrained policy (step 0) is logged and is not a candidate.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

RULE = "highest mean validation reward among validated steps after step 0, earliest of equals"


class Selection:
    """Scores of all candidates; weights and artifacts (files by name) of the best so far."""

    def __init__(self) -> None:
        self.scores: dict[int, float] = {}
        self.best_step: int | None = None
        self.artifacts: dict[str, bytes] = {}
        self._best: dict[str, torch.Tensor] = {}

    def add(
        self,
        step: int,
        score: float,
        model: Any,
        artifacts: Callable[[], dict[str, bytes]] = dict,
    ) -> None:
        """Note a validated step; keep its weights and artifacts if it is the best so far."""
        self.scores[step] = score
        if step == 0:
            return
        if self.best_step is None or score > self.scores[self.best_step]:
            self.best_step = step
            self._best = {k: v.detach().clone() for k, v in model.state_dict().items()}
            self.artifacts = artifacts()

    def restore_best(self, model: Any) -> None:
        """Load the selected step's weights; a run without updates keeps what it has."""
        if self._best:
            model.load_state_dict(self._best)

    def report(self) -> dict[str, Any]:
        """Content of `selected.json`."""
        return {
            "rule": RULE,
            "selected_step": self.best_step if self.best_step is not None else 0,
            "validation_scores": {str(step): score for step, score in self.scores.items()},
        }

    def state_dict(self) -> dict[str, Any]:
        """State that a resumed run needs."""
        return {
            "scores": self.scores,
            "best_step": self.best_step,
            "best": self._best,
            "artifacts": self.artifacts,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back what `state_dict` gave."""
        self.scores = dict(state["scores"])
        self.best_step = state["best_step"]
        self._best = state["best"]
        self.artifacts = state["artifacts"]
