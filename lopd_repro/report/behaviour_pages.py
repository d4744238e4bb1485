"""Table 3 as Markdown and as a self-contained HTML page."""

from __future__ import annotations

import html
from collections.abc import Mapping
from typing import Any

from lopd_repro.report.behaviour import (
    COLUMNS,
    ILLUSTRATIVE,
    METRICS,
    BehaviourMetric,
    Table3,
    Table3Settings,
)
from lopd_repro.report.document import cell, document


def headline(settings: Table3Settings) -> str:
    """What is measured, on what, with which seeds."""
    seeds = ", ".join(str(seed) for seed in settings.seeds)
    return f"Table 3: behaviour on EnvScaler ({settings.scale} scale, seeds {seeds})"


def legend(settings: Table3Settings) -> str:
    """How to read a cell."""
    return (
        f"Backbone: {settings.backbone_label}. Cells: mean over {len(settings.seeds)} training "
        "seeds ± standard deviation (n-1), with a 95% interval from a bootstrap over seeds and "
        "tasks. "
        f"'Paper' is the number the paper prints for {settings.paper_backbone}, another model on "
        f"other tasks. Base + composer is {ILLUSTRATIVE}: the untrained model reads latents of "
        "experiences retrieved for the test tasks, which no other column does."
    )


def markdown_page(settings: Table3Settings, table: Table3) -> str:
    """The table for a terminal or a repository page."""
    lines = [f"# {headline(settings)}", "", f"**{settings.notice}**", "", legend(settings), ""]
    titles = [f"{name} ({sub})" if sub else name for name, sub in _titles(settings)]
    lines.append("| metric | " + " | ".join(f"{title} | paper" for title in titles) + " |")
    lines.append("|---|" + "---:|---:|" * len(COLUMNS))
    for metric, row in zip(METRICS, table.rows, strict=True):
        cells: list[str] = []
        for column in COLUMNS:
            value, interval, printed = cell_text(metric, row, column)
            cells += [f"{value} [{interval}]" if value else "", printed]
        lines.append(f"| {metric.full_title} | " + " | ".join(cells) + " |")
    return "\n".join([*lines, "", *(f"- {note}" for note in notes(settings, table))]) + "\n"


def html_page(settings: Table3Settings, table: Table3) -> str:
    """The same as one HTML file without outside resources."""
    head = "".join(f"<th>{_with_sub(*title)}</th>" for title in _titles(settings))
    body = "".join(
        f"<tr><td>{_with_sub(metric.title, metric.reading)}</td>"
        + "".join(cell(*cell_text(metric, row, column)) for column in COLUMNS)
        + "</tr>"
        for metric, row in zip(METRICS, table.rows, strict=True)
    )
    content = f"<thead><tr><th>Metric</th>{head}</tr></thead><tbody>{body}</tbody>"
    return document(
        headline(settings), settings.notice, legend(settings), content, notes(settings, table)
    )


def cell_text(metric: BehaviourMetric, row: Mapping[str, Any], column: str) -> tuple[str, str, str]:
    """A cell's value, interval and reported number as texts; empty where there is none."""
    digits = metric.decimals
    value, std = row.get(column), row.get(f"{column}_std")
    shown = interval = ""
    if value is not None:
        shown = f"{value:.{digits}f}" + ("" if std is None else f" ± {std:.{digits}f}")
        low, high = row[f"{column}_ci_low"], row[f"{column}_ci_high"]
        interval = f"{low:.{digits}f} to {high:.{digits}f}"
    return shown, interval, row.get(f"{column}_reported") or ""


def notes(settings: Table3Settings, table: Table3) -> list[str]:
    """Floor, definitions, sources, and what is missing."""
    lines = []
    if table.floor is not None:
        lines.append(f"Reward: an agent that does nothing scores {table.floor:.3f}.")
    lines += [f"{metric.full_title}: {metric.definition}." for metric in METRICS]
    lines.append(
        "The paper does not say how it forms its ratios and which calls it counts; its numbers "
        "stand beside the reading that fits them better."
    )
    lines += [f"{', '.join(columns)}: {source}." for source, columns in table.sources.items()]
    lines.append(f"Where paper and released code differ, this run follows: {settings.preset}.")
    return [*lines, *table.remarks, *table.problems]


def _titles(settings: Table3Settings) -> list[tuple[str, str]]:
    """Each column's name, and what stands below it."""
    return [(settings.label(c), ILLUSTRATIVE if c == "base_plus_composer" else "") for c in COLUMNS]


def _with_sub(text: str, sub: str) -> str:
    below = f'<span class="sub">{html.escape(sub)}</span>' if sub else ""
    return html.escape(text) + below
