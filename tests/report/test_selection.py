"""What validation chose and what test would have: values by hand, gaps named."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from analysis_files import as_option, put_candidates, put_run, put_test, settings

from lopd_repro.cli import main
from lopd_repro.errors import UserError
from lopd_repro.report.analysis import analysis_settings
from lopd_repro.report.selection import select
from lopd_repro.report.selection_rule import AxisRule, read_rule

RULE = Path(__file__).parents[2] / "config/selection_rule.yaml"
MARGINS = {"0.1": "lopd_margin_0.1", "0": "lopd_margin_0", "0.05": "lopd"}
GRID = settings(figure3={"margin": MARGINS, "frozen": None})


def fill(root: Path) -> None:
    # Validation, best step of each seed: m = 0: 0.5, 0.7 (mean 0.6); 0.05: 0.8, 0.6 (0.7);
    # 0.1: 0.6, 0.8 (0.7). Test means: 0.25, 0.5, 0.625.
    put_run(root, "lopd_margin_0", 0, {0: 0.9, 1: 0.5, 2: 0.4})
    put_run(root, "lopd_margin_0", 1, {0: 0.9, 1: 0.5, 2: 0.7})
    put_run(root, "lopd", 0, {0: 0.4, 1: 0.7, 2: 0.8})
    put_run(root, "lopd", 1, {0: 0.4, 1: 0.6, 2: 0.6})
    put_run(root, "lopd_margin_0.1", 0, {1: 0.6})
    put_run(root, "lopd_margin_0.1", 1, {1: 0.8})
    for seed in (0, 1):
        put_test(root, "lopd_margin_0", seed, {"a": 0.0, "b": 0.5})
        put_test(root, "lopd", seed, {"a": 0.5, "b": 0.5})
        put_test(root, "lopd_margin_0.1", seed, {"a": 1.0, "b": 0.25})


def rows(root: Path, values: dict[str, Any], **rules: AxisRule) -> list[dict[str, Any]]:
    return select(root, analysis_settings(values), rules or read_rule(RULE)).rows


def test_a_grid_is_chosen_on_validation_and_tests_choice_stands_beside(tmp_path: Path) -> None:
    fill(tmp_path)
    report = select(tmp_path, analysis_settings(GRID), {"margin": read_rule(RULE)["margin"]})
    (row,) = report.rows
    assert report.problems == []
    assert row["candidates"] == "0; 0.05; 0.1" and row["configured"] == "0.05"
    assert row["validation_scores"] == "0=60.00; 0.05=70.00; 0.1=70.00"
    # 0.05 and 0.1 tie: the smallest.
    assert row["chosen_on_validation"] == "0.05" and row["validation_score"] == 70.0
    assert row["test_scores"] == "0=25.00; 0.05=50.00; 0.1=62.50" and row["test_score"] == 50.0
    assert row["chosen_on_test"] == "0.1" and row["printed_if_chosen_on_test"] == 62.5
    assert row["optimism"] == 12.5 and (row["n_seeds"], row["n_tasks"]) == (2, 2)
    assert 0.0 <= row["optimism_ci_low"] <= 12.5 <= row["optimism_ci_high"] <= 50.0
    # Halves are task a and task b. On a: 0.1 leads 0.05 by 50, on b it is 25 behind and 0.05 is
    # the first best (0 is equal): lead 0 on both halves. Optimism (50 + 0) / 2, gain (-25 + 0) / 2.
    # On b the first of equals is m = 0 (50), and it is 50 behind on a: gain (-25 - 50) / 2.
    assert row["halves_optimism"] == pytest.approx(25.0)
    assert row["halves_real_gain"] == pytest.approx(-37.5)
    assert row["halves_winners_curse"] == pytest.approx(62.5)
    assert report.chosen == {"margin": {"value": 0.05, "method": "lopd"}}


def test_ties_and_one_standard_error_follow_the_rule(tmp_path: Path) -> None:
    fill(tmp_path)
    largest = AxisRule("selected_validation_reward", "largest")
    assert rows(tmp_path, GRID, margin=largest)[0]["chosen_on_validation"] == "0.1"
    # The best mean, 0.7 with standard error 0.1, reaches down to 0.6: the smallest value's mean.
    lenient = AxisRule("selected_validation_reward", "smallest", one_standard_error=True)
    assert rows(tmp_path, GRID, margin=lenient)[0]["chosen_on_validation"] == "0"
    assert lenient.choose(np.array([[59.0, 60.9], [80.0, 60.0], [60.0, 80.0]])) == 1


def test_a_missing_candidate_empties_what_rests_on_it(tmp_path: Path) -> None:
    fill(tmp_path)
    values = settings(figure3={"margin": {**MARGINS, "0.2": "lopd_margin_0.2"}, "frozen": None})
    put_run(tmp_path, "lopd_margin_0.2", 0, {1: 0.1})
    put_run(tmp_path, "lopd_margin_0.2", 1, {1: 0.1})
    rules = {"margin": read_rule(RULE)["margin"]}
    report = select(tmp_path, analysis_settings(values), rules)
    (row,) = report.rows
    assert row["chosen_on_validation"] == "0.05" and row["validation_score"] == 70.0
    assert row["chosen_on_test"] is None and row["test_score"] is None and row["optimism"] is None
    assert len(report.problems) == 1 and "lopd_margin_0.2/seed0.jsonl" in report.problems[0]
    put_test(tmp_path, "lopd_margin_0.2", 0, {"a": 0.0, "b": 0.0})
    put_test(tmp_path, "lopd_margin_0.2", 1, {"a": 0.0, "c": 0.0})
    report = select(tmp_path, analysis_settings(values), rules)
    assert "different tasks" in report.problems[0] and report.rows[0]["test_scores"] is None
    (tmp_path / "runs/tool_use/small/lopd/seed1/selected.json").unlink()
    report = select(tmp_path, analysis_settings(values), rules)
    assert report.rows[0]["chosen_on_validation"] is None and report.chosen == {"margin": None}
    assert any("lopd/seed1/selected.json" in line for line in report.problems)


def test_checkpoints_are_chosen_in_each_seed_and_summed_up(tmp_path: Path) -> None:
    put_run(tmp_path, "lopd", 0, {0: 0.4, 1: 0.7, 2: 0.8})
    put_run(tmp_path, "lopd", 1, {0: 0.4, 1: 0.6, 2: 0.6})
    # Step 0 is no candidate, though it is the best on test.
    put_candidates(
        tmp_path,
        "lopd",
        0,
        {0: {"a": 1.0, "b": 1.0}, 1: {"a": 0.5, "b": 0.5}, 2: {"a": 0.25, "b": 0.25}},
    )
    put_candidates(
        tmp_path,
        "lopd",
        1,
        {1: {"a": 0.75, "b": 0.5}, 2: {"a": 0.5, "b": 0.75}, 3: {"a": 1, "b": 1}},
    )
    values = settings(methods=["vanilla", "lopd"])
    rules = {"checkpoint": read_rule(RULE)["checkpoint"]}
    report = select(tmp_path, analysis_settings(values), rules)
    assert report.problems == []
    first, second, summary = report.rows
    assert [row["seed"] for row in report.rows] == [0, 1, "all"]
    assert first["candidates"] == "1; 2" and first["rule"] == "highest, earliest"
    assert (first["chosen_on_validation"], first["validation_score"]) == (2, 80.0)
    assert (first["test_score"], first["chosen_on_test"]) == (25.0, 1)
    # Step 1 is 25 better on both tasks: the same in every draw.
    assert first["optimism"] == first["optimism_ci_low"] == first["optimism_ci_high"] == 25.0
    assert first["halves_real_gain"] == pytest.approx(25.0)
    assert (second["chosen_on_validation"], second["chosen_on_test"]) == (1, 1)
    assert second["optimism"] == 0.0
    # Both tasks b (a quarter of the draws) puts step 2 ahead by 25.
    assert (second["optimism_ci_low"], second["optimism_ci_high"]) == (0.0, 25.0)
    assert summary["chosen_on_validation"] == "seed 0: 2; seed 1: 1"
    assert summary["chosen_on_test"] == "seed 0: 1; seed 1: 1"
    assert (summary["validation_score"], summary["test_score"]) == (70.0, (25.0 + 62.5) / 2)
    assert summary["optimism"] == 12.5 and summary["n_seeds"] == 2
    assert report.chosen == {"checkpoint": {"lopd": {"0": 2, "1": 1}}}


def test_absent_candidates_and_a_choice_by_another_rule_are_named(tmp_path: Path) -> None:
    put_run(tmp_path, "lopd", 0, {0: 0.4, 1: 0.8, 2: 0.8}, selected=2)
    put_run(tmp_path, "lopd", 1, {0: 0.4, 1: 0.6, 2: 0.5})
    put_candidates(tmp_path, "lopd", 0, {1: {"a": 0.5}, 2: {"a": 0.5}})
    values = settings(methods=["lopd"], controls=["lopd_shuffled"])
    rules = {"checkpoint": read_rule(RULE)["checkpoint"]}
    report = select(tmp_path, analysis_settings(values), rules)
    assert report.rows == [] and len(report.problems) == 2
    assert "selects step 2, the earliest best is 1" in report.problems[0]
    assert "lopd/seed1.jsonl does not exist" in report.problems[1]
    put_candidates(tmp_path, "lopd", 1, {1: {"a": 0.5}})
    report = select(tmp_path, analysis_settings(values), rules)
    assert "no rows of step 2" in report.problems[1]
    put_candidates(tmp_path, "lopd", 1, {1: {"a": 0.5}, 2: {"b": 0.5}})
    report = select(tmp_path, analysis_settings(values), rules)
    assert "other tasks at step 2" in report.problems[1]
    put_run(tmp_path, "lopd", 1, {0: 0.4})
    report = select(tmp_path, analysis_settings(values), rules)
    assert "validated no step after step 0" in report.problems[1]
    put_run(tmp_path, "lopd", 1, {0: 0.4, 1: 0.6, 2: 0.5})
    # One seed of two: its row stands, the summary stays empty.
    put_candidates(tmp_path, "lopd", 1, {1: {"a": 0.5}, 2: {"a": 0.75}})
    report = select(tmp_path, analysis_settings(values), rules)
    assert [row["seed"] for row in report.rows] == [1, "all"]
    assert report.rows[0]["optimism"] == 25.0 and report.rows[1]["optimism"] is None


def test_the_command_writes_table_choices_and_problems(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(tmp_path)
    names = ("selection.csv", "chosen.json", "selection.log")
    out = [tmp_path / name for name in names]
    options = ["--settings", as_option(GRID), "--rule", str(RULE), "--results", str(tmp_path)]
    options += ["--out", str(out[0]), "--chosen", str(out[1]), "--problems", str(out[2])]
    assert main(["selection", *options]) == 0
    (row,) = csv.DictReader(out[0].open())
    assert row["choice"] == "margin" and row["optimism"] == "12.5000"
    assert json.loads(out[1].read_text()) == {
        "small": {"margin": {"method": "lopd", "value": 0.05}}
    }
    # LOPD has no candidates' rows, the others were not run.
    problems = out[2].read_text().splitlines()
    assert problems == capsys.readouterr().err.splitlines()
    assert any("envscaler_candidates/tool_use/small/lopd/seed0.jsonl" in p for p in problems)
    assert any("runs/tool_use/small/grpo/seed0/selected.json" in p for p in problems)
    first = [path.read_bytes() for path in out]
    assert main(["selection", *options]) == 0
    assert [path.read_bytes() for path in out] == first


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "found no choice, allowed: checkpoint, margin, latents, retrieved"),
        ("lr: {score: a, ties: b}", "found 'lr', allowed: checkpoint"),
        ("margin: {score: test_reward, ties: smallest}", "allowed: selected_validation_reward"),
        ("margin: {score: selected_validation_reward, ties: first}", "allowed: smallest, largest"),
        ("margin: {ties: smallest}", "margin.score: missing"),
        ("margin: {score: 1, ties: smallest}", "margin.score: found 1, allowed: str"),
        ("checkpoint: {score: validation_reward, ties: latest}", "allowed: earliest"),
        (
            "checkpoint: {score: validation_reward, ties: earliest, one_standard_error: true}",
            "checkpoint.one_standard_error: found True, allowed: false",
        ),
        ("margin: [", "not a readable YAML file"),
    ],
)
def test_a_bad_rule_file_is_refused_in_one_line(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "rule.yaml"
    path.write_text(text)
    with pytest.raises(UserError) as caught:
        read_rule(path)
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_settings_that_cannot_be_used_are_refused() -> None:
    with pytest.raises(UserError, match=r"settings\.figure3\.margin: found \{'big': 'lopd'\}"):
        analysis_settings(settings(figure3={"margin": {"big": "lopd"}})).grid("margin")
    with pytest.raises(UserError, match=r"settings\.seeds: found none"):
        analysis_settings(settings(seeds=[]))
