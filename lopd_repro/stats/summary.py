"""A table cell: mean over seeds, deviation over seeds, bootstrap interval."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lopd_repro.stats.bootstrap import DRAWS, TaskDraw, hierarchical_interval


@dataclass(frozen=True)
class Summary:
    """mean, std (None with one seed) and interval in the unit of the scores; seeds counted."""

    mean: float
    std: float | None
    ci_low: float
    ci_high: float
    n_seeds: int


def mean_std(values: Sequence[float]) -> tuple[float, float | None]:
    """Mean and standard deviation with n-1; no deviation for a single value."""
    if not values:
        raise ValueError("no values to average")
    mean = math.fsum(values) / len(values)
    if len(values) == 1:
        return mean, None
    variance = math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)
    return mean, math.sqrt(variance)


def score_matrix(
    scores: Mapping[int, Mapping[str, float]],
    tasks: Sequence[str] | None = None,
    seeds: Sequence[int] | None = None,
) -> NDArray[np.float64]:
    """`{seed: {task: score}}` as `[S, T]` in sorted (or given) order.

    A seed or task that is missing anywhere is a ValueError that names it.
    """
    order = sorted(scores) if seeds is None else list(seeds)
    missing = [seed for seed in order if seed not in scores]
    if missing or not order:
        raise ValueError(f"no scores for seed {missing[0]}" if missing else "no seeds")
    names = sorted(scores[order[0]]) if tasks is None else list(tasks)
    for seed in order:
        odd = sorted(set(names) ^ set(scores[seed]))
        if odd:
            raise ValueError(f"seed {seed}: {len(odd)} tasks do not match, such as {odd[0]!r}")
    return np.array([[scores[seed][name] for name in names] for seed in order], dtype=np.float64)


def summarise(
    scores: NDArray[np.float64],
    rng: np.random.Generator,
    *,
    draws: int = DRAWS,
    tasks: TaskDraw = "per_seed",
) -> Summary:
    """Summary of `scores [S, T]`."""
    interval = hierarchical_interval(scores, rng, draws=draws, tasks=tasks)
    mean, std = mean_std([float(value) for value in scores.mean(axis=1)])
    return Summary(mean, std, interval.low, interval.high, len(scores))
