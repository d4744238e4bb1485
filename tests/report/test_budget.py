"""Generations until a rival's final score, by hand: reached, not reached, and the claim."""

from __future__ import annotations

import csv
import math
from pathlib import Path
from typing import Any

import pytest
from analysis_files import LABELS, as_option, put_run, settings

from lopd_repro.cli import main
from lopd_repro.errors import UserError
from lopd_repro.files import write_jsonl
from lopd_repro.report.analysis import analysis_settings
from lopd_repro.report.budget import Reached, budget, reached
from lopd_repro.report.budget_claim import BudgetClaim, read_claim
from lopd_repro.report.runs import Validated

CLAIMS = Path(__file__).parents[2] / "paper_tables/claims.yaml"
THREE = settings(seeds=[0, 1, 2])
CLAIM = BudgetClaim("C02", "less than 30%", "lopd", ("grpo", "skill_sd"), 0.3)


def curve(*rewards: float) -> dict[int, float]:
    """Validated every 10 steps of 32 generations."""
    return {10 * i: reward for i, reward in enumerate(rewards)}


def fill(root: Path, lopd: tuple[dict[int, float], ...] | None = None) -> None:
    for seed in range(3):
        put_run(root, "grpo", seed, curve(0.5, 0.625, 0.75, 0.8125, 0.875))
        put_run(root, "skill_sd", seed, curve(0.5, 0.5, 0.5, 0.5, 0.75), inputs={"skills": {}})
    fast, slow, never = (
        curve(0.5, 0.875, 0.875, 0.75, 1.0),
        curve(0.5, 0.8, 0.9, 0.9, 0.9),
        curve(0.5, 0.5, 0.5, 0.625, 0.8125),
    )
    for seed, own in enumerate(lopd or (fast, slow, never)):
        put_run(root, "lopd", seed, own, inputs={"bank": {}, "retrieved": {}})
    for name, rollouts in (("bank", 640), ("skills", 1280)):
        path = root / "backbones/small" / f"{name}.jsonl"
        write_jsonl(path, [], rollouts=rollouts)


def find(rows: list[dict[str, Any]], **keys: str) -> dict[str, Any]:
    (row,) = [row for row in rows if all(row[key] == value for key, value in keys.items())]
    return row


def test_the_first_validated_step_at_the_target_is_taken_without_interpolation() -> None:
    points = [Validated(s, 32 * s, r) for s, r in ((0, 0.5), (10, 0.7), (20, 0.6), (30, 0.8))]
    assert reached(points, 0.5) == Reached(0.0, 0.0)
    assert reached(points, 0.7) == Reached(320.0, 0.0)
    assert reached(points, 0.7, strictly=True) == Reached(960.0, 640.0)
    assert reached(points, 0.1 + 0.7) == Reached(960.0, 640.0)
    assert reached(points, 0.9) == Reached(math.inf, 960.0)


def test_generations_share_and_ratio_keep_a_seed_that_never_got_there(tmp_path: Path) -> None:
    fill(tmp_path)
    report = budget(tmp_path, analysis_settings(THREE))
    assert report.problems == []
    row = find(report.rows, against="pair", method="lopd", rival="grpo", target="final")
    # GRPO ends at 0.875 after 1280. LOPD is there at 320, 640, never.
    assert row["generations_by_seed"] == "seed 0: 320; seed 1: 640; seed 2: not reached"
    assert (row["n_seeds"], row["n_reached"], row["target_score"]) == (3, 2, 87.5)
    bounds = [row["generations" + end] for end in ("", "_ci_low", "_ci_high")]
    assert bounds == ["640", "320", "not reached"]
    assert row["rival_budget"] == row["rival_generations"] == "1280"
    assert [row["share" + e] for e in ("", "_ci_low", "_ci_high")] == [0.5, 0.25, "not reached"]
    assert [row["ratio" + e] for e in ("", "_ci_low", "_ci_high")] == [0.5, 0.25, "not reached"]
    # Below before: 0, 320, and all 1280 of the seed that never got there.
    assert row["generations_below"] == "320" and row["share_below_ci_low"] == 0.0
    # Means of LOPD: 0.725, 0.7583, 0.7583, 0.904 at 320, 640, 960, 1280.
    assert row["generations_of_means"] == "1280"
    assert row["criterion"] == "reaches" and row["verdict"] is None
    assert {row["method"] for row in report.rows} == {"grpo", "skill_sd", "lopd"}


def test_targets_below_the_end_ask_for_a_share_of_the_rivals_gain(tmp_path: Path) -> None:
    fill(tmp_path)
    rows = budget(tmp_path, analysis_settings(THREE)).rows
    # Gain 0.375: 95% is 0.85625, 90% 0.8375; GRPO itself is at both only at 1280.
    row = find(rows, against="pair", method="lopd", rival="grpo", target="90% of gain")
    assert row["target_score"] == pytest.approx(83.75)
    assert row["generations_by_seed"] == "seed 0: 320; seed 1: 640; seed 2: not reached"
    row = find(rows, against="pair", method="grpo", rival="skill_sd", target="95% of gain")
    # 0.5 + 0.95 * 0.25 = 0.7375: GRPO at 640 in every seed, Skill-SD itself at 1280.
    assert (row["generations"], row["share"], row["ratio"]) == ("640", 0.5, 0.5)


def test_the_best_rival_has_the_highest_mean_final_score(tmp_path: Path) -> None:
    fill(tmp_path)
    rows = budget(tmp_path, analysis_settings(THREE)).rows
    best = {row["method"]: row["rival"] for row in rows if row["against"] == "best rival"}
    # Final means: GRPO 0.875, Skill-SD 0.75, LOPD (1 + 0.9 + 0.8125) / 3 = 0.904.
    assert best == {"grpo": "lopd", "skill_sd": "lopd", "lopd": "grpo"}
    assert sum(row["against"] == "best rival" for row in rows) == 9
    assert sum(row["against"] == "pair" for row in rows) == 18


def verdicts(root: Path, *lopd: dict[int, float]) -> dict[tuple[str, str], str | None]:
    fill(root, lopd)
    rows = budget(root, analysis_settings(THREE), CLAIM).rows
    claims = [row for row in rows if row["against"] == "claim"]
    assert all(row["criterion"] == "surpasses" and row["claim"] == "C02" for row in claims)
    return {(row["rival"], row["counted"]): row["verdict"] for row in claims}


def test_the_claim_is_supported_undecided_or_not(tmp_path: Path) -> None:
    fast = curve(0.5, 0.9, 0.9, 0.9, 0.9)
    # Above both rivals at 320 of 1280, a quarter, in every seed.
    found = verdicts(tmp_path / "a", fast, fast, fast)
    assert [found[r, "training"] for r in ("grpo", "skill_sd", "grpo; skill_sd")] == [
        "supported"
    ] * 3
    # With base rollouts: (320 + 640) / 1280 and, of Skill-SD, 960 / (1280 + 1280) = 0.375. Still
    # below at 640 / 1280 = 0.5, but only at 640 / 2560 = 0.25 of Skill-SD's.
    both = "training and base rollouts"
    assert found["grpo", both] == "not supported" and found["skill_sd", both] == "undecided"
    assert found["grpo; skill_sd", both] == "not supported"
    # GRPO's score is equalled at 320 and surpassed at 640: somewhere between 25% and 50%.
    equal = curve(0.5, 0.875, 0.9, 0.9, 0.9)
    found = verdicts(tmp_path / "b", equal, fast, fast)
    assert found["grpo", "training"] == "undecided" and found["skill_sd", "training"] == "supported"
    assert found["grpo; skill_sd", "training"] == "undecided"
    # Still below at 640, half of the budget, in every seed.
    late, never = curve(0.5, 0.8, 0.8, 0.9, 0.9), curve(0.5, 0.8, 0.8, 0.8, 0.8)
    found = verdicts(tmp_path / "c", late, never, never)
    assert found["grpo", "training"] == "not supported"
    assert found["grpo; skill_sd", "training"] == "not supported"


def test_what_is_missing_is_named_and_empty(tmp_path: Path) -> None:
    fill(tmp_path)
    (tmp_path / "runs/tool_use/small/grpo/seed1/metrics.jsonl").unlink()
    (tmp_path / "backbones/small/bank.jsonl").unlink()
    report = budget(tmp_path, analysis_settings(THREE), CLAIM)
    assert len(report.problems) == 2
    assert "grpo/seed1/metrics.jsonl does not exist" in report.problems[0]
    assert "base rollouts not counted" in report.problems[1]
    row = find(report.rows, against="pair", method="lopd", rival="grpo", target="final")
    assert row["generations"] is None and row["n_reached"] is None
    claims = [row for row in report.rows if row["against"] == "claim"]
    assert [row["verdict"] for row in claims] == [None, "undecided", None, None, None, None]
    best = find(report.rows, against="best rival", method="lopd", target="final")
    assert best["rival"] == "skill_sd" and best["n_reached"] == 3


def test_rollouts_that_two_files_share_are_counted_once(tmp_path: Path) -> None:
    fill(tmp_path)
    for seed in range(3):
        inputs = {"bank": {}, "demonstrations": {}, "skills": {}}
        put_run(tmp_path, "lopd", seed, curve(0.5, 0.9), inputs=inputs)
    rows = budget(tmp_path, analysis_settings(THREE), CLAIM).rows
    both = find(rows, against="claim", rival="grpo", counted="training and base rollouts")
    # Bank and demonstrations read 640 of the 1280 rollouts that the skills read: 1280 in all.
    assert both["share"] == pytest.approx((320 + 1280) / 1280)


def test_a_run_that_never_validated_is_named(tmp_path: Path) -> None:
    fill(tmp_path)
    put_run(tmp_path, "grpo", 2, {})
    report = budget(tmp_path, analysis_settings(THREE))
    assert report.problems == [f"not validated: {tmp_path / 'runs/tool_use/small/grpo/seed2'}"]
    assert (
        find(report.rows, against="pair", method="grpo", rival="lopd", target="final")[
            "generations"
        ]
        is None
    )


def test_the_claim_is_read_from_the_ledger(tmp_path: Path) -> None:
    found = read_claim(CLAIMS, "C02", LABELS)
    assert (found.method, found.rivals, found.limit) == ("lopd", ("grpo", "skill_sd"), 0.3)
    with pytest.raises(UserError, match="--claim: found C01, allowed: C02"):
        read_claim(CLAIMS, "C01", LABELS)
    with pytest.raises(UserError, match=r"C02 names 'GRPO', allowed: LOPD"):
        read_claim(CLAIMS, "C02", {"lopd": "LOPD"})
    broken = tmp_path / "claims.yaml"
    broken.write_text("claims:\n  - {id: C02, kind: budget, curve: {file: f, series: LOPD}}\n")
    with pytest.raises(UserError, match="not a claim about budgets"):
        read_claim(broken, "C02", LABELS)
    broken.write_text("[]")
    with pytest.raises(UserError, match="not a readable ledger"):
        read_claim(broken, "C02", LABELS)


def test_the_command_writes_the_same_bytes_twice(tmp_path: Path) -> None:
    fill(tmp_path)
    out = [tmp_path / "budget.csv", tmp_path / "budget.log"]
    options = ["--settings", as_option(THREE), "--results", str(tmp_path), "--claims", str(CLAIMS)]
    options += ["--out", str(out[0]), "--problems", str(out[1])]
    assert main(["budget", *options]) == 0
    rows = list(csv.DictReader(out[0].open()))
    assert len(rows) == 18 + 9 + 6 and out[1].read_text() == ""
    first = out[0].read_bytes()
    assert b"not reached" in first
    assert main(["budget", *options]) == 0 and out[0].read_bytes() == first
