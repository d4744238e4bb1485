"""What choosing by the test scores adds to the score that is printed.

Candidates are judged twice: on validation, which is the choice that counts, and on test. Optimism
is the test score of the candidate that test prefers minus the test score of the one that
validation prefers. It is never below 0, and two things are mixed in it: the noise that made a
candidate look best on these very tasks (winner's curse), and what the candidate is really better
by. Two answers, and both have a limit that the reader should know:

- `redone_across`, `redone_within`: the bootstrap distribution of the optimism, with the choice
  made anew on every draw. Keeping the two chosen candidates fixed would treat the maximum as if
  it had been named in advance and give an interval that is too narrow and can fall below 0.
  A draw adds its own noise to that of the scores, so these draws lie somewhat high: read the
  interval as the spread of the optimism over seeds and tasks, not as a test against 0.
- `halves`: choosing on one random half of the test tasks and scoring on the other splits the
  optimism into winner's curse and real gain, without that bias, but at half the tasks: the curse
  at full size is smaller, about 0.7 of it where candidates are equal.

Arrays: C candidates in the order in which ties are resolved (the first of equals wins), S seeds,
T tasks. Scores that differ by less than 1e-9 are equal.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lopd_repro.stats.bootstrap import DRAWS

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
Choose = Callable[[FloatArray], IntArray]
"""Index of the chosen candidate, `[..., C, S] -> [...]`."""

SPLITS = 1000
"""Random halves that `halves` averages over, each used in both directions."""

_DECIMALS = 9


class Halves(NamedTuple):
    """Mean optimism on the half that chose, and its two parts; they add up to it."""

    optimism: float
    winners_curse: float
    real_gain: float


def first_best(scores: FloatArray) -> IntArray:
    """Index of the highest, the first of equals, along the last axis."""
    best: IntArray = np.argmax(np.round(scores, _DECIMALS), axis=-1)
    return best


def highest_mean(scores: FloatArray) -> IntArray:
    """Index of the candidate with the highest mean over seeds: `[..., C, S] -> [...]`."""
    return first_best(scores.mean(axis=-1))


def redone_across(
    test: FloatArray,
    validation: FloatArray,
    choose: Choose,
    rng: np.random.Generator,
    *,
    draws: int = DRAWS,
) -> FloatArray:
    """Optimism of a choice made once for all seeds: `[draws]`.

    test `[C, S, T]`; validation `[C, S]`. A draw takes seeds with replacement, the same for both
    splits, and tasks with replacement, the same for all seeds. `choose` is made anew on the drawn
    seeds' validation scores, test's choice on the drawn test scores. Validation tasks are not
    drawn: runs keep only their mean.
    """
    test, validation = _checked(test, 3), _checked(validation, 2)
    if validation.shape != test.shape[:2]:
        raise ValueError(f"test {test.shape} and validation {validation.shape} do not match")
    n_seeds = test.shape[1]
    seeds = rng.integers(n_seeds, size=(draws, n_seeds))
    drawn = np.take_along_axis(_task_draws(test, rng, draws), seeds[:, None, :], axis=-1)
    means = drawn.mean(axis=-1)
    chosen = choose(np.moveaxis(validation[:, seeds], 0, 1))
    return _gap(means, chosen)


def redone_within(
    test: FloatArray, chosen: IntArray, rng: np.random.Generator, *, draws: int = DRAWS
) -> FloatArray:
    """Mean over seeds of the optimism of a choice made for each seed alone: `[draws]`.

    test `[S, C, T]`; chosen `[S]`: what validation chose in each seed. A draw takes seeds, then
    tasks, the same for all seeds, and makes test's choice anew in each; validation's stays.
    """
    test = _checked(test, 3)
    n_seeds = len(test)
    if chosen.shape != (n_seeds,):
        raise ValueError(f"test {test.shape} and chosen {chosen.shape} do not match")
    seeds = rng.integers(n_seeds, size=(draws, n_seeds))
    gaps = _gap(_task_draws(test, rng, draws), np.broadcast_to(chosen, (draws, n_seeds)))
    return np.asarray(np.take_along_axis(gaps, seeds, axis=-1).mean(axis=-1))


def halves(
    test: FloatArray, chosen: IntArray, rng: np.random.Generator, *, splits: int = SPLITS
) -> Halves | None:
    """Optimism out of sample, averaged over G choices; None with fewer than two tasks.

    test `[G, C, T]`: scores that each choice is made from; chosen `[G]`: what validation chose.
    On a random half the best candidate is chosen; optimism is its lead over validation's choice
    on that half, real gain its lead on the other half, winner's curse the difference.
    """
    test = _checked(test, 3)
    n_tasks = test.shape[-1]
    if n_tasks < 2:
        return None
    order = np.argsort(rng.random((splits, n_tasks)), axis=-1)
    half = np.zeros((splits, n_tasks))
    np.put_along_axis(half, order[:, : n_tasks // 2], 1.0, axis=-1)
    sides = [half, 1.0 - half]
    means = [np.einsum("pt,gct->pgc", s / s.sum(axis=1, keepdims=True), test) for s in sides]
    fixed = np.broadcast_to(chosen, (splits, len(test)))
    inside, outside = [], []
    for here, there in (means, means[::-1]):
        best = first_best(here)
        inside.append(_at(here, best) - _at(here, fixed))
        outside.append(_at(there, best) - _at(there, fixed))
    optimism, gain = float(np.mean(inside)), float(np.mean(outside))
    return Halves(optimism, optimism - gain, gain)


def _task_draws(test: FloatArray, rng: np.random.Generator, draws: int) -> FloatArray:
    """Means over drawn tasks: `[A, B, T] -> [draws, A, B]`."""
    n_tasks = test.shape[-1]
    counts = rng.multinomial(n_tasks, np.full(n_tasks, 1.0 / n_tasks), size=draws)
    flat = counts @ test.reshape(-1, n_tasks).T / n_tasks
    return np.asarray(flat.reshape(draws, *test.shape[:-1]))


def _gap(means: FloatArray, chosen: IntArray) -> FloatArray:
    return np.asarray(_at(means, first_best(means)) - _at(means, chosen))


def _at(values: FloatArray, index: IntArray) -> FloatArray:
    return np.asarray(np.take_along_axis(values, index[..., None], axis=-1)[..., 0])


def _checked(scores: FloatArray, dimensions: int) -> FloatArray:
    scores = np.asarray(scores, dtype=np.float64)
    if scores.ndim != dimensions or scores.size == 0 or not np.isfinite(scores).all():
        raise ValueError(f"scores must be a filled {dimensions}-dimensional array without gaps")
    return scores
