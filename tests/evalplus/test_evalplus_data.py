"""Suites, counts and digests; HumanEval's own tests as one input."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT

from lopd_repro.benchmarks.evalplus.data import (
    FIELDS,
    TESTED,
    human_eval_parts,
    make_suite,
    read_problems,
)
from lopd_repro.benchmarks.evalplus.environment import Environment, find_environment
from lopd_repro.benchmarks.evalplus.mini import problem, suite, suite_texts
from lopd_repro.benchmarks.evalplus.official import Package
from lopd_repro.benchmarks.evalplus.settings import Settings
from lopd_repro.data.splits import normalise_text
from lopd_repro.data.tiny_coding import tiny_tasks
from lopd_repro.errors import UserError

FOLDER = ROOT / "eval" / "evalplus"
NOWHERE = Environment(Path("/nowhere/bin/python"), Path("/nowhere"), Path("/nowhere"))


def row(number: int) -> dict[str, Any]:
    return {**dict.fromkeys(FIELDS, ""), "task_id": f"HumanEval/{number}"}


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(one) + "\n" for one in rows))
    return path


def test_the_bundled_files_are_what_the_seed_makes() -> None:
    for name, text in suite_texts().items():
        assert (FOLDER / "data" / "mini" / name).read_text() == text
    found = make_suite(Settings(suite="mini"), FOLDER, NOWHERE)
    assert [(p.name, p.form, len(p.problems)) for p in found.ask] == [
        ("humaneval_plus", "humaneval", 36),
        ("mbpp_plus", "mbpp", 36),
    ]
    assert found.label == "mini-suite (EvalPlus form)"
    assert not found.partial


def test_mini_tasks_are_held_out_and_differ() -> None:
    texts = [row["prompt"] for rows in suite().values() for row in rows]
    assert len(set(texts)) == 72
    training = {normalise_text(t.statement) for t in tiny_tasks(0, 240).values()}
    assert not any(statement in normalise_text(text) for text in texts for statement in training)
    entries = [row["entry_point"] in row["prompt"] for rows in suite().values() for row in rows]
    assert all(entries)


def test_both_forms_of_a_task_run() -> None:
    task = next(t for t in tiny_tasks(1, 24).values() if t.kind == "function")
    for form in ("humaneval", "mbpp"):
        made = problem(task, form, 0)
        scope: dict[str, Any] = {}
        exec(made["prompt"] + made["canonical_solution"], scope)
        inputs = made["base_input"] + made["plus_input"]
        assert made["base_input"] and made["plus_input"]
        assert [scope[task.entry_point](*args) for args in inputs] == [
            case.expected for case in task.cases
        ]


def test_counts_digests_and_fields_are_checked(tmp_path: Path) -> None:
    path = write(tmp_path / "plus.jsonl", [row(n) for n in range(163)])
    given = {"datasets": ("humaneval_plus",), "humaneval_file": str(path)}
    with pytest.raises(UserError, match="MD5"):
        make_suite(Settings(**given), FOLDER, NOWHERE)
    with pytest.raises(UserError, match="holds 163 tasks, expected 164"):
        make_suite(Settings(**given, other_data=True), FOLDER, NOWHERE)
    write(path, [row(n) for n in range(164)])
    found = make_suite(Settings(**given, other_data=True), FOLDER, NOWHERE)
    assert found.partial  # one dataset of two fills no cell
    assert found.label == "partial: 164 tasks of HumanEval+ v0.1.10 (other files)"
    with pytest.raises(UserError, match="mbpp_file: missing"):
        make_suite(Settings(datasets=("mbpp_plus",)), FOLDER, NOWHERE)
    write(path, [row(0), row(0)])
    with pytest.raises(UserError, match="twice"):
        read_problems(path, 2)
    write(path, [{"task_id": "HumanEval/0"}])
    with pytest.raises(UserError, match="line 1 has no 'prompt'"):
        read_problems(path, 1)


def test_an_edited_mini_file_is_refused(tmp_path: Path) -> None:
    place = tmp_path / "data" / "mini"
    place.mkdir(parents=True)
    for file in (FOLDER / "data" / "mini").iterdir():
        (place / file.name).write_text(file.read_text())
    (place / "mbpp_plus.jsonl").write_text((place / "mbpp_plus.jsonl").read_text() + "\n")
    with pytest.raises(UserError, match="is not the file"):
        make_suite(Settings(suite="mini"), tmp_path, NOWHERE)


def test_settings_and_environment_errors(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"benchmark\.suite"):
        Settings(suite="plus")
    with pytest.raises(UserError, match=r"benchmark\.datasets"):
        Settings(datasets=("humaneval",))
    with pytest.raises(UserError, match="no environment"):
        find_environment(tmp_path / "bin" / "python")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").touch()
    (tmp_path / "pyvenv.cfg").touch()
    with pytest.raises(UserError, match="holds no evalplus"):
        find_environment(tmp_path / "bin" / "python")
    site = tmp_path / "lib" / "python3.11" / "site-packages"
    (site / "evalplus-0.2.0.dist-info").mkdir(parents=True)
    with pytest.raises(UserError, match=r"holds evalplus 0\.2\.0"):
        find_environment(tmp_path / "bin" / "python")
    with pytest.raises(UserError, match="memory_mb"):
        Package(NOWHERE, tmp_path, memory_mb=4096)


PROBLEM = {
    "task_id": "HumanEval/900",
    "prompt": "def helper(x):\n    return x + 1\n\ndef f(x):\n    '''Twice x.'''\n",
    "entry_point": "f",
    "canonical_solution": "    return 2 * x\n",
    "test": "def check(candidate):\n    assert candidate(1) == helper(1)\n    assert f(2) == 4\n",
}


@pytest.mark.parametrize(
    ("program", "alone", "passes"),
    [
        ("def f(x):\n    return 2 * x", True, True),
        ("def f(x):\n    return x + 1", True, False),  # the second test calls f by name: 3 is not 4
        ("def check(c):\n    pass\ndef f(x):\n    return 0", True, False),
        ("def f(x):\n    return helper(x - 1) + x", True, False),
        ("def f(x):\n    return helper(x - 1) + x", False, True),
        ("def g(x):\n    return 2 * x", True, False),
        ("def g(x):\n    return 2 * x", False, False),  # the prompt's own f returns None
    ],
)
def test_a_problems_own_tests_as_one_input(program: str, alone: bool, passes: bool) -> None:
    asked, scored = human_eval_parts([PROBLEM], "alone" if alone else "prompt")
    assert asked.entry_point(asked.problems[0]) == scored.entry_point(scored.problems[0]) == "f"
    assert scored.problems[0]["base_input"] == [[]] and scored.base_only
    scope: dict[str, Any] = {}
    exec(scored.whole("HumanEval/900", program), scope)
    if passes:
        assert scope[TESTED]() is True
    else:
        with pytest.raises((AssertionError, NameError)):
            scope[TESTED]()
    reference: dict[str, Any] = {}
    exec(scored.problems[0]["canonical_solution"], reference)
    assert reference[TESTED]() is True
