"""Mean and slope of a series, by hand."""

from __future__ import annotations

import math

import pytest

from lopd_repro.stats import mean_interval, trend


def test_the_slope_and_its_interval_follow_least_squares() -> None:
    # y = 1, 3, 2 at x = -1, 0, 1: slope (2 - 1) / 2 = 0.5; rests -0.5, 1, -0.5, their squares 1.5;
    # error sqrt(1.5 / 1 / 2) = 0.8660; t(1 degree, 97.5%) = tan(0.475 pi) = 12.7062.
    found = trend([1.0, 3.0, 2.0])
    reach = math.tan(0.475 * math.pi) * math.sqrt(0.75)
    assert found.slope == pytest.approx(0.5)
    assert found.interval == pytest.approx((0.5 - reach, 0.5 + reach))
    exact = trend([4.0, 3.0, 2.0, 1.0])
    assert exact.slope == pytest.approx(-1.0) and exact.interval == pytest.approx((-1.0, -1.0))


def test_the_mean_has_students_interval() -> None:
    # 1 and 3: mean 2, deviation sqrt(2), error 1, one degree of freedom.
    reach = math.tan(0.475 * math.pi)
    assert mean_interval([1.0, 3.0]) == pytest.approx((2.0 - reach, 2.0 + reach))
    assert mean_interval([2.0, 2.0, 2.0]) == (2.0, 2.0)


def test_too_few_values_or_a_gap_are_refused() -> None:
    for values in ([1.0, 2.0], [1.0, math.nan, 2.0]):
        with pytest.raises(ValueError, match="at least 3 finite"):
            trend(values)
    with pytest.raises(ValueError, match="at least 2 finite"):
        mean_interval([1.0])
