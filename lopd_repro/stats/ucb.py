"""UCB1 scores (Auer et al. 2002)."""

from __future__ import annotations

import math
from collections.abc import Sequence


def ucb1_scores(
    reward_sums: Sequence[float], pulls: Sequence[int], c: float = math.sqrt(2.0)
) -> list[float]:
    """mean_i + c * sqrt(ln(sum of pulls) / pulls_i); infinite for an arm never pulled."""
    if len(reward_sums) != len(pulls):
        raise ValueError(f"{len(reward_sums)} reward sums for {len(pulls)} pull counts")
    total = sum(pulls)
    return [
        reward / n + c * math.sqrt(math.log(total) / n) if n else math.inf
        for reward, n in zip(reward_sums, pulls, strict=True)
    ]
