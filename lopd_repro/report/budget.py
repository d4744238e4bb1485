"""Generations a method needs until its validation score reaches a rival's.

Read off validated steps: the first one whose mean validation reward is at the target, without
interpolation, so that a run's true crossing lies between the validated step before
(`generations_below`) and that one. The rival's final score is that of its last validated step in
the same seed, and seeds are paired. A run that never gets there is "not reached": it counts as
more than any number in medians, bounds and ratios, and is never left out.

Rows, by `against`:
- pair: every ordered pair of trained methods. Target: the rival's `final` score, and 95% and 90%
  of its gain over the untrained policy, since final scores near the ceiling are a matter of luck.
- best rival: the same against the rival with the highest mean final score.
- claim: the paper's claim, per rival and for all of them. It says 'surpasses', so the criterion is
  strictly above. `share` is generations over all generations of the rival's run. Verdict:
  supported if the interval's upper end is below the limit; not supported if even `share_below`,
  the share at which the method was still below, has its lower end at or above the limit; else
  undecided. A second set of these rows counts the base model's rollouts that a method's input
  files were made from, for both sides (in `share`, `share_below` and `rival_budget`); the paper's
  budget does not. Methods pay for them each, also where one run of the workflow shared them: a
  method used alone would need its own.

Other columns: `generations`, `share` and `ratio` are medians over seeds, their bounds a bootstrap
over seeds (`lopd_repro/stats/censored.py`). `ratio` divides by what the rival itself needed to
reach the target. `generations_of_means` is read off the curves averaged over seeds, as the paper's
figure 4 shows them. `target_score` is a mean over seeds on a scale of 0 to 100.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from lopd_repro.files import read_jsonl_with_footer
from lopd_repro.report.analysis import AnalysisSettings
from lopd_repro.report.budget_claim import BudgetClaim
from lopd_repro.report.runs import Run, Validated, read_run, run_folder
from lopd_repro.stats import CensoredMedian, censored_median

BUDGET_COLUMNS = (
    "scale",
    "backbone",
    "against",
    "method",
    "rival",
    "target",
    "criterion",
    "counted",
    "n_seeds",
    "n_reached",
    "target_score",
    "generations",
    "generations_ci_low",
    "generations_ci_high",
    "generations_below",
    "generations_by_seed",
    "generations_of_means",
    "rival_budget",
    "share",
    "share_ci_low",
    "share_ci_high",
    "share_below",
    "share_below_ci_low",
    "rival_generations",
    "ratio",
    "ratio_ci_low",
    "ratio_ci_high",
    "claim",
    "limit",
    "verdict",
)

NOT_REACHED = "not reached"
FINAL = "final"
TARGETS = {FINAL: 1.0, "95% of gain": 0.95, "90% of gain": 0.9}
"""Share of the rival's gain that each target asks for."""
REACHES, SURPASSES = "reaches", "surpasses"
TRAINING, ALL_ROLLOUTS = "training", "training and base rollouts"

# Which file's footer counts the rollouts that a method's input was made from. Demonstrations are
# taken from the bank's rollouts.
_ROLLOUTS = {"bank": "bank.jsonl", "demonstrations": "bank.jsonl", "skills": "skills.jsonl"}

Curve = Sequence[Validated]


@dataclass
class BudgetReport:
    """Rows and what is missing."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Reached:
    """First generations at the target (infinity if never), and the last ones below it."""

    generations: float
    below: float


@dataclass(frozen=True)
class _Runs:
    """A method's runs in the order of seeds; `curves` is empty where a run is missing."""

    curves: list[Curve]
    base_rollouts: float

    @property
    def final(self) -> float:
        return float(np.mean([curve[-1].reward for curve in self.curves]))


def reached(curve: Curve, target: float, *, strictly: bool = False) -> Reached:
    """Where a run's curve first is at (or strictly above) a target, a reward in [0, 1]."""
    below = 0.0
    for point in curve:
        if point.reward > target + 1e-9 or (not strictly and point.reward >= target - 1e-9):
            return Reached(float(point.generations), below)
        below = float(point.generations)
    return Reached(math.inf, below)


def budget(
    root: Path, settings: AnalysisSettings, claim: BudgetClaim | None = None
) -> BudgetReport:
    """All pairs of trained methods, best rivals, and the claim."""
    report = BudgetReport()
    runs = _read(root, settings, report.problems)
    for method in runs:
        best = _best_rival(method, runs)
        for against, rivals in (
            ("pair", [rival for rival in runs if rival != method]),
            ("best rival", [] if best is None else [best]),
        ):
            for rival in rivals:
                for target in TARGETS:
                    row = _row(settings, against, method, rival, target, REACHES, TRAINING)
                    _fill(row, settings, runs[method], runs[rival])
                    report.rows.append(row)
    if claim is not None:
        for counted in (TRAINING, ALL_ROLLOUTS):
            report.rows += _claim_rows(settings, claim, runs, counted)
    return report


def _read(root: Path, settings: AnalysisSettings, problems: list[str]) -> dict[str, _Runs]:
    """Runs of every method that trains."""
    found: dict[str, _Runs] = {}
    for method in settings.trained():
        runs = [
            read_run(run_folder(root, settings.domain, settings.backbone, method, seed), problems)
            for seed in settings.seeds
        ]
        complete = [run for run in runs if run is not None and run.validated]
        problems += [
            f"not validated: {run.folder}" for run in runs if run is not None and not run.validated
        ]
        if len(complete) < len(runs):
            found[method] = _Runs([], math.nan)
            continue
        rollouts = _base_rollouts(root, settings, complete[0], problems)
        found[method] = _Runs([run.validated for run in complete], rollouts)
    return found


def _base_rollouts(root: Path, settings: AnalysisSettings, run: Run, problems: list[str]) -> float:
    """Base rollouts behind a run's input files, shared by all its seeds; NaN if not known.

    Each file is made from the first so many rollouts of every task in the backbone's one file of
    them: what a method reads of several files is the largest of their numbers, not the sum.
    """
    names = {_ROLLOUTS[name] for name in run.manifest.get("inputs", {}) if name in _ROLLOUTS}
    most = 0.0
    for name in sorted(names):
        path = root / "backbones" / settings.backbone / name
        footer = read_jsonl_with_footer(path)[1] if path.is_file() else {}
        if "rollouts" not in footer:
            line = f"base rollouts not counted: {path} is absent or its footer has no count"
            if line not in problems:
                problems.append(line)
            return math.nan
        most = max(most, float(footer["rollouts"]))
    return most


def _best_rival(method: str, runs: Mapping[str, _Runs]) -> str | None:
    rivals = {name: own.final for name, own in runs.items() if name != method and own.curves}
    return max(rivals, key=lambda name: round(rivals[name], 9)) if rivals else None


def _row(
    settings: AnalysisSettings,
    against: str,
    method: str,
    rival: str,
    target: str,
    criterion: str,
    counted: str,
) -> dict[str, Any]:
    return {
        **dict.fromkeys(BUDGET_COLUMNS),
        "scale": settings.scale,
        "backbone": settings.backbone,
        "against": against,
        "method": method,
        "rival": rival,
        "target": target,
        "criterion": criterion,
        "counted": counted,
        "n_seeds": len(settings.seeds),
    }


def _fill(
    row: dict[str, Any], settings: AnalysisSettings, own: _Runs, rival: _Runs
) -> tuple[CensoredMedian, CensoredMedian] | None:
    """Numbers of a row; returns its share and the share below the target, or None."""
    every = row["counted"] == ALL_ROLLOUTS
    before = (own.base_rollouts, rival.base_rollouts) if every else (0.0, 0.0)
    if not own.curves or not rival.curves or any(math.isnan(n) for n in before):
        return None
    gain = TARGETS[row["target"]]
    strictly = row["criterion"] == SURPASSES
    targets = [_target(curve, gain) for curve in rival.curves]
    found = [
        reached(curve, t, strictly=strictly) for curve, t in zip(own.curves, targets, strict=True)
    ]
    theirs = [reached(curve, t) for curve, t in zip(rival.curves, targets, strict=True)]
    budgets = [float(curve[-1].generations) for curve in rival.curves]
    rng = _rng(settings, row)
    generations = censored_median([f.generations for f in found], rng)
    costs = [n + before[1] for n in budgets]
    share = censored_median(
        [(f.generations + before[0]) / n for f, n in zip(found, costs, strict=True)], rng
    )
    below = censored_median(
        [(f.below + before[0]) / n for f, n in zip(found, costs, strict=True)], rng
    )
    means = reached(_mean_curve(own), _target(_mean_curve(rival), gain), strictly=strictly)
    row.update(
        n_reached=sum(math.isfinite(f.generations) for f in found),
        target_score=100.0 * float(np.mean(targets)),
        generations_below=_whole(float(np.median([f.below for f in found]))),
        generations_by_seed="; ".join(
            f"seed {seed}: {_whole(f.generations)}"
            for seed, f in zip(settings.seeds, found, strict=True)
        ),
        generations_of_means=_whole(means.generations),
        rival_budget=_whole(float(np.median(costs))),
        rival_generations=_whole(float(np.median([t.generations for t in theirs]))),
    )
    _interval(row, "generations", generations, _whole)
    _interval(row, "share", share, _text)
    row["share_below"], row["share_below_ci_low"] = below.median, below.low
    if not every and all(t.generations > 0 for t in theirs):
        ratios = [f.generations / t.generations for f, t in zip(found, theirs, strict=True)]
        _interval(row, "ratio", censored_median(ratios, rng), _text)
    return share, below


def _claim_rows(
    settings: AnalysisSettings, claim: BudgetClaim, runs: Mapping[str, _Runs], counted: str
) -> list[dict[str, Any]]:
    rows = []
    for rival in claim.rivals:
        row = _row(settings, "claim", claim.method, rival, FINAL, SURPASSES, counted)
        row.update(claim=claim.id, limit=claim.limit)
        if claim.method in runs and rival in runs:
            found = _fill(row, settings, runs[claim.method], runs[rival])
            row["verdict"] = None if found is None else _verdict(*found, claim.limit)
        rows.append(row)
    names = "; ".join(claim.rivals)
    whole = _row(settings, "claim", claim.method, names, FINAL, SURPASSES, counted)
    whole.update(claim=claim.id, limit=claim.limit)
    verdicts = [row["verdict"] for row in rows]
    if all(verdicts):
        ranks = ("not supported", "undecided", "supported")
        whole["verdict"] = next(rank for rank in ranks if rank in verdicts)
    return [*rows, whole]


def _verdict(share: CensoredMedian, below: CensoredMedian, limit: float) -> str:
    if share.high < limit:
        return "supported"
    return "not supported" if below.low >= limit else "undecided"


def _target(curve: Curve, gain: float) -> float:
    start, end = curve[0].reward, curve[-1].reward
    return start + gain * (end - start)


def _mean_curve(runs: _Runs) -> list[Validated]:
    """Mean over seeds at the steps that all of them validated."""
    by_seed = [{point.step: point for point in curve} for curve in runs.curves]
    common = sorted(set.intersection(*(set(points) for points in by_seed)))
    return [
        Validated(
            step,
            by_seed[0][step].generations,
            float(np.mean([points[step].reward for points in by_seed])),
        )
        for step in common
    ]


def _interval(row: dict[str, Any], name: str, found: CensoredMedian, text: Any) -> None:
    row[name] = text(found.median)
    row[f"{name}_ci_low"], row[f"{name}_ci_high"] = text(found.low), text(found.high)


def _text(value: float) -> float | str:
    return value if math.isfinite(value) else NOT_REACHED


def _whole(value: float) -> str:
    return f"{value:.10g}" if math.isfinite(value) else NOT_REACHED


def _rng(settings: AnalysisSettings, row: Mapping[str, Any]) -> np.random.Generator:
    names = [str(row[key]) for key in ("backbone", "method", "rival", "target", "criterion")]
    key = "\0".join(["budget", *names])
    return np.random.default_rng([settings.bootstrap_seed, zlib.crc32(key.encode())])
