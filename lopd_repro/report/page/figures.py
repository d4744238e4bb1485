"""Figures 3-5: the picture, how to read it, and the points behind it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lopd_repro.report.page.grid import Band, Cell, Column, Row, grid
from lopd_repro.report.page.markup import Content, Html, el
from lopd_repro.report.page.numbers import number, span
from lopd_repro.report.page.picture import picture
from lopd_repro.report.page.results import Results
from lopd_repro.report.page.section import Section, absent, fold, metric_title, problems, sources


@dataclass(frozen=True)
class Figure:
    """A figure's file name, title, and what it shows."""

    name: str
    title: str
    shows: str


FIGURES = (
    Figure(
        "figure3",
        "Figure 3: margin and frozen composer",
        "Test reward of LOPD by margin m, and with the composer frozen as the cold start made it.",
    ),
    Figure(
        "figure4",
        "Figure 4: reward over generations",
        "Mean reward against training generations. Curves are on validation tasks, which choose"
        " the checkpoint; a test curve, where drawn, is a series of its own that chose nothing.",
    ),
    Figure(
        "figure5",
        "Figure 5: latents and retrieved experiences",
        "Test scores of LOPD by the number of latents per experience, K, and by the number of"
        " retrieved experiences.",
    ),
)
_READING = (
    "Filled marks are means over training seeds with 95% intervals; open marks are the paper's"
    " points, of another model on other tasks."
)


def figure_section(results: Results, figure: Figure) -> Section:
    """One figure with its caption and, folded, its numbers."""
    name = figure.name
    files = [f"{name}.{end}" for end in ("pdf", "png", "csv", "log")]
    body: list[Content] = []
    if results.has(f"{name}.png"):
        image = framed(results, f"{name}.png", f"{figure.title}. {figure.shows}")
        body.append(el("figure", image, el("figcaption", f"{figure.shows} {_READING}")))
    else:
        body.append(absent(results, f"{name}.png"))
    if results.has(f"{name}.csv"):
        rows = results.rows(f"{name}.csv")
        body.append(fold(f"The {len(rows)} points behind it", _points(figure, rows)))
    body.append(problems(results, f"{name}.log"))
    content = [*body, sources(results, files)]
    return Section(name, figure.title, content, figure.title.split(":")[0])


def framed(results: Results, name: str, alt: str) -> Html:
    """A picture in a box that scrolls sideways where it is wider than the screen."""
    image = picture(results.path(name), alt)
    return el("div", image, class_="scroll", tabindex=0, role="region", aria_label=alt)


def _points(figure: Figure, rows: list[dict[str, str]]) -> Html:
    columns = [
        Column("Series"),
        Column("x"),
        Column("Metric", text=True),
        Column("Split", text=True),
        Column("Value"),
        Column("Seeds"),
    ]
    lines: list[Row] = []
    last = None
    for row in sorted(rows, key=lambda row: row["panel"]):
        panel = row["panel"]
        if panel != last:
            last = panel
            if panel:
                lines.append(Band(f"Panel {panel}"))
        lines.append(
            [
                Cell(row["label"] or row["series"]),
                row["x"],
                metric_title(row["metric"]),
                row["split"],
                _value(row),
                row["n_seeds"],
            ]
        )
    return grid(figure.title, columns, lines)


def _value(row: Mapping[str, str]) -> Cell:
    if row["source"] == "paper":
        return Cell(el("span", f"paper {row['printed'] or number(row['value'])}", class_="paper"))
    if not row["value"]:
        return Cell("not measured", css="empty")
    value = number(row["value"], 1) + (f" ± {number(row['std'], 1)}" if row["std"] else "")
    interval = span(row["ci_low"], row["ci_high"], 1)
    return Cell(value, (interval,) if interval else ())
