"""What a table says beside official verdicts: strict readings, time-outs, pass@1."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lopd_repro.cli import main
from lopd_repro.files import write_jsonl
from lopd_repro.report.layout import TABLE2, TableSettings
from lopd_repro.report.readings import Readings
from lopd_repro.report.render import notes
from lopd_repro.report.scores import evaluation_file
from lopd_repro.report.table import build_table
from lopd_repro.stats.passk import counted, mean_pass_at_k

SETTINGS = TableSettings(
    scale="test",
    backbones=("small",),
    methods=("vanilla",),
    labels={"vanilla": "Vanilla"},
    paper_backbones={"small": "Qwen3-4B"},
    seeds=(0, 1),
)


def lcb(score: int, strict: int | None, error: int | None = None, **more: Any) -> dict[str, Any]:
    row = {"category": "v5", "repeat": 0, "status": "ok", "score": score, "error_code": error}
    if strict is not None:
        row |= {"strict_score": strict}
    return row | more


def evalplus(score: float, strict: float, status: str = "ok", **more: Any) -> dict[str, Any]:
    row = {"category": "humaneval_plus", "repeat": 0, "status": status, "score": score}
    row |= {"strict_score": strict, "base_status": "pass", "plus_status": "pass", "died": False}
    return row | more


def put(root: Path, benchmark: str, seed: int, rows: list[dict[str, Any]]) -> None:
    path = evaluation_file(root, benchmark, "coding", "small", "vanilla", seed)
    named = [{"task_id": f"t{number}", **row} for number, row in enumerate(rows)]
    write_jsonl(path, named, expected=len(named), data="made up", scorer="by hand")


def fill(root: Path) -> None:
    # v5: of 2 x 4 verdicts the strict reading raises two and lowers one. Three programs ran out of
    # time, and each has another official name. v6 is there, and both readings agree.
    late = {"status": "timeout"}
    other = [lcb(1, 1, category="v6")]
    put(
        root,
        "livecodebench",
        0,
        [lcb(0, 1, -2), lcb(1, 0), lcb(0, 0, -3, **late), lcb(0, 0, -5, **late), *other],
    )
    put(
        root,
        "livecodebench",
        1,
        [lcb(0, 1, -4), lcb(1, 1), lcb(0, 0, -4, **late), lcb(0, 0, -5), *other],
    )
    # An endless loop is officially a failure, a death a time-out.
    for seed in (0, 1):
        put(
            root,
            "evalplus",
            seed,
            [
                evalplus(1.0, 1.0),
                evalplus(0.0, 0.0, "timeout", plus_status="fail"),
                evalplus(0.0, 0.0, plus_status="timeout", died=True),
            ],
        )


V5 = (
    "LCB v5: a strict reading would change 3 of 8 verdicts: 2 to right, 1 to wrong; 3 time-outs "
    "(officially filed 1 as compile error, 1 as runtime error, 1 as time-out)."
)
HUMANEVAL = (
    "HumanEval+: a strict reading would change 0 of 6 verdicts; 2 time-outs (officially filed "
    "2 as failure); 2 deaths, officially filed as time-out."
)


def test_notes_sum_up_the_cells_by_metric(tmp_path: Path) -> None:
    fill(tmp_path)
    table = build_table(tmp_path, TABLE2, SETTINGS, {})
    shown = notes(TABLE2, table, {})
    assert V5 in shown and HUMANEVAL in shown
    assert "LCB v6: a strict reading would change 0 of 2 verdicts." in shown
    assert not any(line.startswith(("MBPP+: a strict", "LCB avg: a strict")) for line in shown)
    # Cells in which there is no more to say than that both agree are no remark.
    assert table.remarks == [
        f"small / Vanilla / lcb_v5: {V5[8:-1]}",
        f"small / Vanilla / humaneval_plus: {HUMANEVAL[12:-1]}",
    ]
    # Scores stay the official ones: seeds 1/4 and 1/4 of v5.
    assert table.rows[0]["lcb_v5"] == pytest.approx(25.0)


def test_every_page_and_the_log_say_it_and_the_columns_stay(tmp_path: Path) -> None:
    fill(tmp_path)
    reported = tmp_path / "reported.csv"
    reported.write_text("backbone,method,metric,value,read_from\n")
    settings = {
        "scale": "test", "notice": "Made up.", "preset": "paper", "methods": {"vanilla": "Vanilla"},
        "backbones": {"small": {"label": "A small one", "paper_backbone": "Qwen3-4B"}},
        "seeds": [0, 1],
    }  # fmt: skip
    files = {name: tmp_path / f"out.{name}" for name in ("csv", "markdown", "html", "problems")}
    arguments = ["table", "--settings", json.dumps(settings), "--layout", "table2",
                 "--results", str(tmp_path), "--reported", str(reported)]  # fmt: skip
    assert main(arguments + [a for n, p in files.items() for a in (f"--{n}", str(p))]) == 0
    for name in ("markdown", "html"):
        assert V5 in files[name].read_text()
    assert f"small / Vanilla / lcb_v5: {V5[8:-1]}\n" in files["problems"].read_text()
    columns = files["csv"].read_text().splitlines()[0].split(",")
    assert columns[:4] == ["scale", "backbone", "method", "n_seeds"]
    assert len(columns) == 4 + 5 * len(TABLE2.metrics)


def test_large_counts_single_ones_and_readings_that_were_not_made() -> None:
    some = Readings()
    some.add([lcb(1, 1)] * 3023 + [lcb(0, 0, -3, status="timeout")])
    assert some.sentence() == "a strict reading would change 0 of 3,024 verdicts; 1 time-out"
    none = Readings()
    none.add([lcb(1, None)] * 2)
    assert none.sentence() == "no strict reading of 2 verdicts"
    none.merge(some)
    assert none.sentence().startswith(
        "a strict reading would change 0 of 3,026 verdicts (of which it has read 3,024); 1"
    )
    others = Readings()
    others.add([{"task_id": "a", "score": 0.5, "status": "timeout"}])
    assert others.sentence() == "" and not others.remarkable


def test_a_cell_is_pass_at_1_of_its_repeats_by_the_unbiased_estimator(tmp_path: Path) -> None:
    """Repeats and successes differ between tasks, so that a mean over rows would differ too."""
    successes = {"a": [1, 0, 0], "b": [1], "c": [1, 1, 0, 1], "d": [0, 0]}
    rows = [
        lcb(score, score, task_id=task, repeat=repeat)
        for task, scores in successes.items()
        for repeat, score in enumerate(scores)
    ]
    for seed in (0, 1):
        put(tmp_path, "livecodebench", seed, rows)
    found = build_table(tmp_path, TABLE2, SETTINGS, {}).rows[0]["lcb_v5"]
    counts = counted((row["task_id"], row["score"] == 1) for row in rows)
    assert counts == [(3, 1), (1, 1), (4, 3), (2, 0)]
    assert found == pytest.approx(100 * mean_pass_at_k(counts, 1), abs=1e-12)
    # (1/3 + 1 + 3/4 + 0) / 4; the mean over the ten rows would be 50.
    assert found == pytest.approx(100 * (1 / 3 + 1 + 3 / 4) / 4)
    with pytest.raises(ValueError, match="k <= n"):
        mean_pass_at_k(counts, 2)
