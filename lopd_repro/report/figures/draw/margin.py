"""Picture of figure 3: EnvScaler against the margin m, the frozen composer beside it."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lopd_repro.report.figures.draw.axes import extent, value_axes
from lopd_repro.report.figures.draw.series import (
    PAPER_STYLE,
    TEST_STYLE,
    VALIDATION_STYLE,
    legend_entry,
    measured_line,
    printed_points,
)
from lopd_repro.report.figures.draw.style import COLUMN, new_figure
from lopd_repro.report.figures.points import TEST, VALIDATION, Point

_FROZEN = "frozen"


def draw_margin(points: Sequence[Point], notice: str) -> Figure:
    """m on an ordinal axis (its steps are uneven), the frozen composer as a line with its band."""
    figure = new_figure(COLUMN, 3.2, notice)
    xs = sorted({p.x for p in points if p.x != _FROZEN}, key=float)
    place = {x: float(i) for i, x in enumerate([_FROZEN, *xs])}
    ours = [p for p in points if p.measured]
    printed = [p for p in points if not p.measured]

    def draw(ax: Axes) -> None:
        for p in ours:
            if p.x == _FROZEN and p.split == TEST and p.value is not None:
                ax.axhline(p.value, color="#888888", linewidth=0.9, linestyle=(0, (6, 1.5, 1, 1.5)))
                if p.ci_low is not None and p.ci_high is not None:
                    ax.axhspan(p.ci_low, p.ci_high, color="#888888", alpha=0.22, linewidth=0)
        for split, style, shift in ((TEST, TEST_STYLE, 0.0), (VALIDATION, VALIDATION_STYLE, 3.5)):
            for series in ("margin", "frozen"):
                own = [p for p in ours if p.split == split and p.series == series]
                own.sort(key=lambda p: place[p.x])
                measured_line(ax, own, place, style, shift)
        for series in ("margin", "frozen"):
            own = [p for p in printed if p.series == series]
            own.sort(key=lambda p: place[p.x])
            printed_points(ax, own, place, PAPER_STYLE)
        ax.set_xlim(-0.5, len(place) - 0.5)
        ax.set_xticks(range(len(place)), [_FROZEN, *xs])

    axes = value_axes(figure, figure.add_gridspec(1, 1)[0], extent(points), draw)
    axes[-1].set_xlabel("margin m (uneven steps)")
    figure.supylabel("EnvScaler score, 0 to 100", fontsize=7)
    backbone = next(p.backbone for p in ours)
    handles = [
        legend_entry(TEST_STYLE, f"{backbone}, test (bar: 95% interval)"),
        legend_entry(VALIDATION_STYLE, f"{backbone}, validation"),
        legend_entry(
            {"color": "#888888", "linestyle": (0, (6, 1.5, 1, 1.5)), "linewidth": 0.9},
            f"{backbone}, frozen composer, test",
        ),
    ]
    if printed:
        handles.append(legend_entry(PAPER_STYLE, f"paper, {printed[0].backbone}"))
    figure.legend(handles=handles, loc="outside upper left", ncols=1)
    return figure
