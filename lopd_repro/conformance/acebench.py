"""Adapter for the recorded agent scores: `value_error` is the number of cases that differ."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lopd_repro.benchmarks.ace.scorer import Verdict, score
from lopd_repro.conformance.outcome import Outcome


def agent_scoring(_: dict[str, Any], path: Path) -> Outcome:
    """Every case's scores and error texts, and the averages over a batch of cases."""
    recorded = json.loads(path.read_text())
    cases = [*recorded["cases"], *recorded["batch_cases"]]
    differing = [case["name"] for case in cases if not _alike(case)]
    verdicts = [_verdict(case) for case in recorded["batch_cases"]]
    ours = {
        "end_to_end_accuracy": _mean([v.end_to_end for v in verdicts]),
        "process_accuracy": _mean([v.process for v in verdicts]),
    }
    if any(recorded["batch"][name] != value for name, value in ours.items()):
        differing.append("batch")
    detail = f"differing: {', '.join(differing)}" if differing else ""
    return Outcome(float(len(differing)), None, not differing, detail)


def _alike(case: dict[str, Any]) -> bool:
    official, envscaler = case["official"], case["envscaler"]
    try:
        verdict = _verdict(case)
    except IndexError:
        return bool(official.get("raises") == envscaler.get("raises") == "IndexError")
    if "raises" in official:
        return False
    errors = []
    if verdict.error_type:
        errors = [
            {"id": 0, "valid": False, "error": verdict.errors, "error_type": verdict.error_type}
        ]
    return bool(
        official["end_to_end"] == envscaler["end_to_end"] == verdict.end_to_end
        and official["process"] == round(verdict.process, 3)
        and official["errors"] == errors
        and envscaler["process"] == verdict.process
        and envscaler["error_type"] == verdict.error_type
    )


def _verdict(case: dict[str, Any]) -> Verdict:
    return score(case["result"], case["process"], case)


def _mean(values: list[float]) -> float:
    return round(sum(values) / len(values), 3)


ENTRIES: dict[str, Callable[[dict[str, Any], Path], Outcome]] = {"acebench": agent_scoring}
