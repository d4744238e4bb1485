"""A table as Markdown and as a self-contained HTML page, headed by what it is and is not."""

from __future__ import annotations

import html
from collections.abc import Mapping

from lopd_repro.report.document import cell, document
from lopd_repro.report.layout import Layout, TableSettings
from lopd_repro.report.table import Table


def headline(layout: Layout, settings: TableSettings) -> str:
    """Scale and seeds in one line."""
    seeds = ", ".join(str(seed) for seed in settings.seeds)
    return f"{layout.title} ({settings.scale} scale, seeds {seeds})"


def legend(layout: Layout, settings: TableSettings, binomial: bool = False) -> str:
    """How to read a cell. `binomial`: the intervals are Wilson's."""
    if binomial:
        return (
            "Cells: problems solved out of 100, with a 95% Wilson interval over the problems. "
            "There is one sample a problem and one training seed: the interval says nothing about "
            "what another seed would change."
        )
    return (
        f"Cells: mean over {len(settings.seeds)} training seeds ± standard deviation (n-1), with "
        "a 95% interval from a bootstrap over seeds and tasks, on a scale of 0 to 100. "
        "'Paper' is the number the paper prints for the backbone named beside ours, another model "
        "on other tasks. An empty cell was not measured."
    )


def cell_text(row: Mapping[str, object], name: str) -> tuple[str, str, str]:
    """A cell's value, interval and reported number as texts; empty where there is none."""
    value, std = row.get(name), row.get(f"{name}_std")
    low, high = row.get(f"{name}_ci_low"), row.get(f"{name}_ci_high")
    printed = row.get(f"{name}_printed")
    shown = "" if value is None else f"{value:.1f}" + ("" if std is None else f" ± {std:.1f}")
    interval = "" if low is None else f"{low:.1f} to {high:.1f}"
    return shown, interval, "" if printed is None else str(printed)


def method_text(row: Mapping[str, object], table: Table) -> str:
    """A row's method; a released checkpoint's says what it is."""
    method = str(row["method"])
    return f"{method}, one checkpoint" if method in table.checkpoints else method


def markdown_page(
    layout: Layout,
    settings: TableSettings,
    table: Table,
    notice: str,
    floor: Mapping[str, float],
    labels: Mapping[str, str],
) -> str:
    """The table for a terminal or a repository page; metrics without any cell are listed apart."""
    shown = measured(layout, table)
    lines = [
        f"# {headline(layout, settings)}",
        "",
        f"**{notice}**",
        "",
        legend(layout, settings, table.binomial),
        "",
    ]
    titles = {m.name: m.title for m in layout.metrics}
    for backbone in settings.backbones:
        paper = settings.paper_backbones[backbone]
        lines += [f"## {labels[backbone]} (paper: {paper})", ""]
        lines.append("| method | " + " | ".join(f"{titles[n]} | paper" for n in shown) + " |")
        lines.append("|---|" + "---:|---:|" * len(shown))
        for row in table.rows:
            if row["backbone"] == backbone:
                cells = []
                for name in shown:
                    value, interval, reported = cell_text(row, name)
                    cells += [f"{value} [{interval}]" if value else "", reported]
                lines.append(f"| {method_text(row, table)} | " + " | ".join(cells) + " |")
        lines.append("")
    lines += [f"- {note}" for note in notes(layout, table, floor)]
    return "\n".join(lines) + "\n"


def html_page(
    layout: Layout,
    settings: TableSettings,
    table: Table,
    notice: str,
    floor: Mapping[str, float],
    labels: Mapping[str, str],
) -> str:
    """The same as one HTML file without outside resources; every metric has its column."""
    e = html.escape
    head = "".join(f"<th>{e(metric.title)}</th>" for metric in layout.metrics)
    body = []
    for backbone in settings.backbones:
        title = f"{labels[backbone]} (paper: {settings.paper_backbones[backbone]})"
        span = len(layout.metrics) + 1
        body.append(f'<tr class="backbone"><th colspan="{span}">{e(title)}</th></tr>')
        for row in table.rows:
            if row["backbone"] == backbone:
                cells = "".join(cell(*cell_text(row, m.name)) for m in layout.metrics)
                body.append(f"<tr><td>{e(method_text(row, table))}</td>{cells}</tr>")
    return document(
        headline(layout, settings),
        notice,
        legend(layout, settings, table.binomial),
        f"<thead><tr><th>Method</th>{head}</tr></thead><tbody>{''.join(body)}</tbody>",
        notes(layout, table, floor),
    )


def measured(layout: Layout, table: Table) -> list[str]:
    """Metrics with at least one filled cell."""
    return [
        m.name for m in layout.metrics if any(row.get(m.name) is not None for row in table.rows)
    ]


def notes(layout: Layout, table: Table, floor: Mapping[str, float]) -> list[str]:
    """What made the cells, what stands beside their verdicts, the do-nothing floor, the missing."""
    titles = {m.name: m.title for m in layout.metrics}
    lines = [
        f"{titles[name]}: an agent that does nothing scores {value:.1f}."
        for name, value in floor.items()
    ]
    lines += [
        f"{titles[name]}: {'; '.join(sources)}." for name, sources in sorted(table.sources.items())
    ]
    lines += [
        f"{titles[name]}: {readings.sentence()}."
        for name, readings in table.readings.items()
        if readings.verdicts
    ]
    for label, method in table.checkpoints.items():
        beside = f" Beside it is what the paper prints for {method}." if method else ""
        lines.append(
            f"{label}: one checkpoint that was trained elsewhere, asked once. It is none of this "
            "run's seeds: it has no deviation over seeds, its interval is over tasks alone, and no "
            f"comparison counts it.{beside}"
        )
    if table.choices:
        lines.append(f"Where paper and released code differ, this run follows: {table.choices}.")
    shown = set(measured(layout, table))
    absent = [m.title for m in layout.metrics if m.name not in shown]
    if absent:
        lines.append(f"Not measured in this run: {', '.join(absent)}.")
    lines += [problem for problem in table.problems if _metric_of(problem) in shown]
    return [*lines, *table.failures]


def _metric_of(problem: str) -> str:
    return problem.split(":", 1)[0].rsplit(" / ", 1)[-1]
