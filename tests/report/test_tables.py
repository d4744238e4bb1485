"""Tables from evaluation files: values derived by hand, empty cells named, bounds checked."""

from __future__ import annotations

import csv
import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from lopd_repro.cli import main
from lopd_repro.errors import UserError
from lopd_repro.files import write_jsonl
from lopd_repro.report.layout import TABLE1, Metric, ReleasedRow, TableSettings, layout
from lopd_repro.report.render import html_page, markdown_page
from lopd_repro.report.scores import evaluation_file, read_cell
from lopd_repro.report.table import build_table, comparison_cells

ENVSCALER = Metric("envscaler", "EnvScaler", "envscaler")
SETTINGS = TableSettings(
    scale="test",
    backbones=("small",),
    methods=("vanilla", "grpo"),
    labels={"vanilla": "Vanilla", "grpo": "GRPO"},
    paper_backbones={"small": "Qwen3-4B"},
    seeds=(0, 1),
)
REPORTED = {("Qwen3-4B", "GRPO", "envscaler"): "61.80"}


def put(
    root: Path,
    method: str,
    seed: int,
    scores: dict[str, list[float]],
    benchmark: str = "envscaler",
    **more: Any,
) -> Path:
    rows = [
        {"task_id": task, "repeat": i, "score": s, "status": "ok", "noop_reward": 0.25, **more}
        for task, repeats in scores.items()
        for i, s in enumerate(repeats)
    ]
    path = evaluation_file(root, benchmark, "tool_use", "small", method, seed)
    write_jsonl(path, rows, expected=len(rows), data="made up", scorer="by hand")
    return path


def fill(root: Path) -> None:
    # Seed means: vanilla (0.5 + 0.25) / 2 = 0.375 and 0.125; GRPO 0.75 and 0.5.
    put(root, "vanilla", 0, {"a": [0.0, 1.0], "b": [0.25, 0.25]})
    put(root, "vanilla", 1, {"a": [0.25, 0.25], "b": [0.0, 0.0]})
    put(root, "grpo", 0, {"a": [1.0, 1.0], "b": [0.5, 0.5]})
    put(root, "grpo", 1, {"a": [1.0, 0.0], "b": [0.5, 0.5]})


def test_a_cell_is_the_mean_over_seeds_with_the_deviation_between_them(tmp_path: Path) -> None:
    fill(tmp_path)
    table = build_table(tmp_path, TABLE1, SETTINGS, REPORTED)
    vanilla, grpo = table.rows
    # Mean of 37.5 and 12.5; deviation with n-1: |37.5 - 12.5| / sqrt(2).
    assert vanilla["envscaler"] == pytest.approx(25.0)
    assert vanilla["envscaler_std"] == pytest.approx(25.0 / 2**0.5)
    assert grpo["envscaler"] == pytest.approx(62.5)
    assert vanilla["envscaler_ci_low"] <= 25.0 <= vanilla["envscaler_ci_high"]
    assert vanilla["envscaler_ci_low"] < vanilla["envscaler_ci_high"]
    assert grpo["envscaler_reported"] == 61.8
    assert vanilla["envscaler_reported"] is None
    assert grpo["n_seeds"] == 2
    assert grpo["bfcl_base"] is None
    assert grpo["bfcl_avg"] is None
    assert any("GRPO / bfcl_base: not run" in line for line in table.problems)


def test_a_released_checkpoint_is_a_row_of_its_own_and_no_seed_of_ours(tmp_path: Path) -> None:
    fill(tmp_path)
    put(tmp_path, "theirs", 0, {"a": [1.0, 0.5], "b": [0.0, 0.0]})
    one = ReleasedRow("small", "theirs", "GRPO (released)", "GRPO")
    settings = dataclasses.replace(SETTINGS, released=(one,))
    table = build_table(tmp_path, TABLE1, settings, REPORTED)
    # The other rows are what they are without it.
    assert table.rows[:2] == build_table(tmp_path, TABLE1, SETTINGS, REPORTED).rows
    row = table.rows[2]
    assert (row["method"], row["n_seeds"]) == ("GRPO (released)", 1)
    # Tasks 0.75 and 0: mean 0.375; one checkpoint has no deviation, and an interval over tasks.
    assert row["envscaler"] == pytest.approx(37.5)
    assert row["envscaler_std"] is None
    assert (row["envscaler_ci_low"], row["envscaler_ci_high"]) == pytest.approx((0.0, 75.0))
    assert row["envscaler_reported"] == 61.8
    (cell,) = comparison_cells(tmp_path, TABLE1, settings)
    assert set(cell.scores) == {"vanilla", "grpo"}
    page = ("", {}, {"small": "Small"})
    for text in (markdown_page, html_page):
        said = text(TABLE1, settings, table, *page)
        assert "GRPO (released), one checkpoint" in said
        assert "none of this run" in said and "what the paper prints for GRPO" in said


def test_averages_follow_the_papers_rule(tmp_path: Path) -> None:
    fill(tmp_path)
    for method in SETTINGS.methods:
        for seed in SETTINGS.seeds:
            rows = {"s": [1.0], "t": [0.0]}
            path = put(tmp_path, method, seed, rows, "acebench", category="multi_step")
            kept = [json.loads(line) for line in path.read_text().splitlines()[:-1]]
            kept += [
                {
                    "task_id": "u",
                    "repeat": 0,
                    "score": 0.25,
                    "status": "ok",
                    "category": "multi_turn",
                }
            ]
            write_jsonl(path, kept, expected=len(kept))
    row = build_table(tmp_path, TABLE1, SETTINGS, {}).rows[0]
    assert row["ace_multi_step"] == pytest.approx(50.0)
    assert row["ace_multi_turn"] == pytest.approx(25.0)
    # 20 multi-step and 30 multi-turn tasks: (20 * 50 + 30 * 25) / 50.
    assert row["ace_avg"] == pytest.approx(35.0)


def test_a_missing_seed_or_row_empties_the_cell(tmp_path: Path) -> None:
    fill(tmp_path)
    evaluation_file(tmp_path, "envscaler", "tool_use", "small", "grpo", 1).unlink()
    table = build_table(tmp_path, TABLE1, SETTINGS, REPORTED)
    assert table.rows[1]["envscaler"] is None
    assert table.rows[0]["envscaler"] is not None
    path = put(tmp_path, "grpo", 1, {"a": [1.0], "b": [1.0]})
    rows = [json.loads(line) for line in path.read_text().splitlines()[:-1]]
    write_jsonl(path, rows[:1], expected=2)
    cell = read_cell(tmp_path, ENVSCALER, "tool_use", "small", "grpo", (0, 1))
    assert cell.problem is not None
    assert "1 of 2 rows" in cell.problem


def test_seeds_that_cover_other_tasks_empty_the_cell(tmp_path: Path) -> None:
    fill(tmp_path)
    put(tmp_path, "grpo", 1, {"a": [1.0], "c": [1.0]})
    cell = read_cell(tmp_path, ENVSCALER, "tool_use", "small", "grpo", (0, 1))
    assert cell.problem is not None
    assert "different tasks" in cell.problem


def test_a_partial_set_or_mixed_data_empty_the_cell(tmp_path: Path) -> None:
    fill(tmp_path)
    path = put(tmp_path, "grpo", 1, {"a": [1.0], "b": [1.0]})
    rows = [json.loads(line) for line in path.read_text().splitlines()[:-1]]
    write_jsonl(path, rows, expected=2, partial=True, data="2 tasks of many", scorer="by hand")
    cell = read_cell(tmp_path, ENVSCALER, "tool_use", "small", "grpo", (0, 1))
    assert cell.problem is not None and "covers 2 tasks of many" in cell.problem
    write_jsonl(path, rows, expected=2, data="other data", scorer="by hand")
    cell = read_cell(tmp_path, ENVSCALER, "tool_use", "small", "grpo", (0, 1))
    assert cell.problem is not None and cell.problem.startswith("mixed: envscaler")


def test_failed_episodes_stay_in_and_are_counted(tmp_path: Path) -> None:
    fill(tmp_path)
    path = put(tmp_path, "grpo", 1, {"a": [1.0], "b": [0.0]})
    rows = [json.loads(line) for line in path.read_text().splitlines()[:-1]]
    rows[1]["status"] = "timeout"
    write_jsonl(path, rows, expected=2, data="made up", scorer="by hand")
    cell = read_cell(tmp_path, ENVSCALER, "tool_use", "small", "grpo", (0, 1))
    assert cell.failed == 1
    assert cell.scores[1] == {"a": 1.0, "b": 0.0}


def test_a_score_beyond_its_bounds_is_refused(tmp_path: Path) -> None:
    put(tmp_path, "grpo", 0, {"a": [1.5]})
    with pytest.raises(UserError, match=r"task a has score 1\.5"):
        read_cell(tmp_path, ENVSCALER, "tool_use", "small", "grpo", (0,))


def test_an_unknown_table_is_refused() -> None:
    with pytest.raises(UserError, match="allowed: table1"):
        layout("table9")


def test_adding_a_method_leaves_the_other_rows_alone(tmp_path: Path) -> None:
    fill(tmp_path)
    both = build_table(tmp_path, TABLE1, SETTINGS, {}).rows
    alone = build_table(
        tmp_path, TABLE1, TableSettings(**{**vars(SETTINGS), "methods": ("grpo",)}), {}
    ).rows
    assert both[1] == alone[0]


def test_the_command_writes_every_form(tmp_path: Path) -> None:
    fill(tmp_path)
    reported = tmp_path / "reported.csv"
    reported.write_text(
        "backbone,method,metric,value,read_from\nQwen3-4B,GRPO,envscaler,61.80,table\n"
    )
    settings = {
        "scale": "test",
        "notice": "These numbers are made up.",
        "preset": "paper",
        "backbones": {"small": {"label": "A small one", "paper_backbone": "Qwen3-4B"}},
        "methods": {"vanilla": "Vanilla", "grpo": "GRPO"},
        "seeds": [0, 1],
    }
    files = {
        n: tmp_path / f"out.{n}" for n in ("csv", "markdown", "html", "problems", "comparisons")
    }
    arguments = ["table", "--settings", json.dumps(settings), "--layout", "table1",
                 "--results", str(tmp_path), "--reported", str(reported)]  # fmt: skip
    arguments += [a for name, path in files.items() for a in (f"--{name}", str(path))]
    assert main(arguments) == 0
    rows = list(csv.DictReader(files["csv"].open()))
    assert rows[1]["envscaler"] == "62.5000"
    assert rows[1]["bfcl_base"] == ""
    for name in ("markdown", "html"):
        page = files[name].read_text()
        assert "These numbers are made up." in page
        assert "test scale, seeds 0, 1" in page
        assert "an agent that does nothing scores 25.0" in page
        assert "follows: paper" in page
        assert "61.80" in page
    [pair] = list(csv.DictReader(files["comparisons"].open()))
    assert (pair["method_a"], pair["method_b"]) == ("vanilla", "grpo")
    # Paired by task and seed: -(0.5 + 0.25 + 0.25 + 0.5) / 4 on a scale of 100.
    assert float(pair["difference"]) == pytest.approx(-37.5)
    before = {name: path.read_bytes() for name, path in files.items()}
    assert main(arguments) == 0
    assert before == {name: path.read_bytes() for name, path in files.items()}
