"""Tables 1 and 2 from their CSV files, with the paper's numbers beside."""

from __future__ import annotations

from collections.abc import Mapping

from lopd_repro.report.layout import EVERY_LAYOUT, Layout, Metric, TableSettings
from lopd_repro.report.page.grid import Band, Cell, Column, Row, grid
from lopd_repro.report.page.markup import Content, el
from lopd_repro.report.page.numbers import as_float, number
from lopd_repro.report.page.results import Results
from lopd_repro.report.page.section import Section, absent, measured, noted, sources
from lopd_repro.report.page.settings import PageSettings
from lopd_repro.report.render import cell_text, legend

Reported = Mapping[tuple[str, str, str], str]


def table_section(
    results: Results, settings: PageSettings, layout: Layout, reported: Reported
) -> Section:
    """One table of scores. `reported` has the paper's digits by (backbone, method, metric)."""
    name = layout.name
    body: list[Content]
    if results.has(f"{name}.csv"):
        rows = results.rows(f"{name}.csv")
        body = [
            el("p", legend(layout, _table_settings(settings, rows))),
            grid(layout.title, *_content(rows, settings, layout, reported)),
            noted(results, f"{name}.md"),
            sources(results, [f"{name}.{end}" for end in ("csv", "html", "md", "log")]),
        ]
    else:
        body = [absent(results, f"{name}.csv", made=_is_target(results, settings, layout))]
    return Section(name, layout.title, body)


def _is_target(results: Results, settings: PageSettings, layout: Layout) -> bool:
    """Whether the configuration has the table: its domain was asked for, and no other table of
    that domain was made instead."""
    others = [x.name for x in EVERY_LAYOUT.values() if x.domain == layout.domain and x != layout]
    made = any(results.has(f"{name}.csv") for name in others)
    return layout.domain in settings.domains() and not made


def _content(
    rows: list[dict[str, str]], settings: PageSettings, layout: Layout, reported: Reported
) -> tuple[list[Column], list[Row]]:
    shown = [m for m in layout.metrics if any(row.get(m.name) for row in rows)]
    columns = [Column("Method"), *(Column(m.title) for m in shown)]
    lines: list[Row] = []
    for backbone in dict.fromkeys(row["backbone"] for row in rows):
        lines.append(Band(settings.backbone_title(backbone)))
        for row in rows:
            if row["backbone"] == backbone:
                cells = [_cell(row, m, settings.paper_backbone(backbone), reported) for m in shown]
                own = row["method"] in settings.checkpoints
                lines.append([f"{row['method']}, one checkpoint" if own else row["method"], *cells])
    return columns, lines


def _cell(row: Mapping[str, str], metric: Metric, paper: str, reported: Reported) -> Cell:
    name = metric.name
    parts = {
        f"{name}{end}": as_float(row.get(f"{name}{end}"))
        for end in ("", "_std", "_ci_low", "_ci_high")
    }
    printed = reported.get((paper, row["method"], name)) or number(row.get(f"{name}_reported"))
    return measured(*cell_text({**parts, f"{name}_printed": printed or None}, name))


def _table_settings(settings: PageSettings, rows: list[dict[str, str]]) -> TableSettings:
    backbones = tuple(dict.fromkeys(row["backbone"] for row in rows))
    return TableSettings(
        scale=settings.scale,
        backbones=backbones,
        methods=tuple(settings.methods),
        labels=settings.labels,
        paper_backbones={name: settings.paper_backbone(name) for name in backbones},
        seeds=tuple(settings.seeds),
    )
