"""Curves of LOPD's margin constraint by step, and a summary of each run.

`rows`, one per training step of LOPD and its variants (runs that log no beta, such as a control
without composer, have none): what training logged, and `flag`, the rule of
`lopd_repro/report/feasibility.py` on the half run that ends there (1 or 0; empty before).

`summary`, one row per run, over the last half of its steps (`first_step` to `last_step`):
- means of Delta (with its 95% interval), of the share of tokens with delta >= m, of the divergence
  in all, by quarter of the trajectory (`kl_q1` .. `kl_q4`) and by outcome (over the steps that have
  such trajectories), and of the reward;
- Delta's slope per 100 steps with its 95% interval;
- beta at both ends, and the shares of steps on which it rose and on which Delta was below m;
- `flag` as at the last step.
`kl_first_half` shows how much of the divergence is left. A frozen composer has no use for beta,
which is logged all the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lopd_repro.report.analysis import AnalysisSettings
from lopd_repro.report.feasibility import Window, judge_window, window_length
from lopd_repro.report.runs import Run, read_run, run_folder

_RUN = ("scale", "backbone", "method", "label", "seed")
_LOGGED = (
    "delta",
    "beta",
    "frac_delta_ge_m",
    "kl",
    "anchor",
    "kl_q1",
    "kl_q2",
    "kl_q3",
    "kl_q4",
    "kl_success",
    "kl_failure",
    "reward_mean",
)
_MEANS = tuple(name for name in _LOGGED if name not in ("delta", "beta", "anchor"))

DIAGNOSTICS_COLUMNS = (*_RUN, "step", "generations", "margin", *_LOGGED, "flag")
SUMMARY_COLUMNS = (
    *_RUN,
    "margin",
    "frozen_composer",
    "first_step",
    "last_step",
    "delta",
    "delta_ci_low",
    "delta_ci_high",
    "delta_slope_100",
    "delta_slope_100_ci_low",
    "delta_slope_100_ci_high",
    "below_margin",
    "beta_first",
    "beta_last",
    "beta_rising",
    *_MEANS,
    "kl_first_half",
    "flag",
)


@dataclass
class DiagnosticsReport:
    """Rows by step, rows by run, and what is missing."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    summary: list[dict[str, Any]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def diagnose(root: Path, settings: AnalysisSettings) -> DiagnosticsReport:
    """LOPD's runs and its variants'; a run that is missing is named and has a summary row."""
    report = DiagnosticsReport()
    own = [name for name in settings.methods if name == "lopd"]
    for method in [*own, *settings.variants()]:
        for seed in settings.seeds:
            folder = run_folder(root, settings.domain, settings.backbone, method, seed)
            names = {
                "scale": settings.scale,
                "backbone": settings.backbone,
                "method": method,
                "label": settings.label(method),
                "seed": seed,
            }
            run = read_run(folder, report.problems)
            if run is None:
                report.summary.append({**dict.fromkeys(SUMMARY_COLUMNS), **names})
            elif any("beta" in row for row in run.trained):
                _add(report, run, names)
    return report


def _add(report: DiagnosticsReport, run: Run, names: dict[str, Any]) -> None:
    margin = run.setting.get("margin")
    if margin is None:
        report.problems.append(f"no margin in method_settings: {run.folder / 'manifest.json'}")
    windows = _windows(run.trained, margin)
    for row, window in zip(run.trained, windows, strict=True):
        report.rows.append(
            {
                **names,
                "step": row["step"],
                "generations": row["generations"],
                "margin": margin,
                **{name: row.get(name) for name in _LOGGED},
                "flag": None if window is None else int(window.flag),
            }
        )
    report.summary.append(_summary(run, names, margin, windows[-1]))


def _windows(rows: Sequence[dict[str, Any]], margin: float | None) -> list[Window | None]:
    """For each step the rule's finding on the window that ends there.

    A step without Delta (nothing scored, so no dual update) is passed over.
    """
    length = window_length(len(rows))
    found: list[Window | None] = []
    for end in range(1, len(rows) + 1):
        part = [row for row in rows[max(0, end - length) : end] if row.get("delta") is not None]
        judged = None
        if margin is not None and end >= length:
            judged = judge_window([r["delta"] for r in part], [r["beta"] for r in part], margin)
        found.append(judged)
    return found


def _summary(
    run: Run, names: dict[str, Any], margin: float | None, window: Window | None
) -> dict[str, Any]:
    rows = run.trained
    cut = len(rows) - window_length(len(rows))
    half = rows[cut:]
    summary = {
        **dict.fromkeys(SUMMARY_COLUMNS),
        **names,
        "margin": margin,
        "frozen_composer": int(bool(run.setting.get("frozen_composer"))),
        "first_step": half[0]["step"],
        "last_step": half[-1]["step"],
        **{name: _mean(half, name) for name in _MEANS},
        "kl_first_half": _mean(rows[:cut], "kl"),
    }
    if window is not None:
        slope = window.delta_trend
        summary.update(
            delta=window.delta,
            delta_ci_low=window.delta_interval.low,
            delta_ci_high=window.delta_interval.high,
            delta_slope_100=100.0 * slope.slope,
            delta_slope_100_ci_low=100.0 * slope.interval.low,
            delta_slope_100_ci_high=100.0 * slope.interval.high,
            below_margin=window.below_margin,
            beta_first=window.beta_first,
            beta_last=window.beta_last,
            beta_rising=window.beta_rising,
            flag=int(window.flag),
        )
    return summary


def _mean(rows: Sequence[dict[str, Any]], name: str) -> float | None:
    values = [row[name] for row in rows if row.get(name) is not None]
    return sum(values) / len(values) if values else None
