"""Latent contexts of tasks: which experiences, encoded, concatenated in rank order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lopd_repro.experience.bank import Experience
from lopd_repro.lopd.composer import Composer
from lopd_repro.rollout.heads import LatentContext


@dataclass(frozen=True)
class Framing:
    """The two texts around the latents in the first user message."""

    before: str
    after: str


class LatentSource:
    """Encodes the experiences assigned to tasks; every (task, experience) pair once a call."""

    def __init__(
        self,
        composer: Composer,
        bank: Mapping[str, Experience],
        assigned: Mapping[str, Sequence[str]],
        task_text: Any,
        framing: Framing,
    ) -> None:
        self.composer = composer
        self._bank = bank
        self._assigned = assigned
        self._task_text = task_text
        self._framing = framing

    def has(self, task_id: str) -> bool:
        """Whether the task has any experience."""
        return bool(self._assigned.get(task_id))

    def latents(self, task_ids: Sequence[str]) -> list[Tensor | None]:
        """Latents `[J*K, d]` of each task, None where it has no experience."""
        pairs = list(dict.fromkeys((t, e) for t in task_ids for e in self._assigned.get(t, ())))
        if not pairs:
            return [None] * len(task_ids)
        encoded = self.composer.encode(
            [(self._task_text(t), self._bank[e].trace) for t, e in pairs]
        )
        place = {pair: i for i, pair in enumerate(pairs)}
        joined = {
            t: torch.cat([encoded[place[t, e]] for e in self._assigned[t]])
            for t in dict.fromkeys(task_ids)
            if self.has(t)
        }
        return [joined.get(t) for t in task_ids]

    def context(self, latents: Tensor | None) -> LatentContext | None:
        """Latents between the framing texts."""
        if latents is None:
            return None
        return LatentContext(latents, self._framing.before, self._framing.after)

    def contexts(self, task_ids: Sequence[str]) -> list[LatentContext | None]:
        """Latent context of each task."""
        return [self.context(latents) for latents in self.latents(task_ids)]
