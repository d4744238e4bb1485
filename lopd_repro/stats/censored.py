"""Medians of times to an event that may not have happened: censored values stay in, as infinity."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from lopd_repro.stats.bootstrap import DRAWS


class CensoredMedian(NamedTuple):
    """Median and 95% bounds; infinity where it lies among the values not reached."""

    median: float
    low: float
    high: float


def censored_median(
    values: Sequence[float], rng: np.random.Generator, *, draws: int = DRAWS, level: float = 0.95
) -> CensoredMedian:
    """Median over seeds with a bootstrap interval over seeds.

    Up to five seeds all resamples are counted, so that nothing is random; beyond, `draws` are
    drawn. Bounds are medians of resamples, never between two (infinity cannot be interpolated).
    With three seeds the bounds are the lowest and the highest seed: the resamples whose median is
    an outer value make up 26% at each end.
    """
    if not values or any(math.isnan(value) for value in values):
        raise ValueError(f"values to take a median of must be numbers or infinity, got {values}")
    n = len(values)
    if n**n <= draws and n <= 5:
        index = np.array(list(itertools.product(range(n), repeat=n)))
    else:
        index = rng.integers(n, size=(draws, n))
    medians = np.median(np.asarray(values, dtype=np.float64)[index], axis=1)
    tail = (1.0 - level) / 2.0
    low, high = np.quantile(medians, [tail, 1.0 - tail], method="inverted_cdf")
    return CensoredMedian(float(np.median(values)), float(low), float(high))
