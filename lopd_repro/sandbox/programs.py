"""Programs judged by tests: the project's own rule, for training rewards and mini-suites.

    {"type": "stdin", "cases": [{"input": "...", "output": "..."}]}
    {"type": "function", "entry_point": "f", "cases": [{"args": [...], "expected": ...}]}

A program passes if every case does (`compare` says when). Its verdict is that of its first
case that does not pass: wrong, timeout, memory, crash or refused.

The expected results stay in this process; the program's process receives its code and the
inputs. What a hostile program can still do to its own score is therefore what any program can:
return or print what it guesses. It can see the inputs of all its cases at once, so it can tell
them apart without computing, but not what is expected of it. It can choose which
kind of failure is reported. It cannot reach another program's process, files or score.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lopd_repro.errors import UserError
from lopd_repro.files import read_json
from lopd_repro.sandbox.compare import same_output, same_value
from lopd_repro.sandbox.executor import CaseResult, Executor, Job, JobResult

KINDS = ("stdin", "function")


@dataclass(frozen=True)
class Tests:
    """Inputs and what is expected for each: texts, or argument lists and values."""

    kind: str
    inputs: tuple[Any, ...]
    expected: tuple[Any, ...]
    entry_point: str = ""


@dataclass(frozen=True)
class Program:
    """A program's text and the tests that judge it."""

    code: str
    tests: Tests


@dataclass(frozen=True)
class Judgement:
    """`verdict` of the whole; `cases` has each case's own, and `results` how it ended."""

    verdict: str
    cases: tuple[str, ...]
    results: tuple[CaseResult, ...]
    isolation: dict[str, Any]

    @property
    def passed(self) -> bool:
        return self.verdict == "passed"


def parse_tests(document: Any, where: str) -> Tests:
    """Tests from their JSON form. `UserError` names the field that is wrong."""
    if not isinstance(document, dict) or document.get("type") not in KINDS:
        found = document.get("type") if isinstance(document, dict) else document
        raise UserError(f"{where}: type: found {found!r:.80}, allowed: {', '.join(KINDS)}")
    kind = document["type"]
    entry_point = document.get("entry_point", "")
    if kind == "function" and not (isinstance(entry_point, str) and entry_point.isidentifier()):
        raise UserError(f"{where}: entry_point: found {entry_point!r:.80}, allowed: a name")
    cases = document.get("cases")
    if not isinstance(cases, list) or not cases:
        raise UserError(f"{where}: cases: found {cases!r:.80}, allowed: a list with a case or more")
    given, wanted, kinds = ("input", "output", (str, str))
    if kind == "function":
        given, wanted, kinds = "args", "expected", (list, object)  # type: ignore[assignment]
    for number, case in enumerate(cases):
        for field, allowed in zip((given, wanted), kinds, strict=True):
            if not isinstance(case, dict) or field not in case:
                raise UserError(f"{where}: cases[{number}]: no {field!r}")
            if not isinstance(case[field], allowed):
                what = "text" if allowed is str else "a list"
                raise UserError(
                    f"{where}: cases[{number}].{field}: found {case[field]!r:.80}, allowed: {what}"
                )
    inputs, expected = [c[given] for c in cases], [c[wanted] for c in cases]
    return Tests(kind, tuple(inputs), tuple(expected), entry_point if kind == "function" else "")


def read_tests(path: Path) -> Tests:
    """Tests from a JSON file."""
    return parse_tests(read_json(path), str(path))


def judge(
    executor: Executor, programs: Sequence[Program], *, stop: bool = False
) -> list[Judgement]:
    """Run all programs and judge them, in order. `stop` skips cases after a bad end.

    With `stop` the verdicts are the same; the cases that were not run are `skipped`.
    """
    jobs = [
        Job(one.tests.kind, one.code, one.tests.inputs, one.tests.entry_point, stop)
        for one in programs
    ]
    results = executor.run(jobs)
    return [grade(one.tests, result) for one, result in zip(programs, results, strict=True)]


def grade(tests: Tests, result: JobResult) -> Judgement:
    """The verdicts on what a program's cases gave."""
    cases = tuple(
        _grade_case(tests.kind, case, expected)
        for case, expected in zip(result.cases, tests.expected, strict=True)
    )
    verdict = next((one for one in cases if one != "passed"), "passed")
    return Judgement(verdict, cases, result.cases, result.isolation)


def _grade_case(kind: str, case: CaseResult, expected: Any) -> str:
    if case.verdict != "ok":
        return case.verdict
    if kind == "stdin":
        same = same_output(case.stdout.decode("utf-8", "replace"), expected)
    else:
        same = same_value(case.value, expected)
    return "passed" if same else "wrong"
