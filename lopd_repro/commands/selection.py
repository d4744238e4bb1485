"""`lopd-repro selection`: what validation chose, and what choosing on test would have printed.

    lopd-repro selection --settings JSON --rule config/selection_rule.yaml --results results \
        --out results/selection.csv --chosen results/chosen.json --problems results/selection.log
"""

from __future__ import annotations

import argparse
from pathlib import Path

from lopd_repro.commands.analyses import add_common, report_problems, settings_of, write_csv
from lopd_repro.files import write_json
from lopd_repro.report.selection import SELECTION_COLUMNS, select
from lopd_repro.report.selection_rule import read_rule


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of this command."""
    add_common(parser)
    parser.add_argument("--rule", type=Path, required=True, help="YAML: what is chosen by what")
    parser.add_argument("--chosen", type=Path, help="JSON: the chosen values by backbone")


def run(args: argparse.Namespace) -> int:
    """Write the table and the choices."""
    settings = settings_of(args)
    report = select(args.results, settings, read_rule(args.rule))
    report_problems(args, report.problems)
    if args.chosen:
        write_json(args.chosen, {settings.backbone: report.chosen})
    write_csv(args.out, SELECTION_COLUMNS, report.rows)
    return 0
