"""Picture of the controls: LOPD minus each, paired, with intervals."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lopd_repro.errors import UserError
from lopd_repro.report.figures.draw.series import legend_entry
from lopd_repro.report.figures.draw.style import COLUMN, new_figure
from lopd_repro.report.figures.draw.tables import Row, number, read_table, short

_NEEDED = ("backbone", "metric", "label", "difference", "ci_low", "ci_high", "verdict")
_VERDICTS: dict[str, tuple[str, dict[str, Any]]] = {
    "lopd_higher": ("LOPD higher", {"color": "#000000", "marker": ">", "markersize": 4.4}),
    "control_higher": ("control higher", {"color": "#D55E00", "marker": "<", "markersize": 4.4}),
    "undecided": ("undecided", {"color": "#6b6b6b", "marker": "o", "markersize": 3.8}),
}
_LABEL = 21


def draw_controls(path: Path, notice: str) -> Figure:
    """A row per control, in the table's order; one that was not measured whole has no marker."""
    rows = read_table(path, _NEEDED)
    cells = [tuple(number(row, name, path) for name in _NEEDED[3:6]) for row in rows]
    whole = [tuple(v for v in cell if v is not None) for cell in cells]
    if not any(len(cell) == 3 for cell in whole):
        raise UserError(f"{path}: no control was measured, so there is nothing to draw")
    labels = [textwrap.fill(short(row["label"]), _LABEL) for row in rows]
    lines = sum(max(1.4, label.count("\n") + 1.3) for label in labels)
    figure = new_figure(COLUMN, 1.2 + 0.13 * lines, notice)
    ax = figure.add_subplot()
    y = _places(labels)
    for at, row, cell in zip(y, rows, whole, strict=True):
        if len(cell) == 3:
            _, style = _VERDICTS.get(row["verdict"], _VERDICTS["undecided"])
            ax.plot(cell[1:], [at, at], color=style["color"], linewidth=1.1, zorder=2)
            ax.plot([cell[0]], [at], linestyle="none", zorder=3, **style)
    ax.axvline(0.0, color="#000000", linewidth=0.6)
    ax.set_yticks(y, labels)
    ax.set_ylim(max(y) + 0.9, min(y) - 0.9)
    ax.tick_params(axis="y", length=0)
    ax.grid(axis="x", color="#e2e2e2", linewidth=0.5)
    ax.set_axisbelow(True)
    _numbers(ax, y, whole)
    ax.set_xlabel("LOPD minus control, EnvScaler points", loc="left")
    _legend(figure, rows)
    return figure


def _places(labels: Sequence[str]) -> list[float]:
    """Heights from the top down that give longer labels more room."""
    found, at = [], 0.0
    for label in labels:
        room = max(1.4, label.count("\n") + 1.3) / 2
        at += room
        found.append(at)
        at += room
    return found


def _numbers(ax: Axes, y: Sequence[float], cells: Sequence[tuple[float, ...]]) -> None:
    """Difference and interval as numbers at the right edge."""
    right = ax.secondary_yaxis("right")
    texts = [
        f"{c[0]:z.1f} [{c[1]:z.1f}, {c[2]:z.1f}]" if len(c) == 3 else "not measured" for c in cells
    ]
    right.set_yticks(y, [text.replace("-", "\N{MINUS SIGN}") for text in texts])
    right.tick_params(axis="y", length=0)
    right.spines["right"].set_visible(False)


def _legend(figure: Figure, rows: Sequence[Row]) -> None:
    backbone = rows[0]["backbone"]
    found = {row["verdict"] for row in rows}
    handles = [
        legend_entry({**style, "linestyle": "-", "linewidth": 1.1}, title)
        for verdict, (title, style) in _VERDICTS.items()
        if verdict in found
    ]
    figure.legend(
        handles=handles,
        loc="outside upper left",
        ncols=3,
        title=f"{backbone}, test, with 95% intervals",
        title_fontsize=7,
        alignment="left",
    )
