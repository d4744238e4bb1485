"""Pictures of the figures, from their CSV files."""

from __future__ import annotations

from pathlib import Path

from matplotlib.figure import Figure

from lopd_repro.errors import UserError
from lopd_repro.report.figures.draw.controls import draw_controls
from lopd_repro.report.figures.draw.curves import draw_curves
from lopd_repro.report.figures.draw.diagnostics import draw_diagnostics, draw_divergence
from lopd_repro.report.figures.draw.grids import draw_grids
from lopd_repro.report.figures.draw.margin import draw_margin
from lopd_repro.report.figures.draw.style import save, styled
from lopd_repro.report.figures.points import read_points

_FIGURES = {"figure3": draw_margin, "figure4": draw_curves, "figure5": draw_grids}
_TABLES = {
    "controls": draw_controls,
    "diagnostics": draw_diagnostics,
    "divergence": draw_divergence,
}
NAMES = (*_FIGURES, *_TABLES)


def draw(name: str, data: Path, notice: str) -> Figure:
    """A figure's picture from its CSV; one without a measured point is a `UserError`."""
    if name not in NAMES:
        raise UserError(f"--figure: found {name!r}, allowed: {', '.join(NAMES)}")
    if name in _TABLES:
        return _TABLES[name](data, notice)
    points = [p for p in read_points(data) if p.figure == name]
    if not any(p.measured and p.value is not None for p in points):
        raise UserError(f"{data}: no measured point of {name}, so there is nothing to draw")
    return _FIGURES[name](points, notice)


__all__ = ["NAMES", "draw", "save", "styled"]
