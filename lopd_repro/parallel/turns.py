"""Which rank takes which micro-batch of a step, and what idle ranks do meanwhile.

Weights in shards are gathered by all ranks together, so all ranks must run the same models the
same number of times in the same order. Micro-batches are handed out in turns, one to each rank,
the longest first, so that those of one turn take about as long as each other. A rank without one
in the last turn, or whose micro-batch has nothing to distil while another's has, runs the models on
a stand-in, a trajectory of the step whose loss counts for nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Turn:
    """This rank's place in one turn.

    part: its micro-batch as a range of the step's trajectories, None if it has none. student,
    teacher: the model is run on the trajectory `stand_in` instead of on a micro-batch.
    """

    part: range | None
    student: bool = False
    teacher: bool = False
    stand_in: int = 0


def turns(
    parts: Sequence[range], lengths: Sequence[int], distilled: Sequence[bool], rank: int, size: int
) -> list[Turn]:
    """One rank's turns; `lengths` in tokens and `distilled` are of all trajectories of the step.

    One rank alone takes the micro-batches as they come.
    """
    if size == 1:
        return [Turn(part) for part in parts]
    order = sorted(parts, key=lambda part: (-sum(lengths[i] for i in part), part.start))
    places = range(len(lengths))
    shortest = min(places, key=lambda i: lengths[i])
    taught = min((i for i in places if distilled[i]), key=lambda i: lengths[i], default=None)
    found = []
    for start in range(0, len(order), size):
        group = order[start : start + size]
        part = group[rank] if rank < len(group) else None
        anywhere = any(distilled[i] for other in group for i in other)
        here = part is not None and any(distilled[i] for i in part)
        stand_in = taught if anywhere and taught is not None else shortest
        found.append(Turn(part, part is None, anywhere and not here, stand_in))
    return found


def micro_batches(count: int, size: int) -> list[range]:
    """`count` trajectories in parts of `size`, the last one perhaps smaller."""
    return [range(start, min(start + size, count)) for start in range(0, count, size)]
