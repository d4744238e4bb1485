"""Pictures of the figures, from their CSV files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from matplotlib.figure import Figure

from lopd_repro.errors import UserError
from lopd_repro.report.figures.draw.curves import draw_curves
from lopd_repro.report.figures.draw.grids import draw_grids
from lopd_repro.report.figures.draw.margin import draw_margin
from lopd_repro.report.figures.draw.style import save, styled
from lopd_repro.report.figures.points import read_points

_FIGURES = {"figure3": draw_margin, "figure4": draw_curves, "figure5": draw_grids}


def _of_points(name: str, data: Path, notice: str) -> Figure:
    points = [p for p in read_points(data) if p.figure == name]
    if not any(p.measured and p.value is not None for p in points):
        raise UserError(f"{data}: no measured point of {name}, so there is nothing to draw")
    return _FIGURES[name](points, notice)


DRAWN: dict[str, Callable[[str, Path, str], Figure]] = {name: _of_points for name in _FIGURES}

__all__ = ["DRAWN", "save", "styled"]
