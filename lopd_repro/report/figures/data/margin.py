"""Figure 3: LOPD against its margin m, and with a frozen composer."""

from __future__ import annotations

from pathlib import Path

from lopd_repro.errors import UserError
from lopd_repro.report.figures.data.cells import chosen_validation, test_cells
from lopd_repro.report.figures.data.paper import read_printed
from lopd_repro.report.figures.data.settings import FigureSettings, grid
from lopd_repro.report.figures.points import TEST, VALIDATION, FigureData

_METRIC = "envscaler"
_SERIES = {"margin": "margin", "frozen_phi0": "frozen"}


def margin_points(root: Path, settings: FigureSettings, reported: Path) -> FigureData:
    """Test and validation scores on EnvScaler for every margin and the frozen composer."""
    places = [("margin", x, m) for x, m in grid(settings.figure3, "figure3", "margin").items()]
    frozen = settings.figure3.get("frozen")
    if frozen is not None:
        places.append(("frozen", "frozen", frozen))
    data = FigureData()
    cells, data.problems = test_cells(root, settings, [m for _, _, m in places], _METRIC)
    for split in (TEST, VALIDATION):
        for series, x, method in places:
            if split == TEST:
                numbers = cells[method]
            else:
                cell = chosen_validation(root, settings, method)
                numbers = cell.numbers
                data.problems += cell.problems
            data.points.append(
                settings.point(
                    "figure3", method, series=series, x=x, metric=_METRIC, split=split, **numbers
                )
            )
    for p in read_printed(reported, 100.0):
        if p.series not in _SERIES:
            raise UserError(f"{reported}: series {p.series!r}, allowed: {', '.join(_SERIES)}")
        series = _SERIES[p.series]
        label = "LOPD" if series == "margin" else "LOPD, frozen composer"
        data.points.append(
            p.point(
                "figure3",
                settings.paper_backbone,
                series=series,
                label=label,
                metric=_METRIC,
                split=TEST,
            )
        )
    return data
