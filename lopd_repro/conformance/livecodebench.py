"""Adapters for LiveCodeBench's recorded verdicts and extractions.

`value_error` is the number of cases that differ. Codes, pass or fail, and the error code must be
equal; wording is not compared. A case marked `timing` depends on the machine: where it differs it
is graded once more, alone, and then only named.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from lopd_repro.benchmarks.lcb import extract
from lopd_repro.benchmarks.lcb.grader import GraderSettings, Problem, Sample, Verdict, grade
from lopd_repro.conformance.outcome import Outcome

_SETTINGS = GraderSettings(rerun_timeouts=False)


def recorded_sample(case: dict[str, Any]) -> Sample:
    """A recorded program with its problem and time limit."""
    given = case["input"]
    problem = Problem(
        given["problem_id"], tuple(given["inputs"]), tuple(given["outputs"]), given["fn_name"]
    )
    return Sample(problem, given["program"], float(given["timeout"]))


def agrees(verdict: Verdict, recorded: dict[str, Any]) -> bool:
    """Equal codes (true is not 1), pass or fail, and error code."""
    return (
        list(map(repr, verdict.codes)) == list(map(repr, recorded["codes"]))
        and verdict.passed == recorded["passed"]
        and verdict.error_code == recorded["metadata"].get("error_code")
    )


def verdicts(_: dict[str, Any], path: Path) -> Outcome:
    """Every program through the grader's faithful rules."""
    cases = json.loads(path.read_text())
    differing, noted = [], []
    graded = grade([recorded_sample(case) for case in cases], _SETTINGS)
    for case, verdict in zip(cases, graded, strict=True):
        if agrees(verdict, case["output"]):
            continue
        if not case["timing"]:
            differing.append(f"{case['name']} {list(verdict.codes)}")
        elif not agrees(_alone(case), case["output"]):
            noted.append(case["name"])
    detail = [f"differing: {', '.join(differing)}"] if differing else []
    detail += [f"time-dependent cases that differ here: {', '.join(noted)}"] if noted else []
    return Outcome(float(len(differing)), None, not differing, "; ".join(detail))


def _alone(case: dict[str, Any]) -> Verdict:
    return grade([recorded_sample(case)], replace(_SETTINGS, workers=1))[0]


def extractions(_: dict[str, Any], path: Path) -> Outcome:
    """Every text through `extract.official`."""
    cases = json.loads(path.read_text())
    differing = [
        case["name"]
        for case in cases
        if extract.official(case["input"]["text"], case["input"]["style"]) != case["output"]["code"]
    ]
    detail = f"differing: {', '.join(differing)}" if differing else ""
    return Outcome(float(len(differing)), None, not differing, detail)


ENTRIES: dict[str, Callable[[dict[str, Any], Path], Outcome]] = {
    "lcb_verdicts": verdicts,
    "lcb_extraction": extractions,
}
