"""Bootstrap intervals and paired tests."""

from __future__ import annotations

import numpy as np
import pytest

from lopd_repro.stats import (
    bootstrap_means,
    bootstrap_ratios,
    hierarchical_interval,
    mean_std,
    paired_bootstrap,
    percentile_interval,
    score_matrix,
    summarise,
)


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_mean_std_by_hand() -> None:
    # mean 4, squares 4 + 0 + 4 over n - 1 = 2
    assert mean_std([2.0, 4.0, 6.0]) == (4.0, 2.0)
    assert mean_std([7.0]) == (7.0, None)
    with pytest.raises(ValueError, match="no values"):
        mean_std([])


def test_two_seeds_without_task_spread_give_the_binomial_draws() -> None:
    # seeds at 0 and 1: a draw's mean is 0, 1/2 or 1 with chances 1/4, 1/2, 1/4
    means = bootstrap_means(np.array([[0.0] * 5, [1.0] * 5]), rng(), draws=20_000)
    for value, chance in ((0.0, 0.25), (0.5, 0.5), (1.0, 0.25)):
        # four standard errors of a share over 20,000 draws
        assert np.mean(means == value) == pytest.approx(chance, abs=4 * 0.5 / 20_000**0.5)


@pytest.mark.parametrize(("tasks", "expected"), [("per_seed", 0.25 / 4 / 3), ("shared", 0.25 / 4)])
def test_task_spread_of_equal_seeds(tasks: str, expected: float) -> None:
    """Three equal seeds over tasks 0, 0, 1, 1: variance p(1-p)/T, over S where drawn per seed."""
    scores = np.tile([0.0, 0.0, 1.0, 1.0], (3, 1))
    means = bootstrap_means(scores, rng(), draws=40_000, tasks=tasks)
    # a variance estimate from 40,000 draws has a relative error of about 1%
    assert means.var() == pytest.approx(expected, rel=0.04)
    assert means.mean() == pytest.approx(0.5, abs=0.01)


def test_variance_of_the_nested_draw_by_formula() -> None:
    """Var = between-seed variance / S + mean within-seed variance / (S T), population moments."""
    scores = rng(5).random((3, 8))
    expected = scores.mean(1).var() / 3 + scores.var(1).mean() / (3 * 8)
    means = bootstrap_means(scores, rng(), draws=40_000)
    assert means.var() == pytest.approx(expected, rel=0.04)


def test_same_generator_same_interval_and_chunks_do_not_matter_for_size() -> None:
    scores = rng(1).random((3, 40))
    assert hierarchical_interval(scores, rng(7)) == hierarchical_interval(scores, rng(7))
    assert len(bootstrap_means(rng(2).random((3, 900)), rng(), draws=3_001)) == 3_001


def test_constant_scores_have_no_width() -> None:
    summary = summarise(np.full((3, 10), 40.0), rng(), draws=500)
    assert (summary.mean, summary.std, summary.n_seeds) == (40.0, 0.0, 3)
    assert (summary.ci_low, summary.ci_high) == (40.0, 40.0)


def test_percentiles() -> None:
    interval = percentile_interval(np.arange(1001.0))
    assert interval.low == pytest.approx(25.0)
    assert interval.high == pytest.approx(975.0)


def test_missing_scores_are_refused() -> None:
    for bad in (np.array([[1.0, np.nan]]), np.zeros((0, 3)), np.zeros(3)):
        with pytest.raises(ValueError, match="scores"):
            bootstrap_means(bad, rng(), draws=10)
    with pytest.raises(ValueError, match="unknown task draw"):
        bootstrap_means(np.ones((2, 2)), rng(), tasks="both")  # type: ignore[arg-type]


def test_ratios_of_sums_by_hand() -> None:
    """One seed, two tasks with 1 of 1 and 0 of 3: draws of the pair give 1, 1/4 twice, 0."""
    above, below = np.array([[1.0, 0.0]]), np.array([[1.0, 3.0]])
    ratios = bootstrap_ratios(above, below, rng(), draws=20_000)
    for value, chance in ((1.0, 0.25), (0.25, 0.5), (0.0, 0.25)):
        assert np.mean(ratios == value) == pytest.approx(chance, abs=4 * 0.5 / 20_000**0.5)


def test_ratios_average_over_seeds_and_share_the_draws_of_means() -> None:
    scores = rng(6).random((3, 12))
    for tasks in ("per_seed", "shared"):
        means = bootstrap_means(scores, rng(8), draws=500, tasks=tasks)
        # 2 s / 2 in every task: the same resamples, hence the same values but for rounding.
        twos = np.full_like(scores, 2.0)
        ratios = bootstrap_ratios(2.0 * scores, twos, rng(8), draws=500, tasks=tasks)
        assert ratios == pytest.approx(means, abs=1e-12)
    # Two seeds of one task with ratios 1/2 and 4: mean 9/4 where each is drawn once.
    pair = bootstrap_ratios(np.array([[1.0], [4.0]]), np.array([[2.0], [1.0]]), rng(), draws=200)
    assert set(pair.tolist()) == {0.5, 2.25, 4.0}


def test_a_ratio_without_denominator_has_no_value() -> None:
    below = np.array([[0.0, 2.0]])
    ratios = bootstrap_ratios(np.array([[0.0, 1.0]]), below, rng(), draws=20_000)
    # Both places drawn from the first task with chance 1/4; else 1/2 (or 1/2 of twice as many).
    assert np.isnan(ratios).mean() == pytest.approx(0.25, abs=4 * 0.5 / 20_000**0.5)
    assert set(ratios[~np.isnan(ratios)].tolist()) == {0.5}
    with pytest.raises(ValueError, match="numerators"):
        bootstrap_ratios(np.ones((1, 3)), below, rng())
    with pytest.raises(ValueError, match="missing or infinite"):
        bootstrap_ratios(np.ones((1, 2)), np.array([[1.0, np.nan]]), rng())


def test_pairing_removes_what_tasks_share() -> None:
    """The second method is 0.1 better on every task: the pairs know it, unpaired means do not."""
    base = rng(3).random((3, 30)) * 0.9
    result = paired_bootstrap(base + 0.1, base, rng(), draws=2_000)
    assert result.difference == pytest.approx(0.1)
    assert result.interval == pytest.approx((0.1, 0.1))
    assert result.p == pytest.approx(2 / 2_001)
    assert hierarchical_interval(base, rng()).high > base.mean() + 0.04


def test_p_is_one_for_equal_methods_and_symmetric() -> None:
    scores = rng(4).random((3, 20))
    assert paired_bootstrap(scores, scores, rng(), draws=500).p == 1.0
    other = rng(5).random((3, 20))
    forth = paired_bootstrap(scores, other, rng(), draws=4_000)
    back = paired_bootstrap(other, scores, rng(), draws=4_000)
    assert forth.difference == -back.difference
    assert forth.p == back.p
    assert forth.interval.low == pytest.approx(-back.interval.high)


def test_p_against_the_exact_one_seed_case() -> None:
    """One seed, two tasks with differences 1 and -1/2: draws (1, 1), mixed twice, (-1/2, -1/2)."""
    gap = np.array([[1.0, -0.5]])
    # means 1, 1/4, 1/4, -1/2: share at or below 0 is 1/4, so p = 1/2
    result = paired_bootstrap(gap, np.zeros_like(gap), rng(), draws=20_000)
    assert result.p == pytest.approx(0.5, abs=0.03)


def test_score_matrix_orders_and_names_what_is_missing() -> None:
    scores = {1: {"b": 2.0, "a": 1.0}, 0: {"a": 3.0, "b": 4.0}}
    assert score_matrix(scores).tolist() == [[3.0, 4.0], [1.0, 2.0]]
    with pytest.raises(ValueError, match="seed 1: 1 tasks do not match, such as 'b'"):
        score_matrix({0: {"a": 1.0, "b": 1.0}, 1: {"a": 1.0}})
    with pytest.raises(ValueError, match="no scores for seed 5"):
        score_matrix(scores, seeds=[0, 5])
