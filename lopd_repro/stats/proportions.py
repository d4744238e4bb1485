"""Binomial intervals, two-proportion tests, detectable differences and sign tests.

Everything works from summary numbers (successes or means, and sample sizes), because a printed
table holds nothing else. Only `scipy.special` is used: importing it is quick.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from scipy.special import betaincinv, ndtr, ndtri


@dataclass(frozen=True)
class Interval:
    """A two-sided confidence interval, in the unit of the estimate (a proportion unless said)."""

    low: float
    high: float


@dataclass(frozen=True)
class Stratum:
    """One test set scored for two methods: its weight in the average, both means in [0, 1], both
    numbers of independent observations, and `spread`: the variance of one observation as a share
    of mean * (1 - mean). 1 is a yes/no score and the worst case of any score in [0, 1]."""

    weight: float
    mean_a: float
    mean_b: float
    n_a: float
    n_b: float
    spread: float = 1.0


def wilson(successes: float, n: float, level: float = 0.95) -> Interval:
    """Wilson score interval of a proportion (Wilson 1927). `successes` may be fractional."""
    _check_count(successes, n)
    z = float(ndtri(0.5 + level / 2))
    p = successes / n
    centre = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    low = 0.0 if successes == 0 else max(0.0, centre - half)
    return Interval(low, 1.0 if successes == n else min(1.0, centre + half))


def clopper_pearson(successes: int, n: int, level: float = 0.95) -> Interval:
    """Exact interval of a proportion (Clopper and Pearson 1934); covers at least `level`."""
    _check_count(successes, n)
    tail = (1 - level) / 2
    low = 0.0 if successes == 0 else float(betaincinv(successes, n - successes + 1, tail))
    high = 1.0 if successes == n else float(betaincinv(successes + 1, n - successes, 1 - tail))
    return Interval(low, high)


def bounded_mean_interval(mean: float, n: float, spread: float, level: float = 0.95) -> Interval:
    """Normal interval of the mean of scores in [0, 1] when only mean and n are printed.

    The variance of one score is taken as `spread` * mean * (1 - mean). `spread` = 1 is the
    largest a score in [0, 1] can have; 1/3 is that of Beta(2 mean, 2 - 2 mean), which is the
    uniform distribution at mean 1/2.
    """
    half = float(ndtri(0.5 + level / 2)) * math.sqrt(spread * mean * (1 - mean) / n)
    return Interval(max(0.0, mean - half), min(1.0, mean + half))


def weighted_difference_test(strata: Sequence[Stratum]) -> tuple[float, float, float]:
    """Difference a - b of two weighted means, its pooled standard error, two-sided p.

    The unpaired z test with the variance pooled within each stratum; one stratum of weight 1 and
    spread 1 is the usual two-proportion z test. A standard error of 0 gives p = 1 for no
    difference and 0 otherwise.
    """
    total = sum(s.weight for s in strata)
    difference = sum(s.weight * (s.mean_a - s.mean_b) for s in strata) / total
    variance = 0.0
    for s in strata:
        pooled = (s.n_a * s.mean_a + s.n_b * s.mean_b) / (s.n_a + s.n_b)
        share = s.weight / total
        variance += share**2 * s.spread * pooled * (1 - pooled) * (1 / s.n_a + 1 / s.n_b)
    error = math.sqrt(variance)
    if error == 0.0:
        return difference, error, 1.0 if difference == 0.0 else 0.0
    return difference, error, float(2 * ndtr(-abs(difference) / error))


def smallest_detectable_difference(
    base: float, n: float, alpha: float = 0.05, power: float = 0.8, spread: float = 1.0
) -> float | None:
    """Smallest rise over `base` that an unpaired two-sided test with n observations a side shows.

    Solves d = z(1 - alpha/2) * se0(d) + z(power) * se1(d), with se0 pooled and se1 unpooled
    (Fleiss, Levin and Paik, chapter 4, without continuity correction). None if even a rise to 1
    would not be shown with this power.
    """
    z_alpha, z_power = float(ndtri(1 - alpha / 2)), float(ndtri(power))

    def lacking(d: float) -> float:
        other = base + d
        pooled = (base + other) / 2
        null = math.sqrt(spread * 2 * pooled * (1 - pooled) / n)
        alternative = math.sqrt(spread * (base * (1 - base) + other * (1 - other)) / n)
        return z_alpha * null + z_power * alternative - d

    low, high = 0.0, 1.0 - base
    if lacking(high) > 0:
        return None
    for _ in range(60):
        middle = (low + high) / 2
        if lacking(middle) > 0:
            low = middle
        else:
            high = middle
    return high


def sign_test(wins: int, n: int) -> float:
    """Two-sided exact p of `wins` out of n comparisons without ties, each a fair coin."""
    _check_count(wins, n)
    extreme = max(wins, n - wins)
    tail = float(sum(math.comb(n, k) for k in range(extreme, n + 1)) / 2**n)
    return min(1.0, 2 * tail)


def most_favourable_paired_p(difference: int) -> float:
    """Smallest p an exact McNemar test can give when the totals differ by `difference` items.

    The pairing is unknown. The p is smallest when every item on which the two methods disagree
    goes the same way, so that there are exactly |difference| of them.
    """
    return float(min(1.0, 2.0 ** (1 - abs(difference))))


def _check_count(successes: float, n: float) -> None:
    if not (n > 0 and 0 <= successes <= n):
        raise ValueError(f"{successes} of {n} is not a proportion")
