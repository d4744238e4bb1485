"""Medians with values not reached, by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from lopd_repro.stats import censored_median


def test_with_three_seeds_the_bounds_are_the_outer_seeds() -> None:
    # 27 resamples: a median of 320 needs two or three of it, 3 * 2 + 1 = 7 of 27, more than 2.5%.
    found = censored_median([640.0, 320.0, 960.0], np.random.default_rng(0))
    assert found == (640.0, 320.0, 960.0)
    assert found == censored_median([640.0, 320.0, 960.0], np.random.default_rng(1))


def test_a_value_not_reached_counts_as_the_largest() -> None:
    rng = np.random.default_rng(0)
    assert censored_median([320.0, math.inf, 640.0], rng) == (640.0, 320.0, math.inf)
    assert censored_median([math.inf, math.inf, 1.0], rng) == (math.inf, 1.0, math.inf)
    # Two seeds: resamples 1 1, 1 3, 3 1, 3 3 have medians 1, 2, 2, 3.
    assert censored_median([1.0, 3.0], rng) == (2.0, 1.0, 3.0)
    assert censored_median([1.0, math.inf], rng) == (math.inf, 1.0, math.inf)
    assert censored_median([7.0], rng) == (7.0, 7.0, 7.0)


def test_many_seeds_are_drawn() -> None:
    values = [float(v) for v in range(21)]
    found = censored_median(values, np.random.default_rng(0))
    # The median's resample k-th smallest: P(median <= 5) is about 1%, <= 6 about 4%.
    assert found.median == 10.0 and found.low in (5.0, 6.0) and found.high in (14.0, 15.0)


def test_no_value_or_a_gap_is_refused() -> None:
    for values in ([], [1.0, math.nan]):
        with pytest.raises(ValueError, match="numbers or infinity"):
            censored_median(values, np.random.default_rng(0))
