"""Test scores of every validated step of a run: marked rows that no choice is made by."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from lopd_repro.errors import UserError
from lopd_repro.files import read_jsonl_with_footer
from lopd_repro.report.scores import evaluation_file

BENCHMARK = "envscaler_candidates"

StepScores = dict[int, dict[str, float]]
"""`{step: {task: mean score over repeats}}`, scores in [0, 1]."""


def candidates_file(root: Path, domain: str, backbone: str, method: str, seed: int) -> Path:
    """Where a run's candidates' rows are."""
    return evaluation_file(root, BENCHMARK, domain, backbone, method, seed)


def read_candidates(path: Path) -> StepScores | str:
    """Scores of every step in the file, or why there are none."""
    if not path.is_file():
        return f"not run: {path} does not exist"
    rows, footer = read_jsonl_with_footer(path)
    if footer.get("expected") != len(rows) or not rows:
        return f"incomplete: {path} holds {len(rows)} of {footer.get('expected')} rows"
    sums: dict[int, Counter[str]] = {}
    counts: dict[int, Counter[str]] = {}
    for row in rows:
        step, task, score = row["step"], row["task_id"], row["score"]
        if not 0.0 <= score <= 1.0:
            raise UserError(f"{path}: task {task} has score {score}, allowed: 0 to 1")
        sums.setdefault(step, Counter())[task] += score
        counts.setdefault(step, Counter())[task] += 1
    first = next(iter(counts))
    odd = [step for step in counts if counts[step] != counts[first]]
    if odd:
        return f"incomplete: {path} covers other tasks at step {odd[0]} than at step {first}"
    return {
        step: {task: total / counts[step][task] for task, total in tasks.items()}
        for step, tasks in sorted(sums.items())
    }
