"""Rollouts of several ranks: each samples its share of the episodes with an engine of its own.

Every rank gets all trajectories. An episode's draws depend on its seed and not on its rank, so the
number of ranks changes a trajectory only as far as an engine's batches change a logit's last bits.
Groups stay together, since rollouts of a task share the work on its head.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeVar

import torch

from lopd_repro.models.backbone import gathered
from lopd_repro.parallel.ranks import Ranks
from lopd_repro.rollout.engine import OnTurns, Prompt, RolloutEngine, SamplingParams

T = TypeVar("T")
R = TypeVar("R")


class DividedEngine:
    """One of several ranks' engines. `run` samples here what it is given, as the engine does."""

    def __init__(self, engine: RolloutEngine, ranks: Ranks) -> None:
        self.engine = engine
        self.ranks = ranks

    def run(self, prompts: Sequence[Prompt], sampling: SamplingParams, on_turns: OnTurns) -> None:
        """Sample every prompt's episode to its end, here."""
        self.engine.run(prompts, sampling, on_turns)

    def sync_weights(self, model: Any) -> None:
        """Hand weights over to this rank's engine; every rank must."""
        self.engine.sync_weights(model)

    def reset_cache(self) -> None:
        """Forget cached prefixes."""
        self.engine.reset_cache()

    def divide(
        self,
        items: Sequence[T],
        keys: Sequence[Hashable],
        work: Callable[[Sequence[T]], list[R]],
    ) -> list[R]:
        """`work` on this rank's share, and everybody's results in the order of the items.

        Items with one key are done by one rank.
        """
        shares = divided(keys, self.ranks.size)
        mine = shares[self.ranks.rank]
        done = work([items[i] for i in mine])
        found: dict[int, R] = {}
        for share, results in zip(shares, self.ranks.gather(done), strict=True):
            found |= dict(zip(share, results, strict=True))
        return [found[i] for i in range(len(items))]


def divided_engine(engine: RolloutEngine, ranks: Ranks) -> RolloutEngine:
    """The engine, its work divided among the ranks where there are several."""
    return engine if ranks.size == 1 else DividedEngine(engine, ranks)


def divided(keys: Sequence[Hashable], size: int) -> list[list[int]]:
    """Places of the items of each of `size` ranks; groups of equal keys go round in turn."""
    order: dict[Hashable, int] = {}
    shares: list[list[int]] = [[] for _ in range(size)]
    for place, key in enumerate(keys):
        group = order.setdefault(key, len(order))
        shares[group % size].append(place)
    return shares


class CopyEngine:
    """An engine on a whole copy of a policy that is itself held in shards.

    `twin` is the model that `engine` samples from.
    """

    def __init__(self, engine: RolloutEngine, twin: Any) -> None:
        self.engine = engine
        self.twin = twin

    def run(self, prompts: Sequence[Prompt], sampling: SamplingParams, on_turns: OnTurns) -> None:
        """Sample every prompt's episode to its end."""
        self.engine.run(prompts, sampling, on_turns)

    @torch.no_grad()
    def sync_weights(self, model: Any) -> None:
        """Copy the policy's weights, one after the other; every rank must."""
        for target, source in zip(self.twin.parameters(), model.parameters(), strict=True):
            target.copy_(gathered(source))
        self.engine.sync_weights(self.twin)

    def reset_cache(self) -> None:
        """Forget cached prefixes."""
        self.engine.reset_cache()
