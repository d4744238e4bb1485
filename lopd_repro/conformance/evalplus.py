"""Adapters for the recorded EvalPlus cases, through the installed official package.

`value_error` is the number of cases that differ. Where the package's environment is missing the
entries are not covered here. Beside the recorded verdicts stands the strict reading: the detail
says how many verdicts it would change.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lopd_repro.benchmarks.evalplus.environment import default_python, find_environment
from lopd_repro.benchmarks.evalplus.official import Package, Part, Verdict
from lopd_repro.benchmarks.evalplus.strict import read_strictly
from lopd_repro.conformance.outcome import AbsentError, Outcome
from lopd_repro.errors import UserError

_REPOSITORY = Path(__file__).resolve().parents[2]
_FORMS = ("humaneval", "mbpp")
Case = dict[str, Any]


def installed() -> Package:
    """The package in its environment; `AbsentError` where there is none."""
    try:
        environment = find_environment(default_python(_REPOSITORY))
    except UserError as error:
        raise AbsentError(str(error)) from None
    launcher = _REPOSITORY / "eval" / "evalplus" / "launch.py"
    if not launcher.is_file():
        raise AbsentError(f"{launcher} is not there; run it from a checkout")
    return Package(environment, launcher)


def sanitized(_: Case, path: Path) -> Outcome:
    """Every text's program."""
    package, cases = installed(), json.loads(path.read_text())
    texts = [(case["input"]["text"], case["input"]["entrypoint"] or "") for case in cases]
    found = package.sanitize(texts)
    differing = [
        case["name"]
        for case, ours in zip(cases, found, strict=True)
        if ours != case["output"]["code"]
    ]
    return _outcome(len(cases), differing, [])


def verdicts(_: Case, path: Path) -> Outcome:
    """Every program's statuses and details, in the fast mode and with all details.

    Cases marked `timing` depend on the machine: where one differs, the detail names it.
    """
    package, cases = installed(), json.loads(path.read_text())
    differing, slow = compare(package, cases)
    readings = _strict(cases)
    other = sum(
        right != case["output"]["passed_base_and_plus"]
        for case, right in zip(cases, readings, strict=True)
    )
    notes = [f"a strict reading changes {other} of {len(cases)} verdicts"]
    if slow:
        notes.append(f"depending on the machine, and different here: {', '.join(slow)}")
    return _outcome(len(cases), differing, notes)


def compare(package: Package, cases: list[Case]) -> tuple[list[str], list[str]]:
    """Names of the cases that differ from what was recorded, those marked `timing` apart."""
    parts, answers, own = [], {}, {}
    for details in (False, True):
        for form in _FORMS:
            name = f"{form}-{'details' if details else 'fast'}"
            own[name] = [case for case in cases if case["input"]["dataset"] == form]
            if not own[name]:
                continue
            problems = _problems(own[name])
            as_they_are = {problem["task_id"]: "" for problem in problems}
            parts.append(Part(name, form, problems, as_they_are, test_details=details, rerun=False))
            answers[name] = _programs(own[name])
    found = package.score(parts, answers)
    differing: dict[str, bool] = {}
    for part in parts:
        for case, verdict in zip(own[part.name], found[part.name], strict=True):
            output = case["output"]
            recorded = output["test_details_mode"] if part.test_details else output
            if not _alike(verdict, recorded):
                differing[case["name"]] = case["timing"]
    return [n for n, timing in differing.items() if not timing], [
        n for n, timing in differing.items() if timing
    ]


def _alike(verdict: Verdict, recorded: dict[str, Any]) -> bool:
    details = ["".join("01"[ok] for ok in recorded[f"{kind}_details"]) for kind in ("base", "plus")]
    return (verdict.base, verdict.plus) == (
        recorded["base_status"],
        recorded["plus_status"],
    ) and [verdict.base_details, verdict.plus_details] == details


def _strict(cases: list[Case]) -> list[bool]:
    """Whether each program is right, in the order of the cases."""
    own = {form: [case for case in cases if case["input"]["dataset"] == form] for form in _FORMS}
    parts = [Part(form, form, _problems(some)) for form, some in own.items()]
    readings = read_strictly(parts, {form: _programs(some) for form, some in own.items()})
    by_name = {
        case["name"]: reading.right
        for form, some in own.items()
        for case, reading in zip(some, readings[form], strict=True)
    }
    return [by_name[case["name"]] for case in cases]


def _problems(cases: list[Case]) -> list[Case]:
    problems = {case["input"]["problem"]["task_id"]: case["input"]["problem"] for case in cases}
    return list(problems.values())


def _programs(cases: list[Case]) -> list[tuple[str, str]]:
    return [(case["input"]["problem"]["task_id"], case["input"]["solution"]) for case in cases]


def _outcome(count: int, differing: list[str], notes: list[str]) -> Outcome:
    if not count:
        return Outcome(0.0, None, False, "no case was compared")
    failed = [f"differing: {', '.join(differing)}"] if differing else []
    return Outcome(float(len(differing)), None, not differing, "; ".join([*failed, *notes]))


ENTRIES: dict[str, Callable[[Case, Path], Outcome]] = {
    "evalplus_sanitize": sanitized,
    "evalplus_verdicts": verdicts,
}
SOURCES: dict[str, Callable[[Case, Path], Outcome]] = {
    "evalplus.sanitize.sanitize": sanitized,
    "evalplus.evaluate.check_correctness": verdicts,
}
