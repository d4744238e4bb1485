"""Mean, deviation and interval of a run set: on test as the tables form them, on validation.

Validation scores are recorded per run, not per task, so their interval is a bootstrap over seeds
alone (with three seeds: the range of the seeds), and says nothing about the choice of tasks.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from lopd_repro.report.figures.data.settings import FigureSettings
from lopd_repro.report.layout import TABLE1, Layout, TableSettings
from lopd_repro.report.runs import read_run, run_folder
from lopd_repro.report.table import build_table
from lopd_repro.stats import summarise

Numbers = dict[str, Any]
_ACE = ("ace_multi_step", "ace_multi_turn", "ace_avg")


@dataclass(frozen=True)
class Cell:
    """`value`, `std`, `ci_low`, `ci_high`, `n_seeds`, or nothing and the reasons."""

    numbers: Numbers
    problems: list[str] = field(default_factory=list)


def test_cells(
    root: Path, settings: FigureSettings, methods: Sequence[str], metric: str
) -> tuple[dict[str, Numbers], list[str]]:
    """A metric's cells on the test split, equal to the tables', and what is missing."""
    wanted = _ACE if metric == "ace_avg" else (metric,)
    layout = Layout(
        metric,
        metric,
        settings.domain,
        tuple(m for m in TABLE1.metrics if m.name in wanted),
    )
    unique = tuple(dict.fromkeys(methods))
    table = build_table(
        root,
        layout,
        TableSettings(
            scale=settings.scale,
            backbones=(settings.backbone,),
            methods=unique,
            labels={method: settings.label(method) for method in unique},
            paper_backbones={},
            seeds=tuple(settings.seeds),
            bootstrap_seed=settings.bootstrap_seed,
        ),
        {},
    )
    cells = {}
    for method, row in zip(unique, table.rows, strict=True):
        cells[method] = {
            "value": row[metric],
            **{key: row[f"{metric}_{key}"] for key in ("std", "ci_low", "ci_high")},
            "n_seeds": None if row[metric] is None else len(settings.seeds),
        }
    return cells, [*table.problems, *table.failures]


def over_seeds(scores: Sequence[float], settings: FigureSettings, key: str) -> Numbers:
    """Cell of one score per seed, each in [0, 1]; 0-100 in the result."""
    return over_tasks(np.asarray(scores, dtype=np.float64)[:, None], settings, key)


def over_tasks(scores: np.ndarray[Any, Any], settings: FigureSettings, key: str) -> Numbers:
    """Cell of `scores [S, T]` in [0, 1], with one task draw for all seeds as in the tables."""
    # A generator per cell, so that another point leaves this one's interval alone.
    text = f"{settings.bootstrap_seed}/{settings.backbone}/{key}"
    rng = np.random.default_rng(zlib.crc32(text.encode()))
    cell = summarise(100.0 * scores, rng, tasks="shared")
    return {
        "value": cell.mean,
        "std": cell.std,
        "ci_low": cell.ci_low,
        "ci_high": cell.ci_high,
        "n_seeds": cell.n_seeds,
    }


def chosen_validation(root: Path, settings: FigureSettings, method: str) -> Cell:
    """Validation score of each seed's chosen checkpoint.

    The choice was made on these scores, so they are a little too high; they are what a choice
    between methods has to go by.
    """
    problems: list[str] = []
    scores = []
    for seed in settings.seeds:
        folder = run_folder(root, settings.domain, settings.backbone, method, seed)
        run = read_run(folder, problems)
        if run is not None and run.selected_step in run.scores:
            scores.append(run.scores[run.selected_step])
        elif run is not None:
            problems.append(f"no validation score of step {run.selected_step}: {folder}")
    if problems:
        where = f"{settings.backbone} / {settings.label(method)} / validation"
        return Cell({}, [f"{where}: {problem}" for problem in problems])
    return Cell(over_seeds(scores, settings, f"{method}/validation"))
