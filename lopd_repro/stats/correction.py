"""Correction for testing many hypotheses at once."""

from __future__ import annotations

import math
from collections.abc import Sequence


def holm(p: Sequence[float]) -> list[float]:
    """Holm's step-down adjusted p-values, in the order given.

    The i-th smallest (from 0) of n is multiplied by n - i; adjusted values never decrease along
    that order and never exceed 1. Holds the family-wise error under any dependence.
    """
    for value in p:
        if math.isnan(value) or not 0.0 <= value <= 1.0:
            raise ValueError(f"a p-value must lie in [0, 1], got {value}")
    adjusted = [0.0] * len(p)
    running = 0.0
    for rank, index in enumerate(sorted(range(len(p)), key=lambda i: p[i])):
        running = max(running, min(1.0, (len(p) - rank) * p[index]))
        adjusted[index] = running
    return adjusted
