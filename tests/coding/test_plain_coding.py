"""Functions in plain English: references pass, constants do not, texts are apart, starters true."""

from __future__ import annotations

import doctest
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from lopd_repro.cli import main
from lopd_repro.data.coding import CodeTask, load_code_tasks
from lopd_repro.data.splits import normalise_text
from lopd_repro.data.tiny_coding import PLAIN_FAMILIES, plain_solution, plain_tasks
from lopd_repro.errors import UserError

TASKS = plain_tasks(seed=0, count=160)


def function(task: CodeTask) -> Any:
    scope: dict[str, Any] = {}
    exec(plain_solution(task), scope)
    return scope[task.entry_point]


def test_tasks_are_spread_over_families_and_no_text_comes_twice() -> None:
    assert Counter(task.family for task in TASKS.values()) == dict.fromkeys(PLAIN_FAMILIES, 8)
    assert len({normalise_text(task.statement) for task in TASKS.values()}) == 160


def test_references_pass_and_no_constant_does() -> None:
    for task in TASKS.values():
        solve = function(task)
        expected = [case.expected for case in task.cases]
        assert [solve(*case.args) for case in task.cases] == expected
        assert len({repr(value) for value in expected}) > 1


def test_a_hand_made_answer() -> None:
    task = next(t for t in TASKS.values() if t.family == "list-range")
    # 9 is the largest, 2 the smallest.
    assert function(task)([4, 9, 2]) == 7


def test_the_examples_in_a_starter_are_true() -> None:
    for task in TASKS.values():
        scope: dict[str, Any] = {}
        exec(plain_solution(task), scope)
        [found] = doctest.DocTestFinder().find(scope[task.entry_point], globs=scope)
        assert len(found.examples) == 2
        assert doctest.DocTestRunner(verbose=False).run(found).failed == 0


def test_equal_seeds_give_equal_tasks_and_another_seed_others() -> None:
    assert plain_tasks(0, 20) == {k: TASKS[k] for k in list(TASKS)[:20]}
    assert plain_tasks(1, 20) != plain_tasks(0, 20)


def test_more_tasks_than_statements_are_refused() -> None:
    with pytest.raises(UserError, match="no number-gap statement is left"):
        plain_tasks(0, 200)


def test_the_command_writes_them_and_tool_use_has_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = {
        "domain": "coding", "source": "plain", "seed": 0,
        "sizes": {"train": 20, "validation": 10, "test": 10},
    }  # fmt: skip
    assert main(["tasks", "--settings", json.dumps(settings), "--out", str(tmp_path)]) == 0
    assert load_code_tasks(tmp_path / "tasks.jsonl").tasks == plain_tasks(0, 40)
    settings["domain"] = "tool_use"
    assert main(["tasks", "--settings", json.dumps(settings), "--out", str(tmp_path)]) == 2
    assert "allowed: files, tiny" in capsys.readouterr().err
