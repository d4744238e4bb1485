"""Result files: what a later attempt keeps, what is refused, what a row says. No package needed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lopd_repro.benchmarks.bfcl import Settings
from lopd_repro.benchmarks.bfcl_data import RELEASES, choose, copy_tasks, find_environment, task_ids
from lopd_repro.benchmarks.bfcl_results import Results
from lopd_repro.errors import UserError

BASE = [f"multi_turn_base_{n}" for n in range(4)]
OVERFLOW = "Error during inference: Error code: 400 - maximum context length is 1024 tokens"


def good(task: str, word: str = "Done.") -> dict[str, Any]:
    called = {
        "role": "handler_log",
        "content": "Successfully decoded model response.",
        "model_response_decoded": ["ls()", "cd(folder='a')"],
    }
    ended = {**called, "model_response_decoded": []}
    log = [{"begin_of_turn_query": [], "step_0": [called], "step_1": [ended]}]
    return {
        "id": task,
        "result": [["call", word]],
        "input_token_count": [[10, 20]],
        "output_token_count": [[3, 4]],
        "inference_log": log,
    }


def bad(task: str, why: str = "Error during inference: Connection error.") -> dict[str, Any]:
    return {"id": task, "result": why, "traceback": "..."}


@pytest.fixture
def results(tmp_path: Path) -> Results:
    return Results(tmp_path, RELEASES["v3"], "Qwen/Qwen3-4B-FC")


def write(path: Path, *lines: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines))


def write_scores(results: Results, summary: dict[str, Any], *failed: tuple[str, str]) -> None:
    rows = [{"id": task, "valid": False, "error": {"error_type": kind}} for task, kind in failed]
    path = results.file("score", "multi_turn_base")
    write(path, *(json.dumps(row) for row in [summary, *rows]))


def test_a_later_attempt_keeps_finished_tasks_once(results: Results) -> None:
    official = results.file("result", "multi_turn_base")
    write(official, json.dumps(bad(BASE[0])), json.dumps(good(BASE[1])), '{"id": "multi_turn_ba')
    kept = [good(BASE[1], "again"), good(BASE[2]), good("multi_turn_base_77")]
    write(results.project / "finished.jsonl", *map(json.dumps, kept), '{"id"')
    assert results.resume(BASE) == [BASE[1], BASE[2]]
    # exactly one line each, whole, and the failed, unknown and broken ones are gone
    rows = [json.loads(line) for line in official.read_text().splitlines()]
    assert [row["id"] for row in rows] == [BASE[1], BASE[2]]
    assert results.resume(BASE) == [BASE[1], BASE[2]]


def test_a_failed_request_is_never_a_score(results: Results) -> None:
    write(
        results.project / "finished.jsonl", *map(json.dumps, [good(BASE[0]), *map(bad, BASE[1:])])
    )
    with pytest.raises(UserError, match=r"3 of 4 tasks \(multi_turn_base_1, .*Connection error"):
        results.refuse_failures(BASE)
    # a task that failed and then finished is finished
    write(results.project / "finished.jsonl", *map(json.dumps, [bad(BASE[0]), good(BASE[0])]))
    results.refuse_failures(BASE[:1])


def test_overflow_is_an_error_or_a_failed_task(results: Results) -> None:
    zero = Results(results.project, results.release, results.model, overflow="zero")
    write(results.project / "finished.jsonl", json.dumps(bad(BASE[0], OVERFLOW)))
    with pytest.raises(UserError, match=r"benchmark\.overflow: zero"):
        results.refuse_failures(BASE[:1])
    assert results.resume(BASE[:1]) == []
    write(results.project / "finished.jsonl", json.dumps(bad(BASE[0], OVERFLOW)))
    assert zero.resume(BASE[:1]) == BASE[:1]
    zero.refuse_failures(BASE[:1])
    # v3 lists such a task twice: as inference error and as ended early
    summary = {"accuracy": 0.0, "correct_count": 0, "total_count": 1}
    twice = [(BASE[0], "multi_turn:inference_error"), (BASE[0], "multi_turn:force_terminated")]
    write_scores(zero, summary, *twice)
    (row,) = zero.rows(BASE[:1])
    assert (row["score"], row["status"], row["error_type"]) == (0, "refused", "context overflow")


def test_rows(results: Results) -> None:
    write(results.project / "finished.jsonl", *map(json.dumps, map(good, BASE[:2])))
    summary = {"accuracy": 0.5, "correct_count": 1, "total_count": 2}
    write_scores(results, summary, (BASE[1], "multi_turn:instance_state_mismatch"))
    first, second = results.rows(BASE[:2])
    assert first == {
        "task_id": BASE[0],
        "repeat": 0,
        "category": "multi_turn_base",
        "score": 1.0,
        "status": "ok",
        "error_type": "",
        "turns": 1,
        "steps": 2,
        "calls": 2,  # two in the first step, none in the second
        "prompt_tokens": 30,
        "new_tokens": 7,
    }
    assert (second["score"], second["error_type"]) == (0.0, "multi_turn:instance_state_mismatch")
    with pytest.raises(UserError, match="1 of 3 tasks have no result, the first is"):
        results.rows(BASE[:3])


@pytest.mark.parametrize(
    ("summary", "failed"),
    [
        ({"correct_count": 1, "total_count": 1}, []),  # a partial evaluation
        ({"correct_count": 2, "total_count": 2}, [(BASE[0], "x")]),
        ({"correct_count": 1, "total_count": 2}, []),
        ({"correct_count": 1, "total_count": 2}, [("multi_turn_base_9", "x")]),
    ],
)
def test_a_score_file_that_does_not_fit_is_refused(
    results: Results, summary: dict[str, Any], failed: list[tuple[str, str]]
) -> None:
    write_scores(results, summary, *failed)
    with pytest.raises(UserError, match="do not fit the 2 tasks"):
        results.verdicts("multi_turn_base", BASE[:2])


def test_choice_of_tasks() -> None:
    ids = [*BASE, "multi_turn_miss_func_0", "multi_turn_miss_func_1"]
    assert choose(ids, (), 0) == ids
    assert choose(ids, (), 1) == [BASE[0], "multi_turn_miss_func_0"]
    assert choose(ids, (BASE[2],), 0) == [BASE[2]]
    with pytest.raises(UserError, match="no task multi_turn_base_9"):
        choose(ids, ("multi_turn_base_9",), 0)


def _data(folder: Path, ids: list[str], answers: list[str]) -> None:
    name = "BFCL_v3_multi_turn_base.json"
    write(folder / name, *(json.dumps({"id": task, "question": []}) for task in ids))
    rows = (json.dumps({"id": task, "ground_truth": []}) for task in answers)
    write(folder / "possible_answer" / name, *rows)
    write(folder / "multi_turn_func_doc" / "math_api.json", '{"name": "add"}')


def test_data_folders_are_checked_and_copied(tmp_path: Path) -> None:
    source, target = tmp_path / "from", tmp_path / "to"
    _data(source, BASE, BASE)
    assert task_ids(source, "BFCL_v3", "multi_turn_base", 4) == BASE
    with pytest.raises(UserError, match="holds 4 tasks, expected 200"):
        task_ids(source, "BFCL_v3", "multi_turn_base", 200)
    copy_tasks(source, "BFCL_v3", target, RELEASES["v4"], BASE[1:3])
    assert task_ids(target, "BFCL_v4", "multi_turn_base", 2) == BASE[1:3]
    assert (target / "multi_turn_func_doc" / "math_api.json").is_file()
    _data(source, BASE, BASE[::-1])
    with pytest.raises(UserError, match="not those of its possible answers"):
        task_ids(source, "BFCL_v3", "multi_turn_base", 4)
    _data(source, [BASE[0], BASE[0]], [BASE[0], BASE[0]])
    with pytest.raises(UserError, match="and differ"):
        task_ids(source, "BFCL_v3", "multi_turn_base", 2)


def test_a_missing_or_other_environment_says_how_to_make_it(tmp_path: Path) -> None:
    python = tmp_path / "bin" / "python"
    with pytest.raises(UserError, match=r"no environment.*pip install --no-deps -r eval/bfcl"):
        find_environment(python, RELEASES["v3"])
    for path in (python, tmp_path / "pyvenv.cfg"):
        write(path, "")
    with pytest.raises(UserError, match="holds no bfcl-eval"):
        find_environment(python, RELEASES["v3"])
    place = tmp_path / "lib" / "python3.11" / "site-packages"
    (place / "bfcl_eval-2026.3.23.dist-info").mkdir(parents=True)
    with pytest.raises(UserError, match=r"bfcl-eval 2026\.3\.23, release v3 is 2025\.7\.17"):
        find_environment(python, RELEASES["v3"])
    assert find_environment(python, RELEASES["v4"]).package == place / "bfcl_eval"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"release": "v2"}, r"benchmark.release: found 'v2', allowed: v3, v4"),
        ({"overflow": "skip"}, "benchmark.overflow"),
        ({"categories": ("multi_turn_composite",)}, "benchmark.categories"),
    ],
)
def test_settings_are_checked(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        Settings("Qwen/Qwen3-4B-FC", **settings)
