"""Picture of figure 4: reward against generations, on validation and, apart from it, on test."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lopd_repro.report.figures.draw.axes import extent, tick_step
from lopd_repro.report.figures.draw.series import legend_entry, printed_points
from lopd_repro.report.figures.draw.style import COLOURS, COLUMN, MARKERS, new_figure
from lopd_repro.report.figures.points import TEST, VALIDATION, Point

_CURVE_DASHES = {VALIDATION: "-", TEST: (0, (3, 1.5))}
_TITLES = {
    VALIDATION: "validation (chooses the checkpoint)",
    TEST: "test (not used for any choice)",
}


def draw_curves(points: Sequence[Point], notice: str) -> Figure:
    """One part for each split that was measured, on the same axes; the paper's points in the
    first, as its split is not stated."""
    measured = [s for s in (VALIDATION, TEST) if any(p.split == s and p.measured for p in points)]
    figure = new_figure(COLUMN, 1.15 + 1.45 * len(measured), notice)
    names = list(dict.fromkeys(p.series for p in points))
    place = {p.x: float(p.x) for p in points}
    printed = [p for p in points if not p.measured]
    taken = extent(points)
    low, high = min(a for a, _ in taken), max(b for _, b in taken)
    grid = figure.add_gridspec(len(measured), 1)
    first: Axes | None = None
    for index, split in enumerate(measured):
        ax = figure.add_subplot(grid[index], sharex=first, sharey=first)
        for name in names:
            own = [p for p in points if p.split == split and p.measured and p.series == name]
            _curve(ax, sorted(own, key=lambda p: place[p.x]), place, _style(names, name, split))
        if first is None:
            for name in names:
                style = {**_style(names, name, VALIDATION), **_OPEN}
                own = [p for p in printed if p.series == name]
                printed_points(ax, own, place, style, _aside(printed, name))
        ax.set_title(_TITLES[split], loc="left", pad=2.0)
        ax.grid(axis="y", color="#e2e2e2", linewidth=0.5, zorder=0)
        ax.set_axisbelow(True)
        first = first or ax
        ax.label_outer()
    assert first is not None
    pad = 0.06 * max(high - low, 1.0)
    first.set_ylim(low - pad, high + pad)
    last = max(place.values())
    first.set_xlim(-0.03 * last, 1.08 * last)
    step = tick_step(last, 5)
    first.set_xticks([step * i for i in range(math.floor(last / step) + 1)])
    figure.axes[-1].set_xlabel("generations (training rollouts)")
    figure.supylabel("EnvScaler mean reward, 0 to 100", fontsize=7)
    _legend(figure, points, names, printed)
    return figure


_OPEN: dict[str, Any] = {"markerfacecolor": "white", "markersize": 5.0, "linestyle": "none"}


def _style(names: Sequence[str], name: str, split: str) -> dict[str, Any]:
    index = names.index(name)
    return {
        "color": COLOURS[(0, 2, 3, 1, 4, 5)[index % len(COLOURS)]],
        "marker": MARKERS[index % len(MARKERS)],
        "linestyle": _CURVE_DASHES[split],
    }


def _aside(printed: Sequence[Point], name: str) -> dict[str, float]:
    """Shifts in points of 1/72 in, so that markers at the same x stand side by side."""
    found = {}
    for own in (p for p in printed if p.series == name):
        together = list(dict.fromkeys(p.series for p in printed if p.x == own.x))
        found[own.x] = 6.5 * (together.index(name) - (len(together) - 1) / 2)
    return found


def _curve(
    ax: Axes, points: Sequence[Point], place: Mapping[str, float], style: Mapping[str, Any]
) -> None:
    nan = math.nan
    x = [place[p.x] for p in points]
    ax.plot(x, [nan if p.value is None else p.value for p in points], zorder=3, **style)
    ax.fill_between(
        x,
        [nan if p.ci_low is None else p.ci_low for p in points],
        [nan if p.ci_high is None else p.ci_high for p in points],
        color=style["color"],
        alpha=0.2,
        linewidth=0,
    )


def _legend(
    figure: Figure, points: Sequence[Point], names: Sequence[str], printed: Sequence[Point]
) -> None:
    backbone = next(p.backbone for p in points if p.measured)
    handles = [legend_entry(_style(names, name, VALIDATION), name) for name in names]
    if printed:
        style = {"color": "#000000", "marker": "o", **_OPEN}
        handles.append(legend_entry(style, f"paper, {printed[0].backbone} (split not stated)"))
    figure.legend(
        handles=handles,
        loc="outside upper left",
        ncols=2,
        title=f"{backbone}, mean over seeds (band: 95% interval)",
        title_fontsize=7,
        alignment="left",
    )
