"""The processes of one training and what they tell each other.

torchrun starts them and says in the environment who is who. Without torchrun there is one rank, no
process group and no communication. Each rank does the same steps in the same order; objects (such
as trajectories) go over gloo, tensors on GPUs over NCCL.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

from lopd_repro.errors import UserError

T = TypeVar("T")


@dataclass(frozen=True)
class Ranks:
    """This process among `size`. `mesh` is None where weights are not held in shards."""

    rank: int = 0
    size: int = 1
    mesh: Any = None

    @property
    def first(self) -> bool:
        """Whether this rank writes files and speaks."""
        return self.rank == 0

    def gather(self, value: T) -> list[T]:
        """Every rank's value, in order of ranks, on every rank."""
        if self.size == 1:
            return [value]
        values: list[Any] = [None] * self.size
        dist.all_gather_object(values, value)
        return values

    def once(self, call: Callable[[], T]) -> T | None:
        """What the first rank's call gives, on every rank: for what may not come out the same."""
        return self.gather(call() if self.first else None)[0]

    def wait(self) -> None:
        """Go on when all ranks have come here."""
        self.gather(None)


ONE = Ranks()


def rank_in_environment() -> int:
    """This process's rank by torchrun's environment, 0 without."""
    return int(os.environ.get("RANK", "0"))


@contextmanager
def joined(device: str, sharded: bool = False, minutes: float = 60.0) -> Iterator[Ranks]:
    """This process as one of torchrun's, or alone.

    sharded: hold the weights in shards although it is alone, which mixed precision needs.
    minutes: how long a rank waits for the others before it gives up.
    """
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1 and not sharded:
        yield ONE
        return
    kind = torch.device(device).type
    if kind == "cuda":
        local = int(os.environ.get("LOCAL_RANK", "0"))
        if local >= torch.cuda.device_count():
            raise UserError(
                f"--ranks: rank {local} of this machine has no GPU of its own; found "
                f"{torch.cuda.device_count()}"
            )
        torch.cuda.set_device(local)
    options: dict[str, Any] = {"timeout": timedelta(minutes=minutes)}
    if size == 1:
        store = dist.HashStore()  # type: ignore[attr-defined]
        options |= {"store": store, "rank": 0, "world_size": 1}
    dist.init_process_group("cpu:gloo,cuda:nccl" if kind == "cuda" else "gloo", **options)
    mesh = init_device_mesh(kind, (size,))
    yield Ranks(dist.get_rank(), size, mesh)
    # Not after an error: the others may be waiting in a collective that this rank will never join.
    dist.destroy_process_group()
