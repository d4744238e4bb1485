"""Statistics from summary numbers, against published values and worked examples."""

from __future__ import annotations

import math

import pytest

from lopd_repro.stats.proportions import (
    Stratum,
    bounded_mean_interval,
    clopper_pearson,
    most_favourable_paired_p,
    sign_test,
    smallest_detectable_difference,
    weighted_difference_test,
    wilson,
)


def test_wilson() -> None:
    # 8 of 10 at 95%, a textbook example: 0.490 to 0.943
    interval = wilson(8, 10)
    assert (interval.low, interval.high) == pytest.approx((0.4902, 0.9433), abs=5e-5)
    # the limits solve |p - 0.8| = z sqrt(p (1 - p) / n)
    for limit in (interval.low, interval.high):
        assert abs(limit - 0.8) == pytest.approx(
            1.959964 * math.sqrt(limit * (1 - limit) / 10), rel=1e-6
        )
    assert wilson(0, 10).low == 0.0 and wilson(10, 10).high == 1.0


def test_clopper_pearson() -> None:
    # 8 of 10: 0.4439 to 0.9748
    interval = clopper_pearson(8, 10)
    assert (interval.low, interval.high) == pytest.approx((0.4439, 0.9748), abs=5e-5)
    # at the lower limit P(X >= 8) is 2.5%
    p = interval.low
    tail = sum(math.comb(10, k) * p**k * (1 - p) ** (10 - k) for k in (8, 9, 10))
    assert tail == pytest.approx(0.025, abs=1e-9)
    # 0 of 10: upper limit 1 - 0.025^(1/10)
    assert clopper_pearson(0, 10).high == pytest.approx(1 - 0.025**0.1)
    assert clopper_pearson(0, 10).low == 0.0


def test_two_proportions() -> None:
    # 15/25 against 5/25: pooled 0.4, se = sqrt(0.24 * 2/25) = 0.13856, z = 2.88675
    difference, error, p = weighted_difference_test([Stratum(1.0, 0.6, 0.2, 25, 25)])
    assert difference == pytest.approx(0.4)
    assert error == pytest.approx(0.1385641)
    assert p == pytest.approx(math.erfc(2.8867513 / math.sqrt(2)), rel=1e-6)


def test_strata_and_spread() -> None:
    # two strata with weights 1:3: variance 0.0625 v1 + 0.5625 v2
    first, second = Stratum(1, 0.5, 0.5, 10, 10), Stratum(3, 0.7, 0.5, 40, 40, spread=1 / 3)
    difference, error, _ = weighted_difference_test([first, second])
    assert difference == pytest.approx(0.15)
    v1, v2 = 0.25 * 2 / 10, 0.24 * (2 / 40) / 3
    assert error == pytest.approx(math.sqrt(0.0625 * v1 + 0.5625 * v2))


def test_certain_outcomes() -> None:
    assert weighted_difference_test([Stratum(1, 1.0, 1.0, 5, 5)]) == (0.0, 0.0, 1.0)


def test_detectable_difference() -> None:
    # Fleiss: 0.25 against 0.40 needs 152 a side at 5% and 80% (without continuity correction)
    found = smallest_detectable_difference(0.25, 151.87)
    assert found == pytest.approx(0.15, abs=2e-5)
    # quarter of the variance, same answer with a quarter of the items
    assert smallest_detectable_difference(0.25, 151.87 / 4, spread=0.25) == pytest.approx(
        0.15, abs=2e-5
    )
    assert smallest_detectable_difference(0.9, 10) is None


def test_sign_test_and_pairing() -> None:
    assert sign_test(10, 10) == 2 / 1024
    # 8 or more of 10: 45 + 10 + 1 = 56 of 1024, two-sided 112/1024
    assert sign_test(8, 10) == pytest.approx(112 / 1024)
    assert sign_test(2, 10) == sign_test(8, 10)
    assert sign_test(5, 10) == 1.0
    assert most_favourable_paired_p(7) == 2 / 128
    assert most_favourable_paired_p(-2) == 0.5
    assert most_favourable_paired_p(0) == 1.0


def test_most_favourable_pairing_is_the_smallest() -> None:
    # b items for one, c for the other, b - c = 4: exact McNemar p is smallest at c = 0
    def mcnemar(b: int, c: int) -> float:
        return sign_test(b, b + c)

    values = [mcnemar(4 + c, c) for c in range(6)]
    assert min(values) == values[0] == most_favourable_paired_p(4)


def test_bounded_mean() -> None:
    # uniform scores: variance 1/12 at mean 1/2; 300 of them: se = 1/60
    interval = bounded_mean_interval(0.5, 300, 1 / 3)
    assert interval.high - 0.5 == pytest.approx(1.959964 / 60, rel=1e-6)
    worst = bounded_mean_interval(0.5, 300, 1.0)
    assert worst.high - 0.5 == pytest.approx(1.959964 * math.sqrt(0.25 / 300), rel=1e-6)


@pytest.mark.parametrize(("k", "n"), [(-1, 10), (11, 10), (0, 0)])
def test_not_a_proportion(k: int, n: int) -> None:
    with pytest.raises(ValueError):
        wilson(k, n)
