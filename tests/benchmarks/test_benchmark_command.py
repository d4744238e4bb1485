"""`lopd-repro benchmark`: rows checked against what is expected, states kept per checkpoint."""

import json
from pathlib import Path

import pytest

from lopd_repro.benchmarks import checked_rows, load_benchmark
from lopd_repro.cli import main
from lopd_repro.errors import UserError
from lopd_repro.files import read_jsonl_with_footer

ADAPTER = """
import json, urllib.request

class Echo:
    name, data, scorer, partial = "echo", "two prompts", "length of the answer", False

    def __init__(self, tasks, fail):
        self.tasks, self.fail = tasks, fail

    def expected(self):
        return [(task, 0) for task in self.tasks]

    def run(self, endpoint, checkpoint, state):
        kept = state / "kept.jsonl"
        rows = [json.loads(line) for line in kept.open()] if kept.exists() else []
        for task in self.tasks[len(rows):]:
            if task == self.fail:
                raise RuntimeError("stopped on purpose")
            body = {"model": endpoint.model, "max_tokens": 3,
                    "messages": [{"role": "user", "content": task}]}
            request = urllib.request.Request(
                endpoint.url + "/chat/completions", json.dumps(body).encode(),
                {"Content-Type": "application/json"})
            with urllib.request.urlopen(request) as answer:
                tokens = json.load(answer)["usage"]["completion_tokens"]
            rows.append({"task_id": task, "repeat": 0, "score": float(1 <= tokens <= 3),
                         "status": "ok", "tokens": tokens})
            kept.write_text("".join(json.dumps(row) + "\\n" for row in rows))
        return rows

def make(settings, folder):
    return Echo(settings["tasks"], settings.get("fail"))
"""
SETTINGS = {
    "serve": {"engine": "hf", "dtype": "float64", "seed": 3},
    "benchmark": {"tasks": ["tea", "cup"]},
}


def row(task, **more):
    return {"task_id": task, "repeat": 0, "score": 1.0, "status": "ok", **more}


EXPECTED = [("a", 0), ("b", 0)]


def test_rows_come_in_the_expected_order():
    assert checked_rows([row("b"), row("a")], EXPECTED, "x") == [row("a"), row("b")]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([row("a")], "1 of 2 results are missing, the first is b"),
        ([row("a"), row("a"), row("b")], "task a, repeat 0, was scored twice"),
        ([row("a"), row("b"), row("c")], "task c, which was not asked for"),
        ([row("a"), row("b", score=1.5)], "score 1.5"),
        ([row("a"), row("b", score=None)], "score None"),
        ([row("a"), row("b", score=float("nan"))], "score nan"),
        ([row("a"), row("b", status="fine")], "status 'fine'"),
    ],
)
def test_a_set_that_is_not_whole_is_refused(rows, message):
    with pytest.raises(UserError, match=message):
        checked_rows(rows, EXPECTED, "x")


def test_a_file_that_is_no_adapter_is_refused(tmp_path):
    with pytest.raises(UserError, match="no adapter file"):
        load_benchmark(tmp_path / "adapter.py", {})
    (tmp_path / "adapter.py").write_text("x = 1\n")
    with pytest.raises(UserError, match="defines no make"):
        load_benchmark(tmp_path / "adapter.py", {})


def command(tmp_path: Path, checkpoint: Path, settings: dict) -> list[str]:
    (tmp_path / "adapter.py").write_text(ADAPTER)
    return [
        "benchmark",
        *("--file", str(tmp_path / "adapter.py")),
        *("--settings", json.dumps(settings)),
        *("--checkpoint", str(checkpoint)),
        *("--seed", "1"),
        *("--state", str(tmp_path / "state")),
        *("--out", str(tmp_path / "rows.jsonl")),
    ]


def test_a_second_attempt_goes_on_where_the_first_stopped(tmp_path, served_checkpoint):
    failing = {**SETTINGS, "benchmark": {"tasks": ["tea", "cup"], "fail": "cup"}}
    with pytest.raises(RuntimeError, match="on purpose"):
        main(command(tmp_path, served_checkpoint, failing))
    assert not (tmp_path / "rows.jsonl").exists()
    (first,) = [path for path in (tmp_path / "state").iterdir() if path.is_dir()]
    assert len((first / "kept.jsonl").read_text().splitlines()) == 1

    # Other settings make another state, and the old one goes.
    assert main(command(tmp_path, served_checkpoint, SETTINGS)) == 0
    (second,) = [path for path in (tmp_path / "state").iterdir() if path.is_dir()]
    assert second != first
    rows, footer = read_jsonl_with_footer(tmp_path / "rows.jsonl")
    assert [r["task_id"] for r in rows] == ["tea", "cup"]
    assert footer["expected"] == 2 and footer["scorer"] == "length of the answer"
    assert footer["serving"]["settings"]["seed"] == 4  # the configured seed plus the run's

    # The same command again asks nothing: the kept rows are all there is to read.
    asked = (second / "kept.jsonl").stat().st_mtime_ns
    assert main(command(tmp_path, served_checkpoint, SETTINGS)) == 0
    assert (second / "kept.jsonl").stat().st_mtime_ns == asked
