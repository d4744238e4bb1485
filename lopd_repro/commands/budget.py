"""`lopd-repro budget`: generations each method needs to reach its rivals' final scores.

    lopd-repro budget --settings JSON --results results --claims paper_tables/claims.yaml \
        --out results/budget.csv --problems results/budget.log
"""

from __future__ import annotations

import argparse
from pathlib import Path

from lopd_repro.commands.analyses import add_common, report_problems, settings_of, write_csv
from lopd_repro.report.budget import BUDGET_COLUMNS, budget
from lopd_repro.report.budget_claim import read_claim


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of this command."""
    add_common(parser)
    parser.add_argument("--claims", type=Path, help="the paper's claims, to ask one of them again")
    parser.add_argument("--claim", default="C02", help="its id; default: %(default)s")


def run(args: argparse.Namespace) -> int:
    """Write the table."""
    settings = settings_of(args)
    claim = read_claim(args.claims, args.claim, settings.labels) if args.claims else None
    report = budget(args.results, settings, claim)
    report_problems(args, report.problems)
    write_csv(args.out, BUDGET_COLUMNS, report.rows)
    return 0
