"""Figure 4: mean reward against generations, on validation, and on test as a series of its own.

The test series scores every candidate checkpoint. No choice reads it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lopd_repro.errors import UserError
from lopd_repro.report.candidates import candidates_file, read_candidates
from lopd_repro.report.figures.data.cells import over_seeds, over_tasks
from lopd_repro.report.figures.data.paper import read_printed
from lopd_repro.report.figures.data.settings import FigureSettings
from lopd_repro.report.figures.points import TEST, VALIDATION, FigureData, Point
from lopd_repro.report.runs import Run, read_run, run_folder
from lopd_repro.report.scores import SeedScores
from lopd_repro.stats import score_matrix

_METRIC = "envscaler"


def curve_points(root: Path, settings: FigureSettings, reported: Path) -> FigureData:
    """Curves of the configured methods; a point that some seed lacks is empty and named."""
    methods = settings.figure4.get("methods")
    if not isinstance(methods, list) or not methods:
        raise UserError(f"settings.figure4.methods: found {methods!r}, allowed: a filled list")
    data = FigureData()
    for method in methods:
        where = f"{settings.backbone} / {settings.label(method)}"
        runs = _read_runs(root, settings, method, where, data)
        if runs:
            generations = _generations(runs, where)
            _validation_curve(settings, method, where, runs, generations, data)
            _test_curve(root, settings, method, where, generations, data)
    for p in read_printed(reported, 100.0):
        # The paper does not say on which tasks its curves were measured.
        data.points.append(
            p.point(
                "figure4",
                settings.paper_backbone,
                series=p.series,
                label=p.series,
                metric=_METRIC,
                split="",
            )
        )
    return data


def _read_runs(
    root: Path, settings: FigureSettings, method: str, where: str, data: FigureData
) -> dict[int, Run]:
    """Runs by seed; empty if one is missing."""
    found, problems = {}, list[str]()
    for seed in settings.seeds:
        folder = run_folder(root, settings.domain, settings.backbone, method, seed)
        run = read_run(folder, problems)
        if run is not None:
            found[seed] = run
    data.problems += [f"{where} / validation: {problem}" for problem in problems]
    return {} if problems else found


def _generations(runs: Mapping[int, Run], where: str) -> dict[int, int]:
    """Generations of each validated step, which must be the same for every seed."""
    found: dict[int, set[int]] = defaultdict(set)
    for run in runs.values():
        for row in run.validated:
            found[row.step].add(row.generations)
    for step, values in found.items():
        if len(values) > 1:
            raise UserError(f"{where}: step {step} is at {sorted(values)} generations by seed")
    return {step: found[step].pop() for step in sorted(found)}


def _validation_curve(
    settings: FigureSettings,
    method: str,
    where: str,
    runs: Mapping[int, Run],
    generations: dict[int, int],
    data: FigureData,
) -> None:
    rewards = {s: {row.step: row.reward for row in run.validated} for s, run in runs.items()}
    for step, count in generations.items():
        lacking = [seed for seed in settings.seeds if rewards[seed].get(step) is None]
        numbers: dict[str, Any] = {}
        if lacking:
            data.problems.append(
                f"{where} / validation: incomplete: no score of step {step} for seed {lacking[0]}"
            )
        else:
            scores = [rewards[seed][step] for seed in settings.seeds]
            numbers = over_seeds(scores, settings, f"{method}/validation/{step}")
        data.points.append(_point(settings, method, count, VALIDATION, numbers))


def _test_curve(
    root: Path,
    settings: FigureSettings,
    method: str,
    where: str,
    generations: dict[int, int],
    data: FigureData,
) -> None:
    by_step: dict[int, SeedScores] = defaultdict(dict)
    for seed in settings.seeds:
        path = candidates_file(root, settings.domain, settings.backbone, method, seed)
        found = read_candidates(path)
        if isinstance(found, str):
            data.problems.append(f"{where} / test: {found}")
            continue
        for step, scores in found.items():
            by_step[step][seed] = scores
    for step, by_seed in sorted(by_step.items()):
        if step not in generations:
            raise UserError(f"{where}: a candidate of step {step}, which was not validated")
        numbers: dict[str, Any] = {}
        try:
            matrix = score_matrix(by_seed, seeds=settings.seeds)
            numbers = over_tasks(matrix, settings, f"{method}/test/{step}")
        except ValueError as error:
            data.problems.append(f"{where} / test: incomplete: step {step}: {error}")
        data.points.append(_point(settings, method, generations[step], TEST, numbers))


def _point(
    settings: FigureSettings, method: str, generations: int, split: str, numbers: dict[str, Any]
) -> Point:
    return settings.point(
        "figure4",
        method,
        series=settings.label(method),
        x=str(generations),
        metric=_METRIC,
        split=split,
        **numbers,
    )
