"""Figure 5: LOPD against its number of latent tokens K (a) and of retrieved experiences (b-e)."""

from __future__ import annotations

from pathlib import Path

from lopd_repro.errors import UserError
from lopd_repro.report.figures.data.cells import chosen_validation, test_cells
from lopd_repro.report.figures.data.paper import read_printed
from lopd_repro.report.figures.data.settings import FigureSettings, grid
from lopd_repro.report.figures.points import TEST, VALIDATION, FigureData

# Panel: series (the paper's name), grid of the settings, metric.
PANELS = {
    "a": ("latent_tokens", "latents", "envscaler"),
    "b": ("n_retrieved_envscaler", "retrieved", "envscaler"),
    "c": ("n_retrieved_ace_avg", "retrieved", "ace_avg"),
    "d": ("n_retrieved_ace_multi_step", "retrieved", "ace_multi_step"),
    "e": ("n_retrieved_ace_multi_turn", "retrieved", "ace_multi_turn"),
}
_VALIDATED = "envscaler"


def grid_points(root: Path, settings: FigureSettings, reported: Path) -> FigureData:
    """Test scores of all panels; validation scores where validation has the metric (a, b)."""
    data = FigureData()
    for panel, (series, name, metric) in PANELS.items():
        if not settings.figure5.get(name):
            data.problems.append(f"panel {panel}: not run: settings.figure5.{name} has no grid")
            continue
        methods = grid(settings.figure5, "figure5", name)
        cells, problems = test_cells(root, settings, list(methods.values()), metric)
        data.problems += [f"panel {panel}: {problem}" for problem in problems]
        for split in (TEST, VALIDATION) if metric == _VALIDATED else (TEST,):
            for x, method in methods.items():
                if split == TEST:
                    numbers = cells[method]
                else:
                    cell = chosen_validation(root, settings, method)
                    numbers = cell.numbers
                    data.problems += [f"panel {panel}: {problem}" for problem in cell.problems]
                data.points.append(
                    settings.point(
                        "figure5",
                        method,
                        panel=panel,
                        series=series,
                        x=x,
                        metric=metric,
                        split=split,
                        **numbers,
                    )
                )
    for p in read_printed(reported, 1.0):
        if p.panel not in PANELS or p.series != PANELS[p.panel][0]:
            raise UserError(f"{reported}: panel {p.panel!r} has no series {p.series!r}")
        data.points.append(
            p.point(
                "figure5",
                settings.paper_backbone,
                series=p.series,
                label="LOPD",
                metric=PANELS[p.panel][2],
                split=TEST,
            )
        )
    return data
