"""The benchmark on a scripted endpoint: bundled data, prompts, rows, resumption, trouble."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from stub_server import Asked, Fail, Overflow, Say, stub

from lopd_repro.benchmarks import checked_rows, load_benchmark
from lopd_repro.benchmarks.lcb import mini
from lopd_repro.benchmarks.lcb.questions import WINDOWS, parse_question, read_questions
from lopd_repro.benchmarks.lcb.suite import LiveCodeBench, summary
from lopd_repro.data.splits import normalise_text
from lopd_repro.data.tiny_coding import solution, tiny_tasks
from lopd_repro.errors import UserError

FOLDER = Path(__file__).resolve().parents[2] / "eval" / "livecodebench"
TASKS = {task.statement: task for tasks in mini.suite_tasks().values() for task in tasks}
QUICK: dict[str, Any] = {
    "suite": "mini",
    "limit": 4,
    "sampling": {"tries": 1, "pause_seconds": 0.0},
    "grader": {"timeout_seconds": 10.0, "memory_mb": 1024},
}


def make(**changes: Any) -> LiveCodeBench:
    benchmark = load_benchmark(FOLDER / "adapter.py", {**QUICK, **changes})
    assert isinstance(benchmark, LiveCodeBench)
    return benchmark


def fenced(program: str) -> Say:
    return Say(f"```python\n{program}\n```", usage=(20, 30))


def answer(asked: Asked) -> Say:
    return fenced(solution(TASKS[asked.text]))


def test_the_bundled_files_are_what_the_generator_makes() -> None:
    for name, text in mini.suite_texts().items():
        assert (FOLDER / "data" / "mini" / name).read_text() == text, name


def test_the_bundled_tasks_are_in_their_windows_and_in_no_training_set() -> None:
    training = {normalise_text(t.statement) for t in tiny_tasks(0, 480).values()}
    texts = []
    for window in WINDOWS:
        questions = read_questions(FOLDER / "data" / "mini" / f"{window}.jsonl", window)
        assert len(questions) == 36
        assert {q.problem.fn_name is None for q in questions} == {True, False}
        texts += [normalise_text(q.content) for q in questions]
    assert len(set(texts)) == 72
    assert not training & set(texts)


def test_rows_of_right_wrong_and_empty_replies(tmp_path: Path) -> None:
    benchmark = make(repeats=2, system="Write a program.", user="{task} #")
    first, second, third, *_ = benchmark.questions

    def script(asked: Asked) -> Say:
        content = asked.text.removesuffix(" #")
        name = TASKS[content].task_id
        if name == first:
            return fenced("while True: pass" if asked.body["seed"] % 2 else "1 / 0")
        if name == second:
            return Say("I do not know.")
        if name == third:  # right for a reader, not by the official rule
            return Say(f"```python\n{solution(TASKS[content])}\n```\nIt prints\n```\n1\n```")
        return fenced(solution(TASKS[content]))

    with stub(script) as server:
        rows = benchmark.run(server.endpoint, tmp_path, tmp_path)
        assert server.asked[0].body["messages"][0] == {
            "role": "system",
            "content": "Write a program.",
        }
    rows = checked_rows(rows, benchmark.expected(), benchmark.name)
    assert len(rows) == 16
    assert {row["category"] for row in rows} == {"v5", "v6"}
    by_task: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        by_task.setdefault(row["task_id"], []).append(row)
    for row in by_task[first]:
        assert row["score"] == 0
        assert (row["status"], row["verdict"]) in {("timeout", "timeout"), ("ok", "error")}
        assert row["reruns"] == int(row["status"] == "timeout")
    for row in by_task[second]:
        assert (row["score"], row["verdict"], row["strict"]) == (0, "error", "no program")
        assert not row["strict_differs"]
    for row in by_task[third]:
        assert (row["score"], row["strict"], row["strict_score"]) == (0, "passed", 1)
        assert row["strict_differs"]
    right = [row for row in rows if row["task_id"] not in (first, second, third)]
    assert all(row["score"] == row["strict_score"] == 1 for row in right)
    assert all((row["tokens"], row["prompt_tokens"]) == (30, 20) for row in right)
    found = summary(rows)
    # v5: one of four tasks passes, v6: all four; so 5 of 8 together, weighted by tasks.
    assert [found[name]["pass@1"] for name in ("v5", "v6", "all")] == [25.0, 100.0, 62.5]
    assert found["all"]["strict_differs"] == 2
    assert benchmark.report == found
    with pytest.raises(ValueError, match="k <= n"):
        summary(rows, k=3)


def test_finished_work_is_kept_and_equal_replies_are_graded_once(tmp_path: Path) -> None:
    benchmark = make(repeats=3)
    with stub(answer) as server:
        rows = benchmark.run(server.endpoint, tmp_path, tmp_path)
        assert len(server.asked) == 24
        assert len((tmp_path / "verdicts.jsonl").read_text().splitlines()) == 8
        assert benchmark.run(server.endpoint, tmp_path, tmp_path) == rows
        assert len(server.asked) == 24
    assert all(row["score"] == 1 for row in rows)


def test_a_failing_endpoint_is_no_score_and_the_rest_is_kept(tmp_path: Path) -> None:
    benchmark = make()
    broken = next(iter(benchmark.questions))

    def script(asked: Asked) -> Say | Fail:
        return Fail() if TASKS[asked.text].task_id == broken else answer(asked)

    with stub(script) as server, pytest.raises(UserError, match=f"1 of 8 tasks .{broken}"):
        benchmark.run(server.endpoint, tmp_path, tmp_path)
    with stub(answer) as server:
        rows = benchmark.run(server.endpoint, tmp_path, tmp_path)
        assert len(server.asked) == 1
    assert sum(row["score"] for row in rows) == 8


def test_a_prompt_that_is_too_long_fails_its_task_where_asked_for(tmp_path: Path) -> None:
    with stub(lambda _: Overflow()) as server:
        rows = make(limit=1, overflow="zero").run(server.endpoint, tmp_path, tmp_path)
        assert [(row["score"], row["status"]) for row in rows] == [(0, "refused")] * 2
        with pytest.raises(UserError, match="livecodebench"):
            make(limit=1).run(server.endpoint, tmp_path, tmp_path / "other")


def test_a_part_is_marked_and_the_whole_is_not() -> None:
    assert make().data == "partial: mini-suite (LiveCodeBench form; v5 4, v6 4)"
    whole = make(limit=0)
    assert whole.data == "mini-suite (LiveCodeBench form; v5 36, v6 36)"
    assert whole.scorer == "lopd-repro grader by the rules of LiveCodeBench 28fef95"
    assert len(whole.expected()) == len(set(whole.expected())) == 72


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"suite": "maxi"}, "benchmark.suite: found 'maxi', allowed: mini, official"),
        ({"windows": ["v7"]}, "benchmark.windows: found .'v7'., allowed: v5, v6"),
        ({"limit": -1}, "benchmark.limit"),
        ({"user": "{nothing}"}, "allowed slots: task, starter"),
        ({"grader": {"batch": 0}}, "grader.batch"),
        ({"colour": 1}, "benchmark.colour: unknown key"),
    ],
)
def test_settings_are_checked(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        make(**changes)


def test_both_forms_of_private_tests() -> None:
    import base64
    import pickle
    import zlib

    row = mini.official_row(mini.suite_tasks()["v5"][0], "v5", 0)
    plain = parse_question(row, "v5")

    def packed(value: object) -> dict[str, Any]:
        data = base64.b64encode(zlib.compress(pickle.dumps(value))).decode()
        return {**row, "private_test_cases": data}

    assert parse_question(packed(row["private_test_cases"]), "v5").problem == plain.problem
    for bad in (packed(json.loads), packed(3), {**row, "private_test_cases": "###"}):
        with pytest.raises(UserError, match="its tests cannot be read"):
            _ = parse_question(bad, "v5").problem
