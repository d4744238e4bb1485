"""`lopd-repro controls`: LOPD against each control, and the decisive one's verdict in words.

    lopd-repro controls --settings JSON --results results --out results/controls.csv \
        --verdict results/controls_verdict.md --problems results/controls.log
"""

from __future__ import annotations

import argparse
from pathlib import Path

from lopd_repro.commands.analyses import add_common, report_problems, settings_of, write_csv
from lopd_repro.files import write_text
from lopd_repro.report.controls import CONTROLS_COLUMNS, DECISIVE, control_rows, verdict_text


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of this command."""
    add_common(parser)
    parser.add_argument("--verdict", type=Path, help="Markdown: the decisive control's outcome")
    parser.add_argument("--decisive", default=DECISIVE, help="which one; default: %(default)s")


def run(args: argparse.Namespace) -> int:
    """Write the table and the verdict."""
    settings = settings_of(args)
    report = control_rows(args.results, settings)
    report_problems(args, report.problems)
    if args.verdict:
        write_text(args.verdict, verdict_text(settings, report.rows, args.decisive))
    write_csv(args.out, CONTROLS_COLUMNS, report.rows)
    return 0
