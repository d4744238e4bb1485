"""LOPD against each control and the untrained policy, paired by task and seed.

One row per control on EnvScaler test, scores on a scale of 0 to 100. `difference` is LOPD minus
control, its 95% interval a bootstrap over seeds and tasks; `p_holm` is adjusted over the rows of
this table. verdict: lopd_higher or control_higher where p_holm is below 0.05 and the interval
leaves out 0; undecided otherwise, which is not the same as equal; incomplete, with empty numbers,
where one of the two was not measured whole. `over_vanilla` is control minus the untrained policy,
`gain_kept` that divided by LOPD's own lead over it (empty where LOPD has no lead).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lopd_repro.errors import UserError
from lopd_repro.report.analysis import VANILLA, AnalysisSettings
from lopd_repro.report.layout import TABLE1
from lopd_repro.report.scores import read_cell
from lopd_repro.stats import Cell, comparisons, mean_std, score_matrix

CONTROLS_COLUMNS = (
    "scale",
    "backbone",
    "metric",
    "control",
    "label",
    "n_seeds",
    "n_tasks",
    "lopd",
    "lopd_std",
    "control_score",
    "control_std",
    "difference",
    "ci_low",
    "ci_high",
    "p",
    "p_holm",
    "verdict",
    "over_vanilla",
    "over_vanilla_ci_low",
    "over_vanilla_ci_high",
    "gain_kept",
)

LOPD = "lopd"
DECISIVE = "lopd_shuffled"
"""The control that a referee called decisive: experiences shuffled between tasks."""

_METRIC = next(metric for metric in TABLE1.metrics if metric.name == "envscaler")


@dataclass
class ControlsReport:
    """Rows and what is missing."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def control_rows(root: Path, settings: AnalysisSettings) -> ControlsReport:
    """Every control, the untrained policy first."""
    report = ControlsReport()
    names = list(dict.fromkeys([VANILLA, LOPD, *settings.controls]))
    scores = {}
    for method in names:
        cell = read_cell(root, _METRIC, settings.domain, settings.backbone, method, settings.seeds)
        if cell.problem is not None:
            report.problems.append(cell.problem)
        scores[method] = {
            seed: {task: 100.0 * score for task, score in tasks.items()}
            for seed, tasks in cell.scores.items()
        }
    cell_of_all = Cell(_METRIC.name, settings.backbone, scores)
    against_lopd = _oriented(settings, cell_of_all, LOPD)
    against_vanilla = _oriented(settings, cell_of_all, VANILLA)
    for control in names:
        if control != LOPD:
            row = _row(settings, control, against_lopd[control], scores)
            if row["verdict"] == "incomplete" and scores[control] and scores[LOPD]:
                report.problems.append(f"not paired: {control} was tested on other tasks than lopd")
            if control != VANILLA:
                _add_vanilla(row, against_vanilla[control], against_vanilla[LOPD])
            report.rows.append(row)
    return report


def _oriented(settings: AnalysisSettings, cell: Cell, reference: str) -> dict[str, dict[str, Any]]:
    """Comparison of every other method with the reference, as reference minus other."""
    rows = comparisons(
        settings.scale,
        [cell],
        seed=settings.bootstrap_seed,
        tasks="shared",
        reference=reference,
    )
    found = {}
    for row in rows:
        if row["method_a"] != reference and row["difference"] is not None:
            row = {
                **row,
                "difference": -row["difference"],
                "ci_low": -row["ci_high"],
                "ci_high": -row["ci_low"],
            }
        found[row["method_b"] if row["method_a"] == reference else row["method_a"]] = row
    return found


def _row(
    settings: AnalysisSettings,
    control: str,
    compared: Mapping[str, Any],
    scores: Mapping[str, Mapping[int, Mapping[str, float]]],
) -> dict[str, Any]:
    row = {
        **dict.fromkeys(CONTROLS_COLUMNS),
        **{key: compared[key] for key in compared if key in CONTROLS_COLUMNS},
        "control": control,
        "label": settings.label(control),
    }
    for method, name, std in (
        (LOPD, "lopd", "lopd_std"),
        (control, "control_score", "control_std"),
    ):
        if scores[method]:
            means = score_matrix(scores[method]).mean(axis=1)
            row[name], row[std] = mean_std([float(mean) for mean in means])
    if compared["verdict"] in ("a_higher", "b_higher"):
        row["verdict"] = "lopd_higher" if row["difference"] > 0 else "control_higher"
    return row


def _add_vanilla(row: dict[str, Any], control: Mapping[str, Any], lopd: Mapping[str, Any]) -> None:
    if control["difference"] is None:
        return
    row["over_vanilla"] = -control["difference"]
    row["over_vanilla_ci_low"] = -control["ci_high"]
    row["over_vanilla_ci_high"] = -control["ci_low"]
    if lopd["difference"] is not None and lopd["difference"] < 0:
        row["gain_kept"] = control["difference"] / lopd["difference"]


def verdict_text(
    settings: AnalysisSettings, rows: list[dict[str, Any]], decisive: str = DECISIVE
) -> str:
    """The decisive control's outcome in one paragraph of Markdown."""
    row = next((row for row in rows if row["control"] == decisive), None)
    if row is None:
        allowed = ", ".join(settings.controls) or "none, since no control was run"
        raise UserError(f"--decisive: found {decisive!r}, allowed: {allowed}")
    what = f"Decisive control at {settings.scale} scale ({row['label']})"
    if row["verdict"] == "incomplete":
        reason = "It, or LOPD itself, was not measured whole."
        return f"**{what}: no verdict.** {reason}{_caveat(settings)}\n"
    outcome, meaning = _OUTCOMES[row["verdict"]]
    seeds = ", ".join(str(seed) for seed in settings.seeds)
    sentences = [
        f"**{what}: {outcome}.**",
        f"On {row['n_tasks']} EnvScaler test tasks with {settings.backbone_label} (training seeds "
        f"{seeds}) LOPD scores {_score(row, 'lopd')} and the control "
        f"{_score(row, 'control_score', 'control_std')}: a difference of "
        f"{row['difference']:+.2f} points, 95% interval [{row['ci_low']:.2f}, "
        f"{row['ci_high']:.2f}], p = {row['p']:.4f} ({row['p_holm']:.4f} after Holm's correction "
        f"over {sum(r['p'] is not None for r in rows)} comparisons).",
        meaning,
    ]
    if len(settings.seeds) < 5:
        sentences.insert(2, "From so few seeds such an interval is optimistic.")
    if row["gain_kept"] is not None:
        sentences.append(
            f"The control is {row['over_vanilla']:+.2f} points from the untrained policy "
            f"([{row['over_vanilla_ci_low']:.2f}, {row['over_vanilla_ci_high']:.2f}]), "
            f"{100.0 * row['gain_kept']:.0f}% of LOPD's lead over it."
        )
    return " ".join(sentences) + _caveat(settings) + "\n"


_OUTCOMES = {
    "lopd_higher": (
        "LOPD scores higher",
        "So what is retrieved accounts for part of LOPD's score; what the control keeps does not "
        "come from it.",
    ),
    "control_higher": (
        "the control scores higher",
        "So what is retrieved is not what LOPD's score comes from.",
    ),
    "undecided": (
        "undecided",
        "So it is not shown that what is retrieved matters, nor that it does not: the interval "
        "says which differences remain possible.",
    ),
}


def _score(row: Mapping[str, Any], name: str, std: str | None = None) -> str:
    deviation = row[std or f"{name}_std"]
    return f"{row[name]:.2f}" + ("" if deviation is None else f" ± {deviation:.2f}")


def _caveat(settings: AnalysisSettings) -> str:
    if settings.scale == "paper":
        return ""
    return f" **This is no evidence about the paper.** {settings.notice}".rstrip()
