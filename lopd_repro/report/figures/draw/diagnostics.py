"""Pictures of the margin constraint and of the divergence between student and teacher, by step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from lopd_repro.errors import UserError
from lopd_repro.report.figures.draw.multiples import multiples
from lopd_repro.report.figures.draw.series import legend_entry
from lopd_repro.report.figures.draw.style import COLOURS, DASHES, GREY
from lopd_repro.report.figures.draw.tables import Row, number, read_table, short

_RUN = ("backbone", "method", "label", "seed", "generations", "margin", "flag")
_CONSTRAINT = {"delta": "Δ", "beta": "β", "frac_delta_ge_m": "share of\ntokens δ ≥ m"}
_QUARTERS = {f"kl_q{i}": f"{i}{end} quarter" for i, end in enumerate(("st", "nd", "rd", "th"), 1)}
_OUTCOMES = {"kl_success": "full reward", "kl_failure": "below full reward"}
_FLAGGED: dict[str, Any] = {
    "color": "#F0C27B",
    "linewidth": 3.4,
    "marker": "o",
    "markersize": 3.4,
    "markeredgewidth": 0,
}
_MARGIN: dict[str, Any] = {"color": GREY, "linewidth": 0.7, "linestyle": "-"}


def draw_diagnostics(path: Path, notice: str) -> Figure:
    """Delta, beta and the share of tokens with delta >= m; a line per seed, flags along beta."""
    rows = read_table(path, (*_RUN, *_CONSTRAINT))
    variants = _variants(rows)
    if not any(row[name] for row in rows for name in _CONSTRAINT):
        raise UserError(f"{path}: no run logged a margin constraint, so there is nothing to draw")
    seeds = list(dict.fromkeys(row["seed"] for row in rows))

    def draw(ax: Axes, variant: int, quantity: int) -> None:
        name = list(_CONSTRAINT)[quantity]
        own = variants[variant]
        if name == "delta" and own[0]["margin"]:
            ax.axhline(float(own[0]["margin"]), **_MARGIN)
        for index, seed in enumerate(seeds):
            run = [row for row in own if row["seed"] == seed]
            x = [float(row["generations"]) for row in run]
            y = [_value(row, name, path) for row in run]
            if name == "beta":
                on = [v if r["flag"] == "1" else math.nan for v, r in zip(y, run, strict=True)]
                ax.plot(x, on, zorder=2, **_FLAGGED)
            ax.plot(x, y, zorder=3, **_seed_style(index))
        ax.yaxis.set_major_locator(MaxNLocator(3, steps=[1, 2, 5, 10]))

    figure = multiples(
        [_title(v) for v in variants], list(_CONSTRAINT.values()), draw, notice, 0.66
    )
    handles = [legend_entry(_seed_style(i), f"seed {seed}") for i, seed in enumerate(seeds)]
    handles.append(legend_entry(_MARGIN, "margin m"))
    handles.append(legend_entry(_FLAGGED, "flag (with seeds): β rises, Δ does not follow"))
    figure.legend(handles=handles, loc="outside upper center", ncols=len(handles))
    return figure


def draw_divergence(path: Path, notice: str) -> Figure:
    """Divergence by position in the trajectory and by outcome, means over seeds, on log axes."""
    names = [*_QUARTERS, *_OUTCOMES]
    rows = read_table(path, (*_RUN, *names))
    variants = _variants(rows)
    if not any(row[name] for row in rows for name in names):
        raise UserError(f"{path}: no run logged its divergence, so there is nothing to draw")

    def draw(ax: Axes, variant: int, quantity: int) -> None:
        for index, name in enumerate((_QUARTERS, _OUTCOMES)[quantity]):
            x, y = _mean_curve(variants[variant], name, path)
            ax.plot(x, y, **_kl_style(quantity, index))
        ax.set_yscale("log")

    titles = [short(own[0]["label"]) for own in variants]
    labels = ["KL by position,\nnats/token", "KL by outcome,\nnats/token"]
    figure = multiples(titles, labels, draw, notice, 0.85)
    for ax in figure.axes:
        _plain_log_ticks(ax)
    handles = [
        legend_entry(_kl_style(kind, index), label)
        for kind, group in enumerate((_QUARTERS, _OUTCOMES))
        for index, label in enumerate(group.values())
    ]
    figure.legend(handles=handles, loc="outside upper center", ncols=len(handles))
    return figure


def _variants(rows: Sequence[Row]) -> list[list[Row]]:
    """Rows of each backbone and method, in the table's order."""
    found: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        found.setdefault((row["backbone"], row["method"]), []).append(row)
    return list(found.values())


def _title(rows: Sequence[Row]) -> str:
    """The variant's label, and which seeds end flagged."""
    last = {row["seed"]: row["flag"] for row in rows}
    flagged = [seed for seed, flag in last.items() if flag == "1"]
    label = short(rows[0]["label"])
    return f"{label}\nflag: {', '.join(flagged)}" if flagged else label


def _value(row: Row, name: str, path: Path) -> float:
    value = number(row, name, path)
    return math.nan if value is None else value


def _plain_log_ticks(ax: Axes) -> None:
    """Ticks written out: an exponent would be too small to read."""
    low, high = ax.get_ylim()
    subs = (1.0,) if high > 100.0 * low else (1.0, 3.0)
    ax.yaxis.set_major_locator(LogLocator(subs=subs, numticks=6))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    ax.yaxis.set_minor_locator(NullLocator())


def _mean_curve(rows: Sequence[Row], name: str, path: Path) -> tuple[list[float], list[float]]:
    """Generations and means over the seeds that have a value there."""
    by_x: dict[float, list[float]] = {}
    for row in rows:
        value = number(row, name, path)
        by_x.setdefault(float(row["generations"]), []).extend([] if value is None else [value])
    xs = sorted(by_x)
    return xs, [sum(by_x[x]) / len(by_x[x]) if by_x[x] else math.nan for x in xs]


def _seed_style(index: int) -> dict[str, Any]:
    return {
        "color": ("#000000", "#0072B2", "#56B4E9", "#CC79A7", "#E69F00")[index % 5],
        "linestyle": DASHES[index % len(DASHES)],
        "linewidth": 0.8,
    }


def _kl_style(kind: int, index: int) -> dict[str, Any]:
    if kind == 0:
        shade = ("#000000", "#4a4a4a", "#7d7d7d", "#a8a8a8")[index]
        return {"color": shade, "linestyle": DASHES[index], "linewidth": 0.9}
    return {
        "color": (COLOURS[1], COLOURS[2])[index],
        "linestyle": ("-", (0, (2, 1)))[index],
        "linewidth": 1.0,
    }
