"""Adapters for the recorded verdicts of BFCL's multi-turn checker: the installed package's own.

This project scores BFCL with the official code, so what is compared is the release in its
environment, run in the sandbox as in a benchmark. `value_error` is the number of cases that
differ. Without that environment the entries are not covered, with the reason.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lopd_repro.benchmarks.bfcl_data import RELEASES, default_python, find_environment
from lopd_repro.conformance.outcome import AbsentError, Outcome
from lopd_repro.errors import UserError
from lopd_repro.sandbox import Limits, run

LIMITS = Limits(memory_mb=4096, cpu_seconds=120, wall_seconds=300, processes=64, open_files=1024)


def official_verdicts(entry: dict[str, Any], path: Path) -> Outcome:
    """Every case's verdict, error type and message, differing attributes and missing results."""
    release = next((r for r in RELEASES.values() if r.version in str(entry.get("source"))), None)
    if release is None:
        raise AbsentError("the entry's source names no known release of bfcl-eval")
    root = Path(__file__).resolve().parents[2]
    folder = root / "eval" / "bfcl"
    try:
        environment = find_environment(default_python(root, release), release)
    except UserError as error:
        raise AbsentError(str(error)) from None
    cases = json.loads(path.read_text())["cases"]
    outcome = run(
        [str(environment.python), str(folder / "check_cases.py")],
        LIMITS,
        readable=[folder],
        stdin=json.dumps(cases).encode(),
    )
    if outcome.verdict != "ok":
        said = outcome.stderr.decode(errors="replace").strip().splitlines()
        raise RuntimeError(f"{outcome.verdict}: {said[-1] if said else 'no message'}")
    differing = [
        f"{case['name']} {case['id']}"
        for case, ours in zip(cases, json.loads(outcome.stdout), strict=True)
        if ours != _recorded(case["official"])
    ]
    detail = f"differing: {', '.join(differing)}" if differing else f"bfcl-eval {release.version}"
    return Outcome(float(len(differing)), None, not differing, detail)


def _recorded(official: dict[str, Any]) -> dict[str, Any]:
    if "differing_attributes" in official:
        return {**official, "differing_attributes": sorted(official["differing_attributes"])}
    return official


ENTRIES: dict[str, Callable[[dict[str, Any], Path], Outcome]] = {"bfcl": official_verdicts}
