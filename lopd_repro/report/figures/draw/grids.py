"""Picture of figure 5: number of latent tokens (a) and of retrieved experiences (b-e)."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.gridspec import SubplotSpec

from lopd_repro.report.figures.draw.axes import extent, value_axes
from lopd_repro.report.figures.draw.series import (
    PAPER_STYLE,
    TEST_STYLE,
    VALIDATION_STYLE,
    legend_entry,
    measured_line,
    printed_points,
)
from lopd_repro.report.figures.draw.style import PAGE, new_figure
from lopd_repro.report.figures.points import TEST, VALIDATION, Point

_TITLES = {
    "a": "(a) EnvScaler",
    "b": "(b) EnvScaler",
    "c": "(c) ACE average",
    "d": "(d) ACE multi-step",
    "e": "(e) ACE multi-turn",
}


def draw_grids(points: Sequence[Point], notice: str) -> Figure:
    """Five panels side by side; K on a doubling axis."""
    figure = new_figure(PAGE, 2.9, notice)
    counts = [len({p.x for p in points if p.panel == panel}) for panel in _TITLES]
    widths = [max(5, count) for count in counts]
    grid = figure.add_gridspec(1, len(_TITLES), width_ratios=widths)
    for index, (panel, title) in enumerate(_TITLES.items()):
        own = [p for p in points if p.panel == panel]
        if own:
            axes = _panel(figure, grid[index], own, ordinal=panel == "a")
            axes[0].set_title(title, loc="left", pad=3.0)
            axes[-1].set_xlabel("latent tokens K" if panel == "a" else "experiences n")
    figure.supylabel("score, 0 to 100", fontsize=7)
    ours = next(p.backbone for p in points if p.measured)
    handles = [
        legend_entry(TEST_STYLE, f"{ours}, test (bar: 95% interval)"),
        legend_entry(VALIDATION_STYLE, f"{ours}, validation (EnvScaler only)"),
    ]
    printed = [p for p in points if not p.measured]
    if printed:
        handles.append(legend_entry(PAPER_STYLE, f"paper, {printed[0].backbone}"))
    figure.legend(handles=handles, loc="outside upper center", ncols=len(handles))
    return figure


def _panel(
    figure: Figure, place: SubplotSpec, points: Sequence[Point], *, ordinal: bool
) -> list[Axes]:
    xs = sorted({p.x for p in points}, key=float)
    position = {x: float(i) if ordinal else float(x) for i, x in enumerate(xs)}
    room = 0.5 if ordinal else 0.15 * (float(xs[-1]) - float(xs[0])) or 0.5

    def draw(ax: Axes) -> None:
        for split, style, shift in ((TEST, TEST_STYLE, 0.0), (VALIDATION, VALIDATION_STYLE, 3.5)):
            own = [p for p in points if p.measured and p.split == split]
            own.sort(key=lambda p: position[p.x])
            measured_line(ax, own, position, style, shift)
        printed = [p for p in points if not p.measured]
        printed.sort(key=lambda p: position[p.x])
        printed_points(ax, printed, position, PAPER_STYLE)
        ax.set_xlim(min(position.values()) - room, max(position.values()) + room)
        ax.set_xticks(list(position.values()), xs)

    return value_axes(figure, place, extent(points), draw)
