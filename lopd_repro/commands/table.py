"""`lopd-repro table`: a table of the paper from evaluation files, and paired comparisons.

    lopd-repro table --settings JSON --layout table1 --results results \
        --reported paper_tables/table1.csv --csv results/table1.csv ...

Incomplete cells are empty and named in the `--problems` file.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lopd_repro.errors import UserError
from lopd_repro.files import write_text
from lopd_repro.report.cells import csv_text, read_reported
from lopd_repro.report.layout import EVERY_LAYOUT, Layout, ReleasedRow, TableSettings, layout
from lopd_repro.report.render import html_page, markdown_page
from lopd_repro.report.scores import noop_floor
from lopd_repro.report.table import build_table, comparison_cells
from lopd_repro.settings import build, read_settings
from lopd_repro.stats import COMPARISON_COLUMNS, comparisons


@dataclass(frozen=True)
class ReportSettings:
    """What the rule hands over: scale, its notice, backbones, methods, seeds, and checkpoints of
    others (fields of `ReleasedRow`)."""

    scale: str
    notice: str
    preset: str
    backbones: dict[str, Any]
    methods: dict[str, str]
    seeds: list[int]
    bootstrap_seed: int = 0
    released: list[Any] = field(default_factory=list)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of this command."""
    parser.add_argument("--settings", required=True)
    parser.add_argument("--layout", required=True, help=f"one of {', '.join(EVERY_LAYOUT)}")
    parser.add_argument("--results", type=Path, required=True)
    parser.add_argument("--reported", type=Path, help="the paper's cells; needed for --csv")
    for name in ("csv", "markdown", "html", "problems", "comparisons"):
        parser.add_argument(f"--{name}", type=Path)


def run(args: argparse.Namespace) -> int:
    """Write what was asked for."""
    settings = build(ReportSettings, read_settings(args.settings), "report")
    chosen = layout(args.layout)
    table = TableSettings(
        scale=settings.scale,
        backbones=tuple(settings.backbones),
        methods=tuple(settings.methods),
        labels=settings.methods,
        paper_backbones={n: b["paper_backbone"] for n, b in settings.backbones.items()},
        seeds=tuple(settings.seeds),
        bootstrap_seed=settings.bootstrap_seed,
        released=tuple(build(ReleasedRow, row, "report.released") for row in settings.released),
    )
    if args.csv:
        if args.reported is None:
            raise UserError("--reported: missing, but --csv needs the paper's cells")
        _write_table(args, settings, chosen, table)
    if args.comparisons:
        _write_comparisons(args, settings, chosen, table)
    return 0


def _write_table(
    args: argparse.Namespace, settings: ReportSettings, chosen: Layout, table: TableSettings
) -> None:
    result = build_table(args.results, chosen, table, read_reported(args.reported))
    lines = [*result.problems, *result.failures, *result.remarks]
    for line in lines:
        print(line, file=sys.stderr)
    if args.problems:
        write_text(args.problems, "".join(line + "\n" for line in lines))
    floor = noop_floor(args.results, chosen.domain, table)
    labels = {name: b["label"] for name, b in settings.backbones.items()}
    result.choices = settings.preset
    page = (chosen, table, result, settings.notice, floor, labels)
    if args.markdown:
        write_text(args.markdown, markdown_page(*page))
    if args.html:
        write_text(args.html, html_page(*page))
    write_text(args.csv, csv_text(result.columns, result.rows))


def _write_comparisons(
    args: argparse.Namespace, settings: ReportSettings, chosen: Layout, table: TableSettings
) -> None:
    rows = comparisons(
        settings.scale,
        comparison_cells(args.results, chosen, table),
        seed=settings.bootstrap_seed,
        tasks="shared",
    )
    write_text(args.comparisons, csv_text(list(COMPARISON_COLUMNS), rows))
