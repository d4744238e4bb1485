"""Table 3: every metric by hand, what is left out or missing, and the command's files."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from lopd_repro.audit.paper import read_paper
from lopd_repro.audit.reproduction import read_results
from lopd_repro.cli import main
from lopd_repro.errors import UserError
from lopd_repro.files import write_jsonl
from lopd_repro.report.behaviour import METRICS, Table3Settings, build_table3, episode
from lopd_repro.report.behaviour_pages import html_page, markdown_page
from lopd_repro.report.layout import TABLE1, TableSettings
from lopd_repro.report.scores import evaluation_file
from lopd_repro.report.table import build_table

ROOT = Path(__file__).resolve().parents[2]
SETTINGS = Table3Settings(
    scale="test",
    notice="These numbers are made up.",
    preset="paper",
    domain="tool_use",
    backbone="small",
    backbone_label="a small one",
    paper_backbone="Qwen3-4B",
    seeds=(0, 1),
    labels={"vanilla": "Vanilla", "lopd": "LOPD", "grpo": "GRPO"},
)
REPORTED = {
    ("Qwen3-4B", "vanilla", "reward"): "0.486",
    ("Qwen3-4B", "lopd", "tool_calls_per_step"): "1.11",
    ("Qwen3-8B", "lopd", "reward"): "9",
}


def call(name: str, arguments: Any, executed: bool = True, tokens: int = 5) -> dict[str, Any]:
    """A turn with one call, which the environment acted on."""
    return {"kind": "call", "name": name, "arguments": arguments, "n_calls": 1,
            "executed": executed, "observation": "ok", "tokens": tokens}  # fmt: skip


def words(tokens: int = 2) -> dict[str, Any]:
    """A turn that ends the episode."""
    content = {"content": "Task Completed"}
    return {"kind": "text", "name": "chat_with_user", "arguments": content, "n_calls": 0,
            "executed": False, "observation": "Task finished", "tokens": tokens}  # fmt: skip


# Two equal calls in one turn (the first one ran), another call, the end: 3 steps, 3 calls of
# which 2 ran and 1 repeats one, first step of 10 tokens.
BUSY = [
    {**call("get", {"x": 1}, tokens=10), "n_calls": 2,
     "calls": [["get", {"x": 1}], ["get", {"x": 1}]]},
    call("put", {"y": 2}),
    words(),
]  # fmt: skip
# Nothing but the end: 1 step of 4 tokens.
SILENT = [words(tokens=4)]
# One call twice, its arguments in another order (the second did not run), a turn that could not
# be read, one cut by the token budget: 4 steps, 2 calls, 1 ran, 1 repeats, first step of 8.
STUCK = [
    call("get", {"x": 1, "z": 2}, tokens=8),
    call("get", {"z": 2, "x": 1}, executed=False),
    {"kind": "error", "name": "", "arguments": None, "n_calls": 0, "executed": False,
     "observation": "Error", "tokens": 9},
    {"tokens": 40},
]  # fmt: skip
# A turn whose first call is broken and whose second is whole, so none was acted on; that one again,
# which ran; the end: 3 steps, 2 calls, 1 ran, 1 repeats, first step of 6.
RETRIED = [
    {"kind": "error", "name": "", "arguments": None, "n_calls": 1, "executed": False,
     "observation": "Error", "tokens": 6, "calls": [["get", {}]]},
    call("get", {}),
    words(),
]  # fmt: skip

Plan = dict[str, list[tuple[float, list[dict[str, Any]]]]]
MIXED: Plan = {"a": [(1.0, BUSY), (0.5, SILENT)], "b": [(0.0, STUCK), (0.5, RETRIED)]}
ALIKE: Plan = {"a": [(1.0, BUSY), (1.0, BUSY)], "b": [(1.0, BUSY), (1.0, BUSY)]}


def put(root: Path, column: str, seed: int, plan: Plan, **more: Any) -> Path:
    rows = [
        {"task_id": task, "repeat": i, "score": reward, "status": "ok", "records": records,
         "noop_reward": 0.25 if task == "a" else 0.0}
        for task, repeats in plan.items()
        for i, (reward, records) in enumerate(repeats)
    ]  # fmt: skip
    path = evaluation_file(root, "envscaler", "tool_use", "small", column, seed)
    footer = {"expected": len(rows), "data": "made up", "scorer": "by hand", **more}
    write_jsonl(path, rows, **footer)
    return path


def fill(root: Path) -> None:
    for column in ("vanilla", "lopd"):
        put(root, column, 0, MIXED)
        put(root, column, 1, ALIKE)
    for seed in (0, 1):
        put(root, "base_plus_composer", seed, ALIKE, composer=f"runs/seed{seed}/c.safetensors")


# Seed 0 has MIXED, seed 1 has ALIKE; a cell is the mean of both.
EXPECTED = {
    # (1 + 0.5 + 0 + 0.5) / 4, and 1
    "reward": (0.5, 1.0),
    # (3 + 1 + 4 + 3) / 4, and 3
    "interaction_steps": (11 / 4, 3.0),
    # 3 + 0 + 2 + 2 calls in 11 steps, and 3 in 3
    "tool_calls_per_step": (7 / 11, 1.0),
    # 2 + 0 + 1 + 1 of them ran, and 2 in 3
    "tool_calls_per_step_executed": (4 / 11, 2 / 3),
    # (10 + 4 + 8 + 6) / 4, and 10
    "first_step_length_tokens": (7.0, 10.0),
    # 1 / 3, 0 / 2 and 0.5 / 2 over the three episodes with a call, and 1 / 3
    "reward_per_tool_call": ((1 / 3 + 0.25) / 3, 1 / 3),
    # reward 2 over 7 calls, and 4 over 12
    "reward_per_tool_call_ratio_of_means": (2 / 7, 1 / 3),
    # (1 + 0 + 1 + 1) / 4, and 1
    "repeated_tool_calls": (3 / 4, 1.0),
    # 3 of 7, and 1 of 3
    "repeated_tool_calls_share": (3 / 7, 1 / 3),
}


def test_every_metric_by_hand(tmp_path: Path) -> None:
    fill(tmp_path)
    table = build_table3(tmp_path, SETTINGS, REPORTED)
    assert [row["metric"] for row in table.rows] == list(EXPECTED)
    for row in table.rows:
        first, second = EXPECTED[row["metric"]]
        assert row["vanilla"] == row["lopd"] == pytest.approx((first + second) / 2)
        # n-1 with two seeds: the distance over the square root of 2
        assert row["vanilla_std"] == pytest.approx(abs(first - second) / 2**0.5)
        assert row["vanilla_ci_low"] <= row["vanilla"] <= row["vanilla_ci_high"]
        assert row["base_plus_composer"] == pytest.approx(second)
        assert row["base_plus_composer_std"] == 0.0
        assert row["base_plus_composer_ci_high"] == pytest.approx(second)
    assert table.problems == []
    # Task a's floor is 0.25, task b's 0.
    assert table.floor == 0.125
    assert table.remarks == [
        "small / Vanilla / reward_per_tool_call: 1 of 8 episodes wrote no call and are left out.",
        "small / Base + composer, seeds 0: latents of runs/seed0/c.safetensors.",
        "small / Base + composer, seeds 1: latents of runs/seed1/c.safetensors.",
        "small / LOPD / reward_per_tool_call: 1 of 8 episodes wrote no call and are left out.",
    ]
    assert table.sources == {"made up, by hand": ["Vanilla", "Base + composer", "LOPD"]}


def test_an_episode_is_read_from_its_records() -> None:
    read = [
        episode({"score": 0.5, "records": records}, "x")
        for records in (BUSY, SILENT, STUCK, RETRIED, [])
    ]
    assert [(e.steps, e.calls, e.executed, e.repeats, e.first_step_tokens) for e in read] == [
        (3, 3, 2, 1, 10), (1, 0, 0, 0, 4), (4, 2, 1, 1, 8), (3, 2, 1, 1, 6), (0, 0, 0, 0, None),
    ]  # fmt: skip
    # Three equal calls are two repeats; other arguments or another name are none.
    again = [call("get", {"x": 1}) for _ in range(3)]
    again += [call("get", {"x": 2}), call("put", {"x": 1}), call("get", None), call("get", "x")]
    assert episode({"score": 0, "records": again}, "x").repeats == 2


def test_calls_that_were_not_recorded_are_not_guessed(tmp_path: Path) -> None:
    lost = [{**BUSY[0]}]
    del lost[0]["calls"]
    with pytest.raises(UserError, match=r"f: task t: .*2 calls in a turn, 1 with name"):
        episode({"task_id": "t", "score": 0.0, "records": lost}, "f")
    with pytest.raises(UserError, match="'records'"):
        episode({"task_id": "t", "score": 0.0}, "f")


def test_rewards_and_intervals_are_those_of_table_1(tmp_path: Path) -> None:
    fill(tmp_path)
    for seed, plan in ((0, ALIKE), (1, MIXED)):
        put(tmp_path, "lopd", seed, plan)
    tables = TableSettings(
        "test", ("small",), ("vanilla", "lopd"), SETTINGS.labels, {"small": "Qwen3-4B"}, (0, 1)
    )
    reward = build_table3(tmp_path, SETTINGS, {}).rows[0]
    for row, column in zip(
        build_table(tmp_path, TABLE1, tables, {}).rows, tables.methods, strict=True
    ):
        for suffix in ("", "_std", "_ci_low", "_ci_high"):
            assert 100 * reward[column + suffix] == pytest.approx(row[f"envscaler{suffix}"])


def test_cells_do_not_depend_on_each_other(tmp_path: Path) -> None:
    fill(tmp_path)
    before = build_table3(tmp_path, SETTINGS, {}).rows
    put(tmp_path, "vanilla", 0, ALIKE)
    after = build_table3(tmp_path, SETTINGS, {}).rows
    kept = [name for name in before[0] if not name.startswith("vanilla")]
    assert [[r[n] for n in kept] for r in before] == [[r[n] for n in kept] for r in after]
    assert before[0]["vanilla"] != after[0]["vanilla"]


def test_the_papers_numbers_stand_beside_the_backbone_they_are_for(tmp_path: Path) -> None:
    fill(tmp_path)
    rows = {r["metric"]: r for r in build_table3(tmp_path, SETTINGS, REPORTED).rows}
    assert rows["reward"]["vanilla_reported"] == "0.486"
    assert rows["tool_calls_per_step"]["lopd_reported"] == "1.11"
    assert rows["tool_calls_per_step_executed"]["lopd_reported"] is None
    assert rows["reward"]["lopd_reported"] is None


def test_missing_and_incomplete_files_empty_their_column(tmp_path: Path) -> None:
    fill(tmp_path)
    evaluation_file(tmp_path, "envscaler", "tool_use", "small", "vanilla", 1).unlink()
    put(tmp_path, "lopd", 0, MIXED, expected=9)
    put(tmp_path, "base_plus_composer", 1, ALIKE)
    table = build_table3(tmp_path, SETTINGS, REPORTED)
    assert [line.split(": ")[0] for line in table.problems] == [
        "small / Vanilla", "small / Base + composer", "small / LOPD",
    ]  # fmt: skip
    assert "seed1.jsonl does not exist" in table.problems[0]
    assert "made without a composer" in table.problems[1]
    assert "4 of 9 rows" in table.problems[2]
    for row in table.rows:
        for column in ("vanilla", "base_plus_composer", "lopd"):
            assert all(row[column + s] is None for s in ("", "_std", "_ci_low", "_ci_high"))
    assert table.rows[0]["vanilla_reported"] == "0.486"
    assert "not measured" in html_page(SETTINGS, table)


def test_a_seed_without_any_call_leaves_the_ratio_undefined(tmp_path: Path) -> None:
    fill(tmp_path)
    put(tmp_path, "lopd", 1, {"a": [(0.5, SILENT)] * 2, "b": [(0.0, SILENT)] * 2})
    table = build_table3(tmp_path, SETTINGS, {})
    rows = {r["metric"]: r for r in table.rows}
    undefined = [m for m, r in rows.items() if r["lopd"] is None]
    assert undefined == [
        "reward_per_tool_call", "reward_per_tool_call_ratio_of_means", "repeated_tool_calls_share",
    ]  # fmt: skip
    assert len(table.problems) == 3
    assert table.problems[0] == (
        "small / LOPD / reward_per_tool_call: undefined, nothing to divide by in seeds [1]"
    )
    # (7 / 11 + 0 / 1) / 2: no call in some steps is a measured 0.
    assert rows["tool_calls_per_step"]["lopd"] == pytest.approx(7 / 22)


def test_draws_without_a_call_are_counted(tmp_path: Path) -> None:
    fill(tmp_path)
    # Only task a has calls: a draw of task b alone has none in that seed.
    put(tmp_path, "lopd", 1, {"a": [(1.0, BUSY)] * 2, "b": [(0.0, SILENT)] * 2})
    table = build_table3(tmp_path, SETTINGS, {})
    # Task b twice with chance 1/4, and the seed at least once with chance 3/4: 3/16 of 10,000
    # draws, give or take four standard errors.
    (line,) = [r for r in table.remarks if "LOPD / repeated_tool_calls_share" in r]
    assert int(line.split(": ")[1].split()[0]) == pytest.approx(1875, abs=4 * 39)
    row = next(r for r in table.rows if r["metric"] == "reward_per_tool_call")
    assert row["lopd_ci_low"] <= row["lopd"] <= row["lopd_ci_high"]


def test_failed_episodes_stay_in_and_are_counted(tmp_path: Path) -> None:
    fill(tmp_path)
    path = evaluation_file(tmp_path, "envscaler", "tool_use", "small", "lopd", 0)
    rows = [json.loads(line) for line in path.read_text().splitlines()[:-1]]
    rows[2]["status"] = "timeout"
    write_jsonl(path, rows, expected=4, data="made up", scorer="by hand")
    table = build_table3(tmp_path, SETTINGS, {})
    assert table.rows[0]["lopd"] == pytest.approx(0.75)
    assert "small / LOPD: 1 episodes ended with a status not ok." in table.remarks


def test_the_command_writes_every_form(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fill(tmp_path)
    shared = {**vars(SETTINGS), "figure3": {"frozen": None}, "methods": ["vanilla"], "controls": []}
    files = {n: tmp_path / f"out.{n}" for n in ("csv", "markdown", "html", "problems")}
    arguments = ["table3", "--settings", json.dumps(shared), "--results", str(tmp_path),
                 "--reported", str(ROOT / "paper_tables/table3.csv")]  # fmt: skip
    arguments += [a for name, path in files.items() for a in (f"--{name}", str(path))]
    assert main(arguments) == 0
    with files["csv"].open() as file:
        reader = csv.DictReader(file)
        rows = list(reader)
    columns = ("vanilla", "base_plus_composer", "lopd")
    suffixes = ("", "_std", "_ci_low", "_ci_high", "_reported")
    names = ["metric", *(c + s for c in columns for s in suffixes)]
    assert reader.fieldnames == [*names, "backbone", "scale", "n_seeds"]
    assert [row["metric"] for row in rows] == [metric.name for metric in METRICS]
    # (7 / 11 + 1) / 2 = 9 / 11 to six digits
    assert rows[2]["vanilla"] == "0.818182" and rows[2]["vanilla_reported"] == "3.50"
    assert rows[4]["lopd"] == "8.5" and rows[4]["lopd_reported"] == "6210"
    assert (rows[0]["backbone"], rows[0]["scale"], rows[0]["n_seeds"]) == ("small", "test", "2")
    assert files["problems"].read_text() == ""
    for name in ("markdown", "html"):
        page = files[name].read_text()
        assert "These numbers are made up." in page and "test scale, seeds 0, 1" in page
        assert "illustrative, not a clean ablation" in page
        assert "an agent that does nothing scores 0.125" in page
        assert "wrote no call and are left out" in page and "0.750 ± 0.354" in page
    before = {name: path.read_bytes() for name, path in files.items()}
    assert main(arguments) == 0
    assert before == {name: path.read_bytes() for name, path in files.items()}
    evaluation_file(tmp_path, "envscaler", "tool_use", "small", "lopd", 0).unlink()
    assert main(arguments) == 0
    for text in (files["problems"].read_text(), capsys.readouterr().err):
        assert "small / LOPD: not run" in text
    for key, message in (("labels", "settings.labels: missing"), ("seeds", "settings.seeds")):
        wrong = {k: v for k, v in shared.items() if k != key}
        assert main([*arguments[:2], json.dumps(wrong), *arguments[3:]]) == 2
        assert message in capsys.readouterr().err


def test_the_audit_reads_the_file(tmp_path: Path) -> None:
    fill(tmp_path)
    settings = json.dumps(vars(SETTINGS))
    assert main(["table3", "--settings", settings, "--results", str(tmp_path), "--reported",
                 str(ROOT / "paper_tables/table3.csv"), "--csv",
                 str(tmp_path / "table3.csv")]) == 0  # fmt: skip
    found = read_results(tmp_path, read_paper(ROOT / "paper_tables"), {"small": "Qwen3-4B"})
    result = found["table3", "Qwen3-4B", "lopd", "interaction_steps"]
    assert result.mean == 2.875 and result.scale == "test" and result.error is not None
    assert ("table3", "Qwen3-4B", "base_plus_composer", "reward") in found


def test_markdown_is_a_table(tmp_path: Path) -> None:
    fill(tmp_path)
    page = markdown_page(SETTINGS, build_table3(tmp_path, SETTINGS, REPORTED))
    lines = [line for line in page.splitlines() if line.startswith("|")]
    assert len(lines) == 2 + len(METRICS) and len({line.count("|") for line in lines}) == 1
    assert lines[2].startswith("| Reward | 0.750 ± 0.354 [")
