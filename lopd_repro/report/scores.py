"""Evaluation files into score matrices; what is missing or incomplete is named, never filled in."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lopd_repro.errors import UserError
from lopd_repro.files import read_jsonl_with_footer
from lopd_repro.report.layout import Metric, TableSettings
from lopd_repro.report.readings import Readings

SeedScores = dict[int, dict[str, float]]


@dataclass
class CellScores:
    """Scores of one metric, backbone and method: `{seed: {task: mean over repeats}}`.

    `problem` says why the cell is empty. `failed` counts rows whose status is not `ok`; they
    are scored as they stand and stay in the denominator. `sources` names data and scorer.
    `readings` counts what stands beside official verdicts on programs.
    """

    scores: SeedScores = field(default_factory=dict)
    problem: str | None = None
    failed: int = 0
    sources: set[str] = field(default_factory=set)
    readings: Readings = field(default_factory=Readings)


def evaluation_file(
    root: Path, benchmark: str, domain: str, backbone: str, method: str, seed: int
) -> Path:
    """Where one run's rows on one benchmark are."""
    return root / "eval" / benchmark / domain / backbone / method / f"seed{seed}.jsonl"


def read_cell(
    root: Path, metric: Metric, domain: str, backbone: str, method: str, seeds: Sequence[int]
) -> CellScores:
    """A measured metric's cell over all seeds; a missing seed or count empties the cell."""
    cell = CellScores()
    for seed in seeds:
        path = evaluation_file(root, metric.benchmark, domain, backbone, method, seed)
        if not path.is_file():
            return CellScores(problem=f"not run: {path} does not exist")
        rows, footer = read_jsonl_with_footer(path)
        if footer.get("expected") != len(rows):
            return CellScores(
                problem=f"incomplete: {path} holds {len(rows)} of {footer.get('expected')} rows"
            )
        if footer.get("partial"):
            return CellScores(problem=f"not whole: {path} covers {footer.get('data')}")
        chosen = [r for r in rows if metric.category is None or r["category"] == metric.category]
        if not chosen:
            return CellScores(problem=f"incomplete: {path} has no row of {metric.category}")
        by_task: dict[str, list[float]] = defaultdict(list)
        for row in chosen:
            if not 0.0 <= row["score"] <= 1.0:
                raise UserError(f"{path}: task {row['task_id']} has score {row['score']}")
            by_task[row["task_id"]].append(row["score"])
            cell.failed += row["status"] != "ok"
        cell.readings.add(chosen)
        cell.scores[seed] = {task: sum(v) / len(v) for task, v in by_task.items()}
        cell.sources.add(f"{footer.get('data', 'unnamed data')}, {footer.get('scorer', '?')}")
    if len(cell.sources) > 1:
        return CellScores(problem=f"mixed: {metric.name} has {' and '.join(sorted(cell.sources))}")
    tasks = {frozenset(scores) for scores in cell.scores.values()}
    if len(tasks) > 1:
        return CellScores(problem=f"incomplete: seeds of {metric.name} cover different tasks")
    return cell


def noop_floor(root: Path, domain: str, settings: TableSettings) -> dict[str, float]:
    """Do-nothing score (0-100) of each metric whose rows record one, from the first run found."""
    path = evaluation_file(
        root, "envscaler", domain, settings.backbones[0], settings.methods[0], settings.seeds[0]
    )
    if not path.is_file():
        return {}
    rows, _ = read_jsonl_with_footer(path)
    by_task = {row["task_id"]: float(row["noop_reward"]) for row in rows}
    return {"envscaler": 100.0 * sum(by_task.values()) / len(by_task)}
