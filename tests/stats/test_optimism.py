"""Optimism with the choice made anew: distributions worked out by hand on tiny arrays."""

from __future__ import annotations

import numpy as np
import pytest

from lopd_repro.stats import first_best, halves, highest_mean, redone_across, redone_within


def rng() -> np.random.Generator:
    return np.random.default_rng(3)


def shares(draws: np.ndarray) -> dict[float, float]:
    values, counts = np.unique(np.round(draws, 9), return_counts=True)
    return {float(v): c / len(draws) for v, c in zip(values, counts, strict=True)}


def test_the_first_of_equals_is_best_and_rounding_makes_no_difference() -> None:
    scores = np.array([[0.1 + 0.2, 0.3, 0.2], [0.3, 0.1 + 0.2, 0.2], [0.0, 0.1, 0.4]])
    assert first_best(scores).tolist() == [0, 0, 2]
    assert highest_mean(np.array([[1.0, 0.0], [0.5, 0.7]])) == 1


def test_without_noise_the_optimism_is_the_gap_in_every_draw() -> None:
    test, validation = np.array([[[3.0]], [[5.0]]]), np.array([[1.0], [0.0]])
    assert shares(redone_across(test, validation, highest_mean, rng())) == {2.0: 1.0}


def test_tests_choice_is_made_anew_on_the_drawn_tasks() -> None:
    # Validation prefers a. Tasks drawn (0, 0): a 1, b 0; (0, 1) and (1, 0): equal, a is first;
    # (1, 1): a 0, b 1. So optimism 1 in a quarter of the draws, though the scores as they are
    # give 0.
    test, validation = np.array([[[1.0, 0.0]], [[0.0, 1.0]]]), np.array([[1.0], [0.0]])
    found = shares(redone_across(test, validation, highest_mean, rng()))
    assert found.keys() == {0.0, 1.0} and found[1.0] == pytest.approx(0.25, abs=0.02)


def test_validation_chooses_anew_on_the_same_drawn_seeds() -> None:
    test = np.array([[[1.0], [0.0]], [[0.0], [1.0]]])
    agreeing = np.array([[1.0, 0.0], [0.0, 1.0]])
    assert shares(redone_across(test, agreeing, highest_mean, rng())) == {0.0: 1.0}
    # Opposite order: one seed twice (half of the draws) gives 1; both seeds tie, first of both: 0.
    found = shares(redone_across(test, 1.0 - agreeing, highest_mean, rng()))
    assert found.keys() == {0.0, 1.0} and found[1.0] == pytest.approx(0.5, abs=0.02)


def test_choices_within_seeds_are_averaged_over_drawn_seeds() -> None:
    # Seed 0: validation keeps the one that is 2 worse; seed 1: equals. Seeds drawn (0, 0): 2,
    # mixed: 1, (1, 1): 0.
    test = np.array([[[1.0], [3.0]], [[4.0], [4.0]]])
    found = shares(redone_within(test, np.array([0, 1]), rng()))
    assert found.keys() == {0.0, 1.0, 2.0}
    assert found[1.0] == pytest.approx(0.5, abs=0.02)
    assert found[2.0] == pytest.approx(0.25, abs=0.02)


def test_halves_tell_noise_from_a_real_gain() -> None:
    # Validation's choice is a. Choosing on task 0: a, lead 0 on both halves. Choosing on task 1:
    # b, lead 1 there and -1 on task 0. Means: 1/2, -1/2, so the curse is 1.
    noise = np.array([[[1.0, 0.0], [0.0, 1.0]]])
    assert halves(noise, np.array([0]), rng(), splits=7) == pytest.approx((0.5, 1.0, -0.5))
    # b is 1 better on every task: no curse.
    better = np.array([[[0.2, 0.6, 0.4], [1.2, 1.6, 1.4]]])
    assert halves(better, np.array([0]), rng()) == pytest.approx((1.0, 0.0, 1.0), abs=1e-12)
    # Two choices of one bench each: half of the sum.
    both = np.array([[[0.0, 0.0], [1.0, 1.0]], [[0.0, 0.0], [3.0, 3.0]]])
    assert halves(both, np.array([0, 0]), rng()) == pytest.approx((2.0, 0.0, 2.0))
    assert halves(np.zeros((1, 2, 1)), np.array([0]), rng()) is None


def test_of_equal_candidates_the_whole_optimism_is_curse() -> None:
    scores = np.random.default_rng(0).normal(size=(400, 5, 60))
    found = halves(scores, np.zeros(400, dtype=np.int64), rng(), splits=100)
    # Half means have deviation 1 / sqrt(30); the largest of 5 is 1.163 deviations above 0.
    assert found is not None and found.real_gain == pytest.approx(0.0, abs=0.03)
    assert found.winners_curse == pytest.approx(1.163 / 30**0.5, abs=0.02)


def test_gaps_and_shapes_are_refused() -> None:
    with pytest.raises(ValueError, match="do not match"):
        redone_across(np.zeros((2, 3, 4)), np.zeros((2, 2)), highest_mean, rng())
    with pytest.raises(ValueError, match="do not match"):
        redone_within(np.zeros((2, 3, 4)), np.zeros(3, dtype=np.int64), rng())
    with pytest.raises(ValueError, match="without gaps"):
        halves(np.full((1, 2, 3), np.nan), np.array([0]), rng())
