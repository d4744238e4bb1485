"""The order in which a run meets its training tasks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lopd_repro.errors import UserError


class TaskStream:
    """Every task once an epoch, each epoch in an order of its own.

    Stateless: step t's tasks depend on the seed and t alone, so a resumed run meets the same ones.
    """

    def __init__(self, task_ids: Sequence[str], per_step: int, seed: int) -> None:
        if not task_ids:
            raise UserError("training split: it holds no task")
        if per_step < 1:
            raise UserError(f"train.tasks_per_step: found {per_step}, allowed: 1 or more")
        self._ids = list(task_ids)
        self._per_step = per_step
        self._seed = seed

    def step(self, step: int) -> list[str]:
        """Task ids of one step, counted from 0."""
        places = range(step * self._per_step, (step + 1) * self._per_step)
        return [self._order(place // len(self._ids))[place % len(self._ids)] for place in places]

    def _order(self, epoch: int) -> list[str]:
        generator = np.random.default_rng([self._seed, epoch])
        return [self._ids[i] for i in generator.permutation(len(self._ids))]
