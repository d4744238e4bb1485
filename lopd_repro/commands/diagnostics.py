"""`lopd-repro diagnostics`: the margin constraint by step, and a flag for each run.

    lopd-repro diagnostics --settings JSON --results results --out results/diagnostics.csv \
        --summary results/diagnostics_summary.csv --problems results/diagnostics.log
"""

from __future__ import annotations

import argparse
from pathlib import Path

from lopd_repro.commands.analyses import add_common, report_problems, settings_of, write_csv
from lopd_repro.report.diagnostics import DIAGNOSTICS_COLUMNS, SUMMARY_COLUMNS, diagnose


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of this command."""
    add_common(parser)
    parser.add_argument("--summary", type=Path, required=True, help="CSV: a row per run")


def run(args: argparse.Namespace) -> int:
    """Write both tables."""
    report = diagnose(args.results, settings_of(args))
    report_problems(args, report.problems)
    write_csv(args.summary, SUMMARY_COLUMNS, report.summary)
    write_csv(args.out, DIAGNOSTICS_COLUMNS, report.rows)
    return 0
