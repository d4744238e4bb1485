"""Our scores against recorded verdicts of the official code, and planted differences."""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path

import pytest

from lopd_repro.conformance.acebench import agent_scoring
from lopd_repro.conformance.framework import load_registry, main

GOLDEN = Path(__file__).resolve().parents[2] / ".." / "shared" / "golden"
FILE = GOLDEN / "acebench_agent_scoring.json"
needs_golden = pytest.mark.skipif(
    not FILE.is_file(), reason="no golden vectors at ../shared/golden beside this repository"
)


@needs_golden
def test_every_recorded_verdict_is_ours(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(GOLDEN), "--only", "acebench"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].endswith("0 differ, 0 not covered")
    assert load_registry().find({"name": "acebench_x"}) is agent_scoring


@needs_golden
def test_a_planted_difference_is_noticed_in_every_case(tmp_path: Path) -> None:
    recorded = json.loads(FILE.read_text())
    changed_file = tmp_path / "changed.json"
    for index, case in enumerate(recorded["cases"]):
        for side in ("official", "envscaler"):
            changed = deepcopy(recorded)
            verdict = changed["cases"][index][side]
            if "raises" in verdict:
                verdict["raises"] = "ValueError"
            else:
                verdict["process"] = 0.25
            changed_file.write_text(json.dumps(changed))
            outcome = agent_scoring({}, changed_file)
            assert not outcome.ok and case["name"] in outcome.detail
    recorded["batch"]["process_accuracy"] += 0.001
    changed_file.write_text(json.dumps(recorded))
    assert agent_scoring({}, changed_file).detail == "differing: batch"
