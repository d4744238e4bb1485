"""Holm, the comparison rows, pass@k, UCB1."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest

from lopd_repro.stats import (
    COMPARISON_COLUMNS,
    Cell,
    comparisons,
    holm,
    mean_pass_at_k,
    pass_at_k,
    passed_all,
    ucb1_scores,
)


def test_holm_by_hand() -> None:
    # sorted .01 .02 .03 .04 times 4 3 2 1 = .04 .06 .06 .04, made non-decreasing
    assert holm([0.03, 0.01, 0.04, 0.02]) == pytest.approx([0.06, 0.04, 0.06, 0.06])
    assert holm([0.6, 0.5]) == [1.0, 1.0]
    assert holm([]) == []
    for bad in (math.nan, -0.1, 1.1):
        with pytest.raises(ValueError, match=r"\[0, 1\]"):
            holm([0.5, bad])


def scores(offset: float, noise: int, seeds: int = 3, tasks: int = 40) -> dict:
    draw = np.random.default_rng(noise)
    base = np.random.default_rng(0).random((seeds, tasks)) * 40
    values = base + offset + draw.normal(0, 2, (seeds, tasks))
    return {s: {f"t{t}": float(values[s, t]) for t in range(tasks)} for s in range(seeds)}


def test_rows_verdicts_and_family() -> None:
    cell = Cell("envscaler", "d96", {"a": scores(0, 1), "b": scores(10, 2), "c": scores(0, 3)})
    rows = comparisons("tiny", [cell], draws=1_000)
    assert [tuple(row) for row in rows] == [COMPARISON_COLUMNS] * 3
    pairs = [(row["method_a"], row["method_b"], row["verdict"]) for row in rows]
    assert pairs == [("a", "b", "b_higher"), ("a", "c", "undecided"), ("b", "c", "a_higher")]
    assert rows[0]["difference"] == pytest.approx(-10, abs=1)
    assert rows[0]["ci_low"] < rows[0]["difference"] < rows[0]["ci_high"] < 0
    assert [row["p_holm"] for row in rows] == holm([row["p"] for row in rows])
    assert (rows[0]["n_seeds"], rows[0]["n_tasks"], rows[0]["scale"]) == (3, 40, "tiny")


def test_a_reference_keeps_its_pairs_and_narrows_only_the_family() -> None:
    cell = Cell("m", "x", {"a": scores(0, 1), "b": scores(1, 2), "c": scores(2, 3)})
    every = comparisons("tiny", [cell], draws=500)
    own = comparisons("tiny", [cell], draws=500, reference="b")
    assert [(row["method_a"], row["method_b"]) for row in own] == [("a", "b"), ("b", "c")]
    for row in own:
        names = (row["method_a"], row["method_b"])
        (same,) = [r for r in every if (r["method_a"], r["method_b"]) == names]
        assert all(row[key] == same[key] for key in ("difference", "ci_low", "ci_high", "p"))
    assert [row["p_holm"] for row in own] == holm([row["p"] for row in own])


def test_another_method_or_cell_changes_no_other_interval() -> None:
    both = {"a": scores(0, 1), "b": scores(1, 2)}
    small = comparisons("tiny", [Cell("m", "x", both)], draws=500)
    large = comparisons(
        "tiny",
        [Cell("m", "w", both), Cell("m", "x", {"z": scores(3, 9), **both})],
        draws=500,
    )
    (again,) = [row for row in large if (row["backbone"], row["method_b"], row["method_a"]) == (
        "x", "b", "a")]  # fmt: skip
    for key in ("difference", "ci_low", "ci_high", "p"):
        assert again[key] == small[0][key]


def test_incomplete_pairs_stay_visible_and_out_of_the_family() -> None:
    short = scores(5, 2)
    del short[1]["t3"]
    fewer = {seed: row for seed, row in scores(5, 3).items() if seed != 2}
    gap = scores(5, 4)
    gap[0]["t0"] = math.nan
    cell = Cell(
        "m", "x", {"a": scores(0, 1), "b": scores(9, 2), "short": short, "few": fewer, "nan": gap}
    )
    rows = comparisons("tiny", [cell], draws=500)
    assert len(rows) == 10
    complete = [row for row in rows if row["verdict"] != "incomplete"]
    assert [(row["method_a"], row["method_b"]) for row in complete] == [("a", "b")]
    assert complete[0]["p_holm"] == complete[0]["p"]
    assert all(row["difference"] is None and row["p_holm"] is None for row in rows
               if row["verdict"] == "incomplete")  # fmt: skip


def test_pass_at_k_is_the_share_of_subsets_with_a_success() -> None:
    for n, c, k in ((5, 2, 2), (6, 1, 3), (4, 4, 2), (4, 0, 2), (7, 5, 3)):
        subsets = list(combinations([i < c for i in range(n)], k))
        assert pass_at_k(n, c, k) == pytest.approx(sum(map(any, subsets)) / len(subsets))


def test_pass_at_k_refuses_what_it_cannot_estimate() -> None:
    for n, c, k in ((5, 0, 6), (0, 0, 1), (5, 6, 1), (5, 1, 0), (5, -1, 1)):
        with pytest.raises(ValueError, match="pass@k needs"):
            pass_at_k(n, c, k)
    assert pass_at_k(5, 0, 6, beyond="reference") == 1.0
    # (1/2 + 1) / 2
    assert mean_pass_at_k([(2, 1), (3, 3)], 1) == 0.75
    with pytest.raises(ValueError, match="k <= n"):
        mean_pass_at_k([(2, 1), (3, 3)], 3)
    with pytest.raises(ValueError, match="no problems"):
        mean_pass_at_k([], 1)


def test_passed_all() -> None:
    assert passed_all([True, 1, True])
    assert passed_all([])
    assert not passed_all([True, -2])
    assert not passed_all([0])


def test_ucb1_by_hand() -> None:
    # N = 4: 1/2 + sqrt 2 sqrt(ln 4 / 2), 3/2 ... and an arm never pulled first
    values = ucb1_scores([1.0, 3.0, 0.0], [2, 2, 0])
    bonus = math.sqrt(2) * math.sqrt(math.log(4) / 2)
    assert values == pytest.approx([0.5 + bonus, 1.5 + bonus, math.inf])
    with pytest.raises(ValueError, match="reward sums"):
        ucb1_scores([1.0], [1, 2])
