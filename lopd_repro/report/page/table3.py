"""Table 3, behaviour on EnvScaler, from its CSV file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from lopd_repro.report.behaviour import COLUMNS, ILLUSTRATIVE, METRICS, SUFFIXES
from lopd_repro.report.behaviour_pages import cell_text
from lopd_repro.report.page.grid import Cell, Column, Row, grid
from lopd_repro.report.page.markup import el
from lopd_repro.report.page.numbers import as_float
from lopd_repro.report.page.results import Results
from lopd_repro.report.page.section import Section, absent, measured, noted, sources
from lopd_repro.report.page.settings import PageSettings

_METRICS = {metric.name: metric for metric in METRICS}


def table3_section(results: Results, settings: PageSettings) -> Section:
    """The three columns of the paper, with what each metric is."""
    title = "Table 3: behaviour"
    if not results.has("table3.csv"):
        return Section("table3", title, absent(results, "table3.csv"))
    rows = results.rows("table3.csv")
    columns = [Column("Metric"), *(Column(_title(name, settings)) for name in COLUMNS)]
    backbones = dict.fromkeys(row.get("backbone", "") for row in rows)
    about = (
        f"On EnvScaler test tasks, {', '.join(map(settings.backbone_title, backbones))}. Cells:"
        f" mean over {len(settings.seeds)} training seeds ± standard deviation (n-1), with a 95%"
        " interval from a bootstrap over seeds and tasks, and the paper's number, of another model"
        f" on other tasks. Base + composer is {ILLUSTRATIVE}: the untrained model reads latents of"
        " experiences retrieved for the test tasks, which no other column does."
    )
    body = [
        el("p", about),
        grid(title, columns, _rows(rows)),
        noted(results, "table3.md"),
        sources(results, [f"table3.{end}" for end in ("csv", "html", "md", "log")]),
    ]
    return Section("table3", title, body)


def _title(column: str, settings: PageSettings) -> str:
    if column == "base_plus_composer":
        return f"Base + composer ({ILLUSTRATIVE})"
    return settings.label(column)


def _rows(rows: Sequence[Mapping[str, str]]) -> Iterator[Row]:
    for row in rows:
        metric = _METRICS.get(row["metric"])
        if metric is None:
            continue
        values: dict[str, float | str | None] = {
            f"{column}{end}": as_float(row.get(f"{column}{end}"))
            for column in COLUMNS
            for end in SUFFIXES
        }
        values |= {f"{c}_reported": row.get(f"{c}_reported") for c in COLUMNS}
        cells = [measured(*cell_text(metric, values, column)) for column in COLUMNS]
        yield [Cell(metric.title, (metric.reading,) if metric.reading else ()), *cells]
