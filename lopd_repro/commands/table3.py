"""`lopd-repro table3`: behaviour on the EnvScaler test tasks, from evaluation files.

    lopd-repro table3 --settings JSON --results results --reported paper_tables/table3.csv \
        --csv results/table3.csv --markdown FILE --html FILE --problems FILE

Columns: the base model, the base model with the composer's latents at inference (illustrative),
and LOPD. A column whose files are missing or incomplete is empty and named in `--problems`.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from lopd_repro.errors import UserError
from lopd_repro.files import write_text
from lopd_repro.report.analysis import part_of
from lopd_repro.report.behaviour import Table3Settings, build_table3
from lopd_repro.report.behaviour_pages import html_page, markdown_page
from lopd_repro.report.cells import csv_text, read_reported
from lopd_repro.settings import read_settings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of this command."""
    parser.add_argument("--settings", required=True)
    parser.add_argument("--results", type=Path, required=True)
    parser.add_argument("--reported", type=Path, required=True, help="the paper's cells")
    parser.add_argument("--csv", type=Path, required=True)
    for name in ("markdown", "html", "problems"):
        parser.add_argument(f"--{name}", type=Path)


def run(args: argparse.Namespace) -> int:
    """Write what was asked for."""
    settings = table3_settings(read_settings(args.settings))
    table = build_table3(args.results, settings, read_reported(args.reported))
    for line in table.problems:
        print(line, file=sys.stderr)
    if args.problems:
        write_text(args.problems, "".join(line + "\n" for line in table.problems))
    if args.markdown:
        write_text(args.markdown, markdown_page(settings, table))
    if args.html:
        write_text(args.html, html_page(settings, table))
    rows = [{name: _plain(value) for name, value in row.items()} for row in table.rows]
    write_text(args.csv, csv_text(table.columns, rows))
    return 0


def table3_settings(values: dict[str, Any]) -> Table3Settings:
    """From the settings that the analyses' commands share; what others need is passed over."""
    settings = part_of(Table3Settings, values)
    for method in ("vanilla", "lopd"):
        if method not in settings.labels:
            raise UserError(f"settings.labels.{method}: missing")
    return settings


def _plain(value: Any) -> Any:
    """Six significant digits: the rows' sizes differ by orders of magnitude."""
    return f"{value:.6g}" if isinstance(value, float) else value
