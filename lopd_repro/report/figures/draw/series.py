"""How one series of points is drawn: ours filled, with intervals; the paper's open."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.transforms import ScaledTranslation, Transform

from lopd_repro.report.figures.draw.style import GREY
from lopd_repro.report.figures.points import Point

Place = Mapping[str, float]

TEST_STYLE: dict[str, Any] = {"color": "#000000", "marker": "o", "linestyle": "-"}
VALIDATION_STYLE: dict[str, Any] = {
    "color": "#0072B2",
    "marker": "D",
    "markersize": 2.6,
    "linestyle": (0, (4, 1.5)),
    "linewidth": 0.7,
}
PAPER_STYLE: dict[str, Any] = {
    "color": GREY,
    "marker": "s",
    "markersize": 4.2,
    "markerfacecolor": "white",
    "markeredgewidth": 0.9,
    "linestyle": (0, (1, 1.5)),
    "linewidth": 0.8,
}


def measured_line(
    ax: Axes, points: Sequence[Point], place: Place, style: Mapping[str, Any], shift: float = 0.0
) -> None:
    """Points with their intervals, joined; one that was not measured leaves a gap.

    `place` gives the position of each x; `shift` moves the series aside, in points of 1/72 in.
    """
    aside = _shifted(ax, shift)
    value = [math.nan if p.value is None else p.value for p in points]
    x = [place[p.x] for p in points]
    ax.plot(x, value, transform=aside, zorder=3, **style)
    for point in points:
        if point.ci_low is not None and point.ci_high is not None:
            ax.plot(
                [place[point.x]] * 2,
                [point.ci_low, point.ci_high],
                transform=aside,
                color=style["color"],
                linewidth=0.8,
                marker="_",
                markersize=4,
                zorder=2.5,
            )


def printed_points(
    ax: Axes,
    points: Sequence[Point],
    place: Place,
    style: Mapping[str, Any],
    shifts: Place | None = None,
) -> None:
    """The paper's points: open markers; an arrow from a bound, a bar over a range.

    `shifts` moves the points at an x aside, in points of 1/72 in.
    """
    shifts = shifts or {}
    exact = [(p.x, p.value) for p in points if p.value is not None]
    if not any(shifts.get(x) for x, _ in exact):
        ax.plot([place[x] for x, _ in exact], [y for _, y in exact], zorder=3.5, **style)
    else:
        for x, y in exact:
            ax.plot([place[x]], [y], transform=_shifted(ax, shifts[x]), zorder=3.5, **style)
    for p in points:
        if p.value is None:
            _bound(ax, p, place[p.x], style, _shifted(ax, shifts.get(p.x, 0.0)))


def _bound(
    ax: Axes, point: Point, x: float, style: Mapping[str, Any], transform: Transform
) -> None:
    low, high = point.bound_low, point.bound_high
    if low is not None and high is not None:
        bar = {**style, "linestyle": "-", "linewidth": 0.8, "marker": "_", "markersize": 8}
        ax.plot([x], [(low + high) / 2], transform=transform, zorder=3.5, **style)
        ax.plot([x, x], [low, high], transform=transform, zorder=3.4, **bar)
        return
    at = low if low is not None else high
    assert at is not None
    ax.plot([x], [at], transform=transform, zorder=3.5, **style)
    ax.annotate(
        "",
        xy=(x, at),
        xycoords=transform,
        xytext=(0, 13 if low is not None else -13),
        textcoords="offset points",
        arrowprops={"arrowstyle": "<-", "color": style["color"], "linewidth": 0.8},
        annotation_clip=True,
    )


def _shifted(ax: Axes, points: float) -> Transform:
    assert ax.figure is not None
    return ax.transData + ScaledTranslation(points / 72.0, 0.0, ax.figure.dpi_scale_trans)


def legend_entry(style: Mapping[str, Any], label: str) -> Line2D:
    """A legend's line for a style."""
    return Line2D([], [], label=label, **style)
