"""The margin constraint by step and by run; the flag on series made for it."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from analysis_files import as_option, put_run, settings

from lopd_repro.cli import main
from lopd_repro.report.analysis import analysis_settings
from lopd_repro.report.diagnostics import diagnose
from lopd_repro.report.feasibility import judge_window, window_length

ONE = settings(seeds=[0], methods=["grpo", "lopd"], controls=["lopd_shuffled", "lopd_text"])
M, ETA = 0.05, 0.5


def betas(delta: Sequence[float], margin: float = M) -> list[float]:
    """Dual ascent from 0; each value as it was before the step's own update."""
    found = [0.0]
    for value in delta:
        found.append(max(0.0, found[-1] + ETA * (margin - value)))
    return found[:-1]


def flag(delta: Sequence[float]) -> bool:
    found = judge_window(delta, betas(delta), M)
    assert found is not None
    return found.flag


def test_the_flag_needs_beta_to_grow_while_delta_stays() -> None:
    # Flat near 0: beta gains 0.025 a step and nothing follows.
    assert flag([0.001, -0.001] * 5)
    # One lucky batch above the margin (beta falls once) does not hide it.
    assert flag([0.0, 0.001, 0.0, -0.001, 0.06, 0.0, 0.001, 0.0, -0.001, 0.0])
    # Falling: below 0.
    assert flag([0.03 - 0.004 * i for i in range(10)])
    # Delta follows: rises by 0.004 a step, though it is still below the margin.
    assert not flag([0.004 * i for i in range(10)])
    # The constraint holds: Delta at the margin, its interval around it.
    assert not flag([0.04, 0.06] * 5)
    # Above: beta falls to 0 and stays there.
    assert not flag([0.08] * 10)


def test_a_window_reports_what_the_rule_saw() -> None:
    delta = [0.0, 0.06, 0.0, 0.0, 0.0]
    found = judge_window(delta, betas(delta), M)
    # beta: 0, 0.025, 0.02, 0.045, 0.07; it rose on three of four steps.
    assert found is not None
    assert (found.beta_first, found.beta_last) == (0.0, pytest.approx(0.07))
    assert found.beta_rising == 0.75 and found.below_margin == 0.8
    assert found.delta == pytest.approx(0.012)
    # Centred slope: (-2 * 0 - 1 * 0.06) / 10.
    assert found.delta_trend.slope == pytest.approx(-0.006)
    # Mean 0.012, deviation 0.02683, error 0.012, t(4) = 2.776: up to 0.0453, below the margin.
    assert found.delta_interval.high == pytest.approx(0.012 + 2.7764 * 0.012, abs=1e-5)
    assert found.flag
    assert judge_window([0.0] * 3, [0.0, 0.1, 0.2], M) is None
    assert [window_length(n) for n in (1, 8, 9)] == [1, 4, 5]


def training(delta: Sequence[float], **more: float) -> list[dict[str, Any]]:
    return [
        {
            "delta": d,
            "beta": b,
            "frac_delta_ge_m": 0.25,
            "kl": 0.5 if i < 4 else 0.1,
            "anchor": 0.0,
            "reward_mean": 0.5,
            **more,
        }
        for i, (d, b) in enumerate(zip(delta, betas(delta), strict=True))
    ]


def test_steps_and_runs_are_tabulated(tmp_path: Path) -> None:
    flat, rising = [0.001, -0.001] * 4, [0.004 * i for i in range(8)]
    rows = training(flat, kl_q1=0.2, kl_success=0.1)
    rows[5]["kl_failure"], rows[7]["kl_failure"] = 0.3, 0.5
    put_run(tmp_path, "lopd", 0, {0: 0.5}, rows, margin=M, frozen_composer=False)
    put_run(
        tmp_path, "lopd_shuffled", 0, {0: 0.5}, training(rising), margin=M, frozen_composer=True
    )
    put_run(tmp_path, "lopd_text", 0, {0: 0.5}, [{"kl": 0.1, "reward_mean": 0.5}] * 8)
    report = diagnose(tmp_path, analysis_settings(ONE))
    assert report.problems == [] and len(report.rows) == 16
    own = [row for row in report.rows if row["method"] == "lopd"]
    # Windows of four: none before the fourth step, then flagged throughout.
    assert [row["flag"] for row in own] == [None, None, None, 1, 1, 1, 1, 1]
    assert own[7]["beta"] == pytest.approx(betas(flat)[7]) and own[7]["generations"] == 256
    assert own[0]["kl_failure"] is None and own[0]["kl_q1"] == 0.2 and own[0]["margin"] == M
    first, second = report.summary
    assert (first["first_step"], first["last_step"], first["flag"]) == (5, 8, 1)
    assert first["kl"] == pytest.approx(0.1) and first["kl_first_half"] == pytest.approx(0.5)
    assert first["kl_failure"] == pytest.approx(0.4) and first["kl_q2"] is None
    assert first["delta"] == pytest.approx(0.0) and first["below_margin"] == 1.0
    assert first["beta_last"] == pytest.approx(betas(flat)[7]) and first["frozen_composer"] == 0
    assert second["flag"] == 0 and second["frozen_composer"] == 1
    assert second["delta_slope_100"] == pytest.approx(0.4)
    assert second["label"] == "LOPD, shuffled"


def test_a_missing_run_is_named_and_its_row_is_empty(tmp_path: Path) -> None:
    put_run(tmp_path, "lopd", 0, {0: 0.5}, training([0.0] * 8))
    report = diagnose(tmp_path, analysis_settings(ONE))
    assert [row["method"] for row in report.summary] == ["lopd", "lopd_shuffled", "lopd_text"]
    assert len(report.problems) == 3 and "no margin in method_settings" in report.problems[0]
    assert "lopd_shuffled/seed0/selected.json does not exist" in report.problems[1]
    # Without a margin nothing is judged; what training logged stands.
    assert report.summary[0]["flag"] is None and report.summary[0]["reward_mean"] == 0.5
    assert report.summary[1]["delta"] is None and len(report.rows) == 8


def test_the_command_writes_both_tables(tmp_path: Path) -> None:
    put_run(tmp_path, "lopd", 0, {0: 0.5}, training([0.0] * 8), margin=M)
    out, summary = tmp_path / "diagnostics.csv", tmp_path / "summary.csv"
    options = ["--settings", as_option(settings(seeds=[0], methods=["lopd"]))]
    options += ["--results", str(tmp_path), "--out", str(out), "--summary", str(summary)]
    assert main(["diagnostics", *options]) == 0
    rows = list(csv.DictReader(out.open()))
    assert len(rows) == 8 and rows[7]["flag"] == "1" and rows[0]["flag"] == ""
    (run,) = csv.DictReader(summary.open())
    assert run["flag"] == "1" and run["beta_last"] == "0.1750" and run["kl_q1"] == ""
