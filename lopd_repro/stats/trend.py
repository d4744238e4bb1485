"""A noisy series over equally spaced steps: its mean and its slope, with Student's t intervals.

Deviations are taken as independent: a series that wanders gets intervals that are too narrow.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from lopd_repro.stats.bootstrap import Interval


class Trend(NamedTuple):
    """Least-squares slope per step and its interval."""

    slope: float
    interval: Interval


def mean_interval(values: Sequence[float], *, level: float = 0.95) -> Interval:
    """Interval of the mean of `values [n]`, n at least 2; n - 1 degrees of freedom."""
    y = _checked(values, 2)
    n = len(y)
    reach = float(stdtrit(n - 1, 0.5 + level / 2.0) * y.std(ddof=1)) / math.sqrt(n)
    return Interval(float(y.mean()) - reach, float(y.mean()) + reach)


def trend(values: Sequence[float], *, level: float = 0.95) -> Trend:
    """Least-squares line through `values [n]`, one a step, n at least 3; n - 2 degrees."""
    y = _checked(values, 3)
    n = len(y)
    x = np.arange(n) - (n - 1) / 2.0
    spread = float(x @ x)
    slope = float(x @ y) / spread
    rest = y - y.mean() - slope * x
    error = math.sqrt(float(rest @ rest) / (n - 2) / spread)
    reach = float(stdtrit(n - 2, 0.5 + level / 2.0)) * error
    return Trend(slope, Interval(slope - reach, slope + reach))


def _checked(values: Sequence[float], least: int) -> NDArray[np.float64]:
    y = np.asarray(values, dtype=np.float64)
    if len(y) < least or not np.isfinite(y).all():
        raise ValueError(f"a series needs at least {least} finite values, got {len(y)}")
    return y
