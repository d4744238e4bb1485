"""Latent contexts of tasks: which experiences, encoded, concatenated in rank order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lopd_repro.errors import UserError
from lopd_repro.experience.bank import Experience
from lopd_repro.lopd.composer import Composer
from lopd_repro.rollout.heads import LatentContext

PAIRINGS = ("retrieved", "shuffled", "unrelated")


@dataclass(frozen=True)
class Framing:
    """The two texts around the latents in the first user message."""

    before: str
    after: str


def assign_experiences(
    task_ids: Sequence[str],
    retrieved: Mapping[str, Sequence[str]],
    n_retrieved: int,
    pairing: str,
    groups: Mapping[str, str],
    bank: Mapping[str, Experience],
    seed: int,
) -> dict[str, list[str]]:
    """Experience ids of each task, best first.

    pairing: `retrieved` keeps retrieval's answer; `shuffled` gives every task the list of another
    one (a random cyclic order, so none keeps its own); `unrelated` draws from experiences whose
    task is of another group (domain) than this task's. Both controls keep the number of latents.
    """
    if pairing not in PAIRINGS:
        raise UserError(f"pairing: found {pairing!r}, allowed: {', '.join(PAIRINGS)}")
    own = {task: list(retrieved[task][:n_retrieved]) for task in task_ids}
    if pairing == "retrieved":
        return own
    generator = torch.Generator().manual_seed(seed)
    if pairing == "shuffled":
        if len(task_ids) < 2:
            raise UserError("pairing shuffled: it needs at least two tasks")
        order = [task_ids[i] for i in torch.randperm(len(task_ids), generator=generator).tolist()]
        return {task: own[order[(i + 1) % len(order)]] for i, task in enumerate(order)}
    assigned = {}
    for task in task_ids:
        others = [e for e in bank.values() if groups[e.task_id] != groups[task]]
        if len(others) < n_retrieved:
            raise UserError(f"pairing unrelated: too few experiences outside the group of {task}")
        picks = torch.randperm(len(others), generator=generator)[:n_retrieved].tolist()
        assigned[task] = [others[i].experience_id for i in picks]
    return assigned


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
