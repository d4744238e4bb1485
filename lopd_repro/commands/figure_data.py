"""`lopd-repro figure-data`: the points of a figure of the paper, ours and the printed ones.

    lopd-repro figure-data --figure figure3 --settings JSON --results results \
        --reported paper_tables/figure3.csv --out results/figure3.csv --problems results/figure3.log

Points that are not whole are empty and named in the `--problems` file.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from lopd_repro.commands.analyses import add_common, report_problems, write_csv
from lopd_repro.errors import UserError
from lopd_repro.report.figures.data import FIGURES
from lopd_repro.report.figures.data.settings import figure_settings
from lopd_repro.report.figures.points import COLUMNS, rows
from lopd_repro.settings import read_settings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of this command."""
    parser.add_argument("--figure", required=True, help=f"one of {', '.join(FIGURES)}")
    add_common(parser)
    parser.add_argument("--reported", type=Path, required=True, help="the paper's points")


def run(args: argparse.Namespace) -> int:
    """Write the points; an error if not one was measured."""
    if args.figure not in FIGURES:
        raise UserError(f"--figure: found {args.figure!r}, allowed: {', '.join(FIGURES)}")
    settings = figure_settings(read_settings(args.settings))
    data = FIGURES[args.figure](args.results, settings, args.reported)
    report_problems(args, data.problems)
    if not any(point.measured and point.value is not None for point in data.points):
        first = data.problems[0] if data.problems else "no point is configured"
        raise UserError(f"{args.figure}: nothing was measured ({first})")
    write_csv(args.out, COLUMNS, rows(data.points))
    return 0
