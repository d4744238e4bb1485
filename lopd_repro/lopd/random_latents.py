"""The control of latents without content: random directions, the composed latents' sizes."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from lopd_repro.lopd.latents import LatentSource
from lopd_repro.rollout.episodes import derive_seed
from lopd_repro.rollout.heads import LatentContext


class RandomLatents:
    """For every task one draw, kept for the whole run, in place of its composed latents.

    Token i of a draw has the norm of token i of what `composed` makes of the task, so a teacher
    that reads it sees as many latents of the same sizes; their directions are uniform and depend
    on seed and task alone.
    """

    def __init__(self, composed: LatentSource, seed: int) -> None:
        self.composer = composed.composer
        self._composed = composed
        self._seed = seed
        self._drawn: dict[str, Tensor] = {}

    def has(self, task_id: str) -> bool:
        """Whether the task has any latents."""
        return self._composed.has(task_id)

    def latents(self, task_ids: Sequence[str]) -> list[Tensor | None]:
        """Latents `[J*K, d]` of each task, None where it has no experience."""
        return [self._draw(task) if self.has(task) else None for task in task_ids]

    def contexts(self, task_ids: Sequence[str]) -> list[LatentContext | None]:
        """Latent context of each task."""
        return [self._composed.context(latents) for latents in self.latents(task_ids)]

    @torch.no_grad()
    def _draw(self, task_id: str) -> Tensor:
        if task_id not in self._drawn:
            # One task at a time: beside others its norms would differ in the last bits, and a
            # resumed run would draw otherwise than an uninterrupted one.
            (composed,) = self._composed.latents([task_id])
            assert composed is not None
            seed = derive_seed("random latents", self._seed, task_id)
            generator = torch.Generator().manual_seed(seed)
            draw = torch.randn(composed.shape, generator=generator).to(composed)
            norms = composed.norm(dim=-1, keepdim=True)
            self._drawn[task_id] = draw * (norms / draw.norm(dim=-1, keepdim=True))
        return self._drawn[task_id]
