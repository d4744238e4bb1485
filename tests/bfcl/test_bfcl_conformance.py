"""Recorded verdicts through the installed release, and what is said where it is absent."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lopd_repro.benchmarks.bfcl_data import RELEASES, default_python, find_environment
from lopd_repro.conformance.framework import load_registry, run
from lopd_repro.errors import UserError

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT.parent / "shared" / "golden"
SOURCE = "PyPI bfcl_eval 2026.3.23 bfcl_eval/eval_checker"


def write_golden(folder: Path, cases: list[dict[str, object]], source: str = SOURCE) -> None:
    entry = {"name": "bfcl_entry_eval", "file": "cases.json", "source": source}
    (folder / "manifest.json").write_text(json.dumps({"entries": [entry]}))
    (folder / "cases.json").write_text(json.dumps({"cases": cases}))


def test_an_absent_environment_is_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LOPD_BFCL_V4_PYTHON", str(tmp_path / "none" / "bin" / "python"))
    write_golden(tmp_path, [])
    assert run(tmp_path, load_registry()) == 0
    said = capsys.readouterr().out
    assert "not covered here  (bfcl: no environment at" in said
    assert "0 ok, 0 differ, 1 not covered" in said
    write_golden(tmp_path, [], source="bfcl_eval 1999.1.1")
    assert run(tmp_path, load_registry()) == 0
    assert "names no known release" in capsys.readouterr().out


def test_recorded_verdicts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of the recorded cases exactly the three that were falsified differ."""
    path = GOLDEN / "bfcl_entry_eval.json"
    if not path.is_file():
        pytest.skip(f"{path} is absent")
    try:
        find_environment(default_python(ROOT, RELEASES["v4"]), RELEASES["v4"])
    except UserError as error:
        pytest.skip(str(error))
    cases = json.loads(path.read_text())["cases"]
    cases += json.loads((GOLDEN / "bfcl_multi_turn_checker.json").read_text())["cases"]
    failing = [case for case in cases if not case["official"]["valid"]]
    passing = [case for case in cases if case["official"]["valid"]]
    failing[0]["official"]["error_type"] = "multi_turn:other"
    failing[-1]["official"] = {"valid": True}
    passing[0]["official"] = {**failing[1]["official"]}
    write_golden(tmp_path, cases)
    assert run(tmp_path, load_registry()) == 1
    said = capsys.readouterr().out.splitlines()[-2]
    assert "values 3.00e+00" in said
    changed = [case for case in cases if case in (failing[0], failing[-1], passing[0])]
    names = ", ".join(f"{case['name']} {case['id']}" for case in changed)
    assert f"(differing: {names})" in said
