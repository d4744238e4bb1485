"""Every pair of methods in every cell: the rows of comparisons.csv.

A cell is one metric on one backbone. Differences are paired by task and seed. The Holm family is
the cell: a family over the whole table would put the smallest reachable bootstrap p-value,
2 / (draws + 1), above 0.05 once it holds some 250 comparisons, whatever the data.
"""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lopd_repro.stats.bootstrap import DRAWS, PairedResult, TaskDraw, paired_bootstrap
from lopd_repro.stats.correction import holm
from lopd_repro.stats.summary import score_matrix

COMPARISON_COLUMNS = (
    "scale",
    "metric",
    "backbone",
    "method_a",
    "method_b",
    "n_seeds",
    "n_tasks",
    "difference",
    "ci_low",
    "ci_high",
    "p",
    "p_holm",
    "verdict",
)


@dataclass(frozen=True)
class Cell:
    """Scores of all methods for one metric and backbone: `{method: {seed: {task: score}}}`."""

    metric: str
    backbone: str
    scores: Mapping[str, Mapping[int, Mapping[str, float]]]


def comparisons(
    scale: str,
    cells: Sequence[Cell],
    *,
    seed: int = 0,
    draws: int = DRAWS,
    alpha: float = 0.05,
    tasks: TaskDraw = "per_seed",
    reference: str | None = None,
) -> list[dict[str, Any]]:
    """One row (keys `COMPARISON_COLUMNS`) per method pair and cell, in the order given.

    With a `reference` only its pairs are made, and only they are the Holm family; a pair's
    interval and p stay what they are among all pairs.

    `difference` is method_a minus method_b in the unit of the scores. verdict: "a_higher" or
    "b_higher" where p_holm < alpha and the interval leaves out 0, else "undecided"; "incomplete",
    with None for the numbers, where the two methods do not have the same seeds and tasks.
    Each pair has its own generator, made from `seed` and the names, so that another method or
    cell changes no other row's interval.
    """
    rows: list[dict[str, Any]] = []
    for cell in cells:
        found: list[dict[str, Any]] = []
        for first, second in itertools.combinations(cell.scores, 2):
            if reference not in (None, first, second):
                continue
            row = dict.fromkeys(COMPARISON_COLUMNS)
            row.update(
                scale=scale,
                metric=cell.metric,
                backbone=cell.backbone,
                method_a=first,
                method_b=second,
                verdict="incomplete",
            )
            rows.append(row)
            paired = _pair(cell, first, second, seed, draws, tasks)
            if paired is not None:
                result, shape = paired
                row.update(
                    n_seeds=shape[0],
                    n_tasks=shape[1],
                    difference=result.difference,
                    ci_low=result.interval.low,
                    ci_high=result.interval.high,
                    p=result.p,
                )
                found.append(row)
        for row, adjusted in zip(found, holm([row["p"] for row in found]), strict=True):
            row["p_holm"] = adjusted
            row["verdict"] = _verdict(row, alpha)
    return rows


def _pair(
    cell: Cell, first: str, second: str, seed: int, draws: int, tasks: TaskDraw
) -> tuple[PairedResult, tuple[int, ...]] | None:
    left, right = cell.scores[first], cell.scores[second]
    if left.keys() != right.keys() or not left:
        return None
    names, seeds = sorted(left[min(left)]), sorted(left)
    try:
        a, b = score_matrix(left, names, seeds), score_matrix(right, names, seeds)
    except ValueError:
        return None
    if not names or np.isnan(a).any() or np.isnan(b).any():
        return None
    key = "\0".join([cell.metric, cell.backbone, first, second])
    rng = np.random.default_rng([seed, zlib.crc32(key.encode())])
    return paired_bootstrap(a, b, rng, draws=draws, tasks=tasks), a.shape


def _verdict(row: Mapping[str, Any], alpha: float) -> str:
    if row["p_holm"] >= alpha or row["ci_low"] <= 0.0 <= row["ci_high"]:
        return "undecided"
    return "a_higher" if row["difference"] > 0 else "b_higher"
