"""A table's rows: mean, deviation and interval per cell, beside the paper's printed numbers."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lopd_repro.report.layout import Layout, Metric, TableSettings
from lopd_repro.report.readings import Readings
from lopd_repro.report.scores import CellScores, read_cell
from lopd_repro.stats import Cell, bootstrap_means, mean_std, percentile_interval, score_matrix
from lopd_repro.stats.proportions import wilson

DRAWS = 10_000


@dataclass
class Table:
    """Rows in the contract's columns (0-100), what is missing and why, and notes for the reader.

    `readings` sums by metric what stands beside the official verdicts; `remarks` has the cells in
    which that is more than agreement. `binomial`: every interval is Wilson's. `checkpoints`: labels
    of released checkpoints, with the paper's method beside each.
    """

    columns: list[str]
    rows: list[dict[str, Any]]
    problems: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    sources: dict[str, list[str]] = field(default_factory=dict)
    choices: str = ""
    readings: dict[str, Readings] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)
    binomial: bool = False
    checkpoints: dict[str, str] = field(default_factory=dict)


def build_table(
    root: Path,
    table: Layout,
    settings: TableSettings,
    reported: Mapping[tuple[str, str, str], str],
) -> Table:
    """Rows for every backbone and method, and for released checkpoints; an incomplete cell is empty
    and named in `problems`.

    Beside the columns, `<metric>_printed` keeps the paper's digits for pages.
    """
    columns = ["scale", "backbone", "method", "n_seeds"]
    for metric in table.metrics:
        columns += [
            metric.name + suffix for suffix in ("", "_std", "_ci_low", "_ci_high", "_reported")
        ]
    result = Table(columns, [], binomial=table.binomial)
    for backbone in settings.backbones:
        for method in settings.methods:
            label = settings.labels[method]
            asked = _Asked(backbone, method, label, settings.seeds, label)
            result.rows.append(_row(root, table, settings, asked, reported, result))
        for one in settings.released:
            if one.backbone == backbone:
                once = settings.seeds[:1]
                asked = _Asked(backbone, one.name, one.label, once, one.paper_method)
                result.rows.append(_row(root, table, settings, asked, reported, result))
                result.checkpoints.setdefault(one.label, one.paper_method)
    return result


@dataclass(frozen=True)
class _Asked:
    """Which rows a table's row is made from, and the paper's method beside it."""

    backbone: str
    method: str
    label: str
    seeds: tuple[int, ...]
    paper_method: str


def _row(
    root: Path,
    table: Layout,
    settings: TableSettings,
    asked: _Asked,
    reported: Mapping[tuple[str, str, str], str],
    result: Table,
) -> dict[str, Any]:
    row: dict[str, Any] = {
        "scale": settings.scale,
        "backbone": asked.backbone,
        "method": asked.label,
        "n_seeds": len(asked.seeds),
    }
    cells = _cells(root, table, asked, result)
    for metric in table.metrics:
        parts = cells[metric.name]
        row.update(_columns(metric, parts, settings.bootstrap_seed, asked))
        if table.binomial and parts is not None:
            interval = _wilson_columns(metric.name, parts)
            row.update(interval or {})
            result.binomial = result.binomial and interval is not None
        paper = settings.paper_backbones.get(asked.backbone, "")
        printed = reported.get((paper, asked.paper_method, metric.name))
        row[f"{metric.name}_reported"] = None if printed is None else float(printed)
        row[f"{metric.name}_printed"] = printed
    return row


def comparison_cells(root: Path, table: Layout, settings: TableSettings) -> list[Cell]:
    """Scores of every measured metric and backbone, methods side by side, for paired tests."""
    cells = []
    for metric in table.metrics:
        if metric.parts:
            continue
        for backbone in settings.backbones:
            scores = {}
            for method in settings.methods:
                cell = read_cell(root, metric, table.domain, backbone, method, settings.seeds)
                if cell.problem is None:
                    scores[method] = {
                        seed: {task: 100.0 * s for task, s in tasks.items()}
                        for seed, tasks in cell.scores.items()
                    }
            if len(scores) > 1:
                cells.append(Cell(metric.name, backbone, scores))
    return cells


def _cells(
    root: Path,
    table: Layout,
    asked: _Asked,
    result: Table,
) -> dict[str, dict[str, NDArray[np.float64]] | None]:
    """Per metric the score matrices `[seeds, tasks]` its value is formed from, by part."""
    measured: dict[str, NDArray[np.float64] | None] = {}
    for metric in table.metrics:
        if metric.parts:
            continue
        cell: CellScores = read_cell(
            root, metric, table.domain, asked.backbone, asked.method, asked.seeds
        )
        where = f"{asked.backbone} / {asked.label} / {metric.name}"
        if cell.problem is not None:
            result.problems.append(f"{where}: {cell.problem}")
            measured[metric.name] = None
            continue
        if cell.failed:
            result.failures.append(f"{where}: {cell.failed} episodes ended with a status not ok")
        result.readings.setdefault(metric.name, Readings()).merge(cell.readings)
        if cell.readings.remarkable:
            result.remarks.append(f"{where}: {cell.readings.sentence()}")
        result.sources.setdefault(metric.name, [])
        for source in sorted(cell.sources):
            if source not in result.sources[metric.name]:
                result.sources[metric.name].append(source)
        measured[metric.name] = score_matrix(cell.scores, seeds=asked.seeds)
    cells: dict[str, dict[str, NDArray[np.float64]] | None] = {}
    for metric in table.metrics:
        names = metric.parts or (metric.name,)
        parts = {name: measured[name] for name in names}
        complete = {name: matrix for name, matrix in parts.items() if matrix is not None}
        cells[metric.name] = complete if len(complete) == len(parts) else None
    return cells


def _columns(
    metric: Metric,
    parts: dict[str, NDArray[np.float64]] | None,
    bootstrap_seed: int,
    asked: _Asked,
) -> dict[str, float | None]:
    name = metric.name
    if parts is None:
        return {name: None, f"{name}_std": None, f"{name}_ci_low": None, f"{name}_ci_high": None}
    weights = metric.weights or (1.0,) * len(parts)
    total = sum(weights)
    per_seed = sum(
        w / total * matrix.mean(axis=1) for w, matrix in zip(weights, parts.values(), strict=True)
    )
    # A generator per cell: adding a method or a metric leaves the other cells' intervals alone.
    key = f"{bootstrap_seed}/{asked.backbone}/{asked.method}/{name}"
    rng = np.random.default_rng(zlib.crc32(key.encode()))
    draws = sum(
        w / total * bootstrap_means(matrix, rng, draws=DRAWS, tasks="shared")
        for w, matrix in zip(weights, parts.values(), strict=True)
    )
    interval = percentile_interval(np.asarray(draws))
    mean, std = mean_std([float(v) for v in np.asarray(per_seed)])
    return {
        name: 100.0 * mean,
        f"{name}_std": None if std is None else 100.0 * std,
        f"{name}_ci_low": 100.0 * interval.low,
        f"{name}_ci_high": 100.0 * interval.high,
    }


def _wilson_columns(name: str, parts: dict[str, NDArray[np.float64]]) -> dict[str, float] | None:
    """Wilson's interval of one seed's yes-or-no scores; None for other scores."""
    [matrix] = parts.values()
    if len(matrix) > 1 or not np.isin(matrix, (0.0, 1.0)).all():
        return None
    found = wilson(float(matrix.sum()), matrix.size)
    return {f"{name}_ci_low": 100.0 * found.low, f"{name}_ci_high": 100.0 * found.high}
