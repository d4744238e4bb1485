"""What the figures show, from evaluation files and training logs."""

from __future__ import annotations

from lopd_repro.report.figures.data.curves import curve_points
from lopd_repro.report.figures.data.grids import grid_points
from lopd_repro.report.figures.data.margin import margin_points

FIGURES = {"figure3": margin_points, "figure4": curve_points, "figure5": grid_points}

__all__ = ["FIGURES"]
