"""LOPD against its controls: signs, pairs and words."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest
from analysis_files import as_option, put_test, settings

from lopd_repro.cli import main
from lopd_repro.errors import UserError
from lopd_repro.report.analysis import analysis_settings
from lopd_repro.report.controls import control_rows, verdict_text

ONE = settings(controls=["lopd_shuffled", "lopd_frozen"])
TASKS = [f"t{i}" for i in range(8)]


def put(root: Path, method: str, first: float, second: float) -> None:
    """Two seeds; every task has the seed's score."""
    for seed, score in enumerate((first, second)):
        put_test(root, method, seed, dict.fromkeys(TASKS, score))


def fill(root: Path, shuffled: tuple[float, float] = (0.5, 0.625)) -> None:
    put(root, "vanilla", 0.25, 0.25)
    put(root, "lopd", 0.75, 0.875)
    put(root, "lopd_shuffled", *shuffled)
    put(root, "lopd_frozen", 0.75, 0.75)


def rows(root: Path, values: dict[str, Any] = ONE) -> dict[str, dict[str, Any]]:
    return {row["control"]: row for row in control_rows(root, analysis_settings(values)).rows}


def words(root: Path, **changes: Any) -> str:
    made = analysis_settings({**ONE, **changes})
    return verdict_text(made, control_rows(root, made).rows)


def test_differences_are_lopd_minus_control_whatever_the_order(tmp_path: Path) -> None:
    fill(tmp_path)
    found = rows(tmp_path)
    assert list(found) == ["vanilla", "lopd_shuffled", "lopd_frozen"]
    vanilla, shuffled, frozen = found.values()
    # Seed differences 50 and 62.5: mean 56.25, draws 50, 56.25 or 62.5.
    assert (vanilla["difference"], vanilla["ci_low"], vanilla["ci_high"]) == (56.25, 50.0, 62.5)
    assert vanilla["lopd"] == 81.25 and vanilla["control_score"] == 25.0
    # Deviation of 75 and 87.5 with n - 1: 12.5 / sqrt(2).
    assert vanilla["lopd_std"] == pytest.approx(12.5 / 2**0.5) and vanilla["control_std"] == 0.0
    # 25 in both seeds, so in every draw; p is the smallest that 10,000 draws allow, times three.
    assert shuffled["difference"] == shuffled["ci_low"] == shuffled["ci_high"] == 25.0
    assert shuffled["p"] == pytest.approx(2 / 10_001)
    assert shuffled["p_holm"] == pytest.approx(6 / 10_001)
    assert (vanilla["verdict"], shuffled["verdict"]) == ("lopd_higher", "lopd_higher")
    # 0 and 12.5: a quarter of the draws is 0.
    assert (frozen["difference"], frozen["ci_low"], frozen["verdict"]) == (6.25, 0.0, "undecided")
    # Control over vanilla: 25 and 37.5, mean 31.25 of LOPD's 56.25.
    assert shuffled["over_vanilla"] == 31.25 and shuffled["over_vanilla_ci_low"] == 25.0
    assert shuffled["over_vanilla_ci_high"] == 37.5
    assert shuffled["gain_kept"] == pytest.approx(31.25 / 56.25)
    assert vanilla["over_vanilla"] is None and vanilla["gain_kept"] is None
    assert (shuffled["n_seeds"], shuffled["n_tasks"], shuffled["label"]) == (2, 8, "LOPD, shuffled")


def test_a_control_that_was_not_measured_is_named_and_empty(tmp_path: Path) -> None:
    fill(tmp_path)
    (tmp_path / "eval/envscaler/tool_use/small/lopd_frozen/seed1.jsonl").unlink()
    report = control_rows(tmp_path, analysis_settings(ONE))
    (problem,) = report.problems
    assert "lopd_frozen/seed1.jsonl does not exist" in problem
    frozen = report.rows[-1]
    assert frozen["verdict"] == "incomplete" and frozen["difference"] is None
    assert frozen["control_score"] is None and frozen["gain_kept"] is None
    assert frozen["lopd"] == 81.25
    # The family has one member less.
    assert report.rows[1]["p_holm"] == pytest.approx(4 / 10_001)
    (tmp_path / "eval/envscaler/tool_use/small/vanilla/seed0.jsonl").unlink()
    shuffled = rows(tmp_path)["lopd_shuffled"]
    assert shuffled["difference"] == 25.0 and shuffled["over_vanilla"] is None
    assert shuffled["gain_kept"] is None


def test_other_tasks_cannot_be_paired_and_are_named(tmp_path: Path) -> None:
    fill(tmp_path)
    for seed in (0, 1):
        put_test(tmp_path, "lopd_frozen", seed, {"other": 0.5})
    report = control_rows(tmp_path, analysis_settings(ONE))
    assert report.problems == ["not paired: lopd_frozen was tested on other tasks than lopd"]
    assert report.rows[-1]["verdict"] == "incomplete" and report.rows[-1]["control_score"] == 50.0


def test_the_verdict_says_what_was_found_and_what_it_is_not(tmp_path: Path) -> None:
    fill(tmp_path)
    text = words(tmp_path)
    assert text.startswith(
        "**Decisive control at test scale (LOPD, shuffled): LOPD scores higher.** On 8 EnvScaler "
    )
    assert "81.25 ± 8.84 and the control 56.25 ± 8.84" in text
    assert "+25.00 points, 95% interval [25.00, 25.00], p = 0.0002 (0.0006 after Holm's" in text
    assert "over 3 comparisons" in text and "56% of LOPD's lead" in text
    assert "+31.25 points from the untrained policy ([25.00, 37.50])" in text
    assert text.endswith("**This is no evidence about the paper.** Made up.\n")
    assert text.count("\n") == 1 and "optimistic" in text
    assert "no evidence" not in words(tmp_path, scale="paper")


@pytest.mark.parametrize(
    ("shuffled", "outcome"),
    [((0.875, 1.0), "the control scores higher"), ((0.875, 0.875), "undecided")],
)
def test_the_other_verdicts(shuffled: tuple[float, float], outcome: str, tmp_path: Path) -> None:
    fill(tmp_path, shuffled)
    assert f": {outcome}.**" in words(tmp_path)


def test_without_the_decisive_control_there_is_no_verdict(tmp_path: Path) -> None:
    fill(tmp_path)
    (tmp_path / "eval/envscaler/tool_use/small/lopd_shuffled/seed0.jsonl").unlink()
    text = words(tmp_path)
    assert ": no verdict.**" in text and "no evidence about the paper" in text
    with pytest.raises(UserError, match="found 'lopd_shuffled', allowed: lopd_frozen"):
        words(tmp_path, controls=["lopd_frozen"])


def test_the_command_writes_table_and_verdict(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(tmp_path)
    (tmp_path / "eval/envscaler/tool_use/small/lopd_frozen/seed1.jsonl").unlink()
    out, verdict = tmp_path / "controls.csv", tmp_path / "verdict.md"
    options = ["--settings", as_option(ONE), "--results", str(tmp_path), "--out", str(out)]
    assert main(["controls", *options, "--verdict", str(verdict)]) == 0
    assert "lopd_frozen/seed1.jsonl" in capsys.readouterr().err
    found = list(csv.DictReader(out.open()))
    assert [row["verdict"] for row in found] == ["lopd_higher", "lopd_higher", "incomplete"]
    assert verdict.read_text().startswith("**Decisive control")
    options += ["--verdict", str(verdict), "--decisive", "lopd_text"]
    assert main(["controls", *options]) == 2
    assert "--decisive: found 'lopd_text'" in capsys.readouterr().err
