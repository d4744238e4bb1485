"""Recorded official results: every extraction, and verdicts of the programs that end by themselves.

All 287 verdicts are compared by `python -m lopd_repro.conformance ../shared/golden --only lcb`.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lopd_repro.benchmarks.lcb.grader import GraderSettings, grade
from lopd_repro.conformance.livecodebench import agrees, extractions, recorded_sample, verdicts

GOLDEN = Path(__file__).resolve().parents[2] / ".." / "shared" / "golden"
pytestmark = pytest.mark.skipif(
    not (GOLDEN / "lcb_verdicts.json").is_file(),
    reason="no golden vectors at ../shared/golden beside this repository",
)


def test_extractions() -> None:
    outcome = extractions({}, GOLDEN / "lcb_extraction.json")
    assert outcome.ok, outcome.detail


def test_verdicts_of_programs_that_end_by_themselves() -> None:
    cases = json.loads((GOLDEN / "lcb_verdicts.json").read_text())
    quick = [case for case in cases if case["input"]["timeout"] == 6 and not case["timing"]]
    assert len(quick) == 264
    # One in three here: the tests are to be quick.
    quick = quick[::3]
    graded = grade([recorded_sample(case) for case in quick], GraderSettings(rerun_timeouts=False))
    for case, verdict in zip(quick, graded, strict=True):
        assert agrees(verdict, case["output"]), (case["name"], verdict)


def test_a_changed_record_is_noticed(tmp_path: Path) -> None:
    """One program with four wrong records: a code, true for 1, the error code, the outcome."""
    cases = json.loads((GOLDEN / "lcb_verdicts.json").read_text())
    case = next(case for case in cases if case["name"] == "f_errors/eq_returns_one")
    for change in (
        {"codes": [1]},
        {"codes": [True, True]},
        {"metadata": {"error_code": -4}},
        {"passed": False},
    ):
        path = tmp_path / "changed.json"
        path.write_text(json.dumps([{**case, "output": {**case["output"], **change}}]))
        assert not verdicts({}, path).ok, change
