"""What validation chose, what choosing on test would have printed, and the difference.

One row per grid (margin, latents, retrieved), made once for all training seeds, and for the
checkpoint one row per method and seed with a summary row (`seed` is "all") that averages the
seeds. Scores are on a scale of 0 to 100.

    candidates, validation_scores, test_scores
        values or steps, and the score each got; test scores are means over seeds and tasks
    rule
        how validation chose, in words
    chosen_on_validation, validation_score, test_score
        the choice that counts; its two scores. The validation score is the highest of several
        and so flatters; the test score took no part
    chosen_on_test, printed_if_chosen_on_test
        the highest test score (ties as the rule resolves them)
    optimism, optimism_ci_low, optimism_ci_high
        printed_if_chosen_on_test - test_score; 95% bootstrap interval over seeds and tasks with
        the choice made anew on every draw
    halves_optimism, halves_winners_curse, halves_real_gain
        choosing on one half of the test tasks, scoring on the other; curse + gain = optimism

How to read interval and halves: `lopd_repro/stats/optimism.py`. A choice that a missing or
incomplete run belongs to is left empty and named in `problems`.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from lopd_repro.report.analysis import AnalysisSettings
from lopd_repro.report.candidates import candidates_file, read_candidates
from lopd_repro.report.layout import TABLE1
from lopd_repro.report.runs import Run, read_run, run_folder
from lopd_repro.report.scores import read_cell
from lopd_repro.report.selection_rule import CHECKPOINT, AxisRule
from lopd_repro.stats import (
    first_best,
    halves,
    percentile_interval,
    redone_across,
    redone_within,
    score_matrix,
)
from lopd_repro.stats.optimism import FloatArray, IntArray

SELECTION_COLUMNS = (
    "scale",
    "backbone",
    "choice",
    "method",
    "seed",
    "n_seeds",
    "n_tasks",
    "metric",
    "candidates",
    "configured",
    "rule",
    "validation_scores",
    "chosen_on_validation",
    "validation_score",
    "test_score",
    "test_scores",
    "chosen_on_test",
    "printed_if_chosen_on_test",
    "optimism",
    "optimism_ci_low",
    "optimism_ci_high",
    "halves_optimism",
    "halves_winners_curse",
    "halves_real_gain",
)

ALL = "all"
_METRIC = next(metric for metric in TABLE1.metrics if metric.name == "envscaler")


@dataclass
class SelectionReport:
    """Rows, what was chosen (`{choice: ...}`, None where it could not be), and what is missing."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    chosen: dict[str, Any] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


def select(
    root: Path, settings: AnalysisSettings, rules: Mapping[str, AxisRule]
) -> SelectionReport:
    """Every choice that the rule file names and the settings have candidates for."""
    report = SelectionReport()
    for name, rule in rules.items():
        if name == CHECKPOINT:
            for method in [*settings.trained(), *settings.variants()]:
                _checkpoints(root, settings, method, report)
        elif settings.grid(name):
            _grid(root, settings, name, rule, report)
    return report


def _grid(
    root: Path, settings: AnalysisSettings, name: str, rule: AxisRule, report: SelectionReport
) -> None:
    grid = settings.grid(name)
    if rule.ties == "largest":
        grid.reverse()
    values = [value for value, _ in grid]
    row = _row(settings, name, "lopd", ALL, len(settings.seeds))
    row["candidates"] = "; ".join(value for value, _ in settings.grid(name))
    row["configured"] = next((value for value, method in grid if method == "lopd"), None)
    row["rule"] = rule.text
    report.rows.append(row)
    report.chosen[name] = None
    validation = _validation(root, settings, grid, report.problems)
    test = _test(root, settings, name, grid, report.problems)
    if validation is not None:
        chosen = int(rule.choose(validation))
        means = validation.mean(axis=1)
        row["validation_scores"] = _scores(values, means)
        row["chosen_on_validation"] = values[chosen]
        row["validation_score"] = float(means[chosen])
        report.chosen[name] = {"value": _number(values[chosen]), "method": grid[chosen][1]}
    if test is not None:
        means = test.mean(axis=(1, 2))
        row["n_tasks"] = test.shape[2]
        row["test_scores"] = _scores(values, means)
        row["chosen_on_test"] = values[int(first_best(means))]
        row["printed_if_chosen_on_test"] = float(means.max())
    if validation is not None and test is not None:
        row["test_score"] = float(test.mean(axis=(1, 2))[chosen])
        rng = _rng(settings, name)
        draws = redone_across(test, validation, rule.choose, rng)
        _optimism(row, draws, test.mean(axis=1)[None], np.array([chosen]), rng)


def _validation(
    root: Path,
    settings: AnalysisSettings,
    grid: Sequence[tuple[str, str]],
    problems: list[str],
) -> FloatArray | None:
    """Validation score of each candidate's selected checkpoint: `[C, S]`."""
    found: list[list[float]] = []
    for _, method in grid:
        scores = []
        for seed in settings.seeds:
            folder = run_folder(root, settings.domain, settings.backbone, method, seed)
            run = read_run(folder, problems)
            if run is not None and run.selected_step not in run.scores:
                _note(problems, f"no validation score of step {run.selected_step}: {folder}")
            elif run is not None:
                scores.append(100.0 * run.scores[run.selected_step])
        found.append(scores)
    whole = all(len(scores) == len(settings.seeds) for scores in found)
    return np.array(found) if whole else None


def _test(
    root: Path,
    settings: AnalysisSettings,
    name: str,
    grid: Sequence[tuple[str, str]],
    problems: list[str],
) -> FloatArray | None:
    """Test scores of each candidate's selected checkpoints: `[C, S, T]`."""
    cells = []
    for _, method in grid:
        cell = read_cell(root, _METRIC, settings.domain, settings.backbone, method, settings.seeds)
        if cell.problem is not None:
            _note(problems, cell.problem)
        cells.append(cell)
    if any(cell.problem is not None for cell in cells):
        return None
    tasks = sorted(cells[0].scores[settings.seeds[0]])
    try:
        return 100.0 * np.array([score_matrix(c.scores, tasks, settings.seeds) for c in cells])
    except ValueError:
        _note(problems, f"{name}: its candidates were tested on different tasks")
        return None


def _checkpoints(
    root: Path, settings: AnalysisSettings, method: str, report: SelectionReport
) -> None:
    places = {
        seed: candidates_file(root, settings.domain, settings.backbone, method, seed)
        for seed in settings.seeds
    }
    if method not in settings.methods and not any(path.is_file() for path in places.values()):
        return
    rows, tests, choices = [], [], []
    for seed, path in places.items():
        folder = run_folder(root, settings.domain, settings.backbone, method, seed)
        run = read_run(folder, report.problems)
        found = None if run is None else _candidates(run, path, report.problems)
        if run is None or found is None:
            continue
        steps, test = found
        chosen = steps.index(run.selected_step)
        row = _row(settings, CHECKPOINT, method, seed, 1)
        _checkpoint_row(row, run, steps, test)
        rng = _rng(settings, CHECKPOINT, method, str(seed))
        index = np.array([chosen])
        _optimism(row, redone_within(test[None], index, rng), test[None], index, rng)
        report.chosen.setdefault(CHECKPOINT, {}).setdefault(method, {})[str(seed)] = steps[chosen]
        rows.append(row)
        tests.append(test)
        choices.append(chosen)
    report.rows += rows
    if not rows:
        return
    summary = _row(settings, CHECKPOINT, method, ALL, len(settings.seeds))
    report.rows.append(summary)
    if len(rows) < len(settings.seeds):
        return
    if len({(row["candidates"], row["n_tasks"], row["rule"]) for row in rows}) > 1:
        _note(report.problems, f"{method}: its seeds have different candidates, tasks or rules")
        return
    summary.update({key: rows[0][key] for key in ("candidates", "n_tasks", "rule")})
    for key in ("chosen_on_validation", "chosen_on_test"):
        summary[key] = "; ".join(f"seed {row['seed']}: {row[key]}" for row in rows)
    for key in ("validation_score", "test_score", "printed_if_chosen_on_test"):
        summary[key] = float(np.mean([row[key] for row in rows]))
    rng = _rng(settings, CHECKPOINT, method, ALL)
    stacked, indices = np.array(tests), np.array(choices)
    _optimism(summary, redone_within(stacked, indices, rng), stacked, indices, rng)


def _candidates(run: Run, path: Path, problems: list[str]) -> tuple[list[int], FloatArray] | None:
    """Candidate steps, earliest first, and their test scores `[C, T]`; None with a problem."""
    steps = sorted(step for step in run.scores if step > 0)
    if not steps:
        _note(problems, f"nothing to choose: {run.folder} validated no step after step 0")
        return None
    found = read_candidates(path)
    if isinstance(found, str):
        _note(problems, found)
        return None
    missing = [step for step in steps if step not in found]
    if missing:
        _note(problems, f"incomplete: {path} has no rows of step {missing[0]}")
        return None
    best = max(run.scores[step] for step in steps)
    expected = next(step for step in steps if run.scores[step] == best)
    if run.selected_step != expected:
        _note(
            problems,
            f"not by the rule: {run.folder / 'selected.json'} selects step {run.selected_step}, "
            f"the earliest best is {expected}",
        )
        return None
    tasks = sorted(found[steps[0]])
    return steps, 100.0 * np.array([[found[step][task] for task in tasks] for step in steps])


def _checkpoint_row(row: dict[str, Any], run: Run, steps: Sequence[int], test: FloatArray) -> None:
    names = [str(step) for step in steps]
    means = test.mean(axis=1)
    row["n_tasks"] = test.shape[1]
    row["candidates"] = "; ".join(names)
    row["rule"] = run.rule
    row["validation_scores"] = _scores(names, [100.0 * run.scores[step] for step in steps])
    row["chosen_on_validation"] = run.selected_step
    row["validation_score"] = 100.0 * run.scores[run.selected_step]
    row["test_score"] = float(means[steps.index(run.selected_step)])
    row["test_scores"] = _scores(names, means)
    row["chosen_on_test"] = steps[int(first_best(means))]
    row["printed_if_chosen_on_test"] = float(means.max())


def _optimism(
    row: dict[str, Any],
    draws: FloatArray,
    test: FloatArray,
    chosen: IntArray,
    rng: np.random.Generator,
) -> None:
    """Fill a row's optimism from its draws; test `[G, C, T]`, chosen `[G]`."""
    interval = percentile_interval(draws)
    row["optimism"] = row["printed_if_chosen_on_test"] - row["test_score"]
    row["optimism_ci_low"], row["optimism_ci_high"] = interval
    parts = halves(test, chosen, rng)
    if parts is not None:
        row["halves_optimism"] = parts.optimism
        row["halves_winners_curse"] = parts.winners_curse
        row["halves_real_gain"] = parts.real_gain


def _row(
    settings: AnalysisSettings, choice: str, method: str, seed: int | str, n_seeds: int
) -> dict[str, Any]:
    return {
        **dict.fromkeys(SELECTION_COLUMNS),
        "scale": settings.scale,
        "backbone": settings.backbone,
        "choice": choice,
        "method": method,
        "seed": seed,
        "n_seeds": n_seeds,
        "metric": _METRIC.name,
    }


def _scores(values: Sequence[str], scores: Sequence[float] | FloatArray) -> str:
    return "; ".join(f"{v}={s:.2f}" for v, s in zip(values, scores, strict=True))


def _number(value: str) -> int | float:
    number = float(value)
    return int(number) if number.is_integer() else number


def _note(problems: list[str], line: str) -> None:
    if line not in problems:
        problems.append(line)


def _rng(settings: AnalysisSettings, *names: str) -> np.random.Generator:
    # A generator per row: another method or grid leaves this row's interval alone.
    key = "\0".join(["selection", settings.backbone, *names])
    return np.random.default_rng([settings.bootstrap_seed, zlib.crc32(key.encode())])
