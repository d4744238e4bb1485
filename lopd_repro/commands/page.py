"""`lopd-repro page`: one self-contained page of everything the workflow made.

    lopd-repro page --settings JSON --results results --reported paper_tables \
        --out results/index.html

The page reads what is in the results folder and says of the rest that it was not made.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from lopd_repro.errors import UserError
from lopd_repro.files import write_text
from lopd_repro.report.cells import read_reported
from lopd_repro.report.layout import EVERY_LAYOUT
from lopd_repro.report.page.assemble import page_html
from lopd_repro.report.page.results import Results
from lopd_repro.report.page.settings import page_settings
from lopd_repro.settings import read_settings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of this command."""
    parser.add_argument("--settings", required=True)
    parser.add_argument("--results", type=Path, required=True)
    parser.add_argument(
        "--reported",
        type=Path,
        help="folder with the paper's table1.csv and table2.csv, for its digits as printed",
    )
    parser.add_argument("--out", type=Path, required=True)


def run(args: argparse.Namespace) -> int:
    """Write the page."""
    settings = page_settings(read_settings(args.settings))
    if not args.results.is_dir():
        raise UserError(f"--results: {args.results} is not a folder")
    reported: dict[tuple[str, str, str], str] = {}
    for name in EVERY_LAYOUT if args.reported else ():
        path = args.reported / f"{name}.csv"
        if path.is_file():
            reported |= read_reported(path)
    write_text(args.out, page_html(Results(args.results, args.out), settings, reported))
    return 0
