"""What the commands of the analyses share: options, problems, and the CSV they write."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lopd_repro.files import write_text
from lopd_repro.report.analysis import AnalysisSettings, analysis_settings
from lopd_repro.report.cells import csv_text
from lopd_repro.settings import read_settings


def add_common(parser: argparse.ArgumentParser) -> None:
    """Settings, results folder, output, and the file that names what is missing."""
    parser.add_argument("--settings", required=True)
    parser.add_argument("--results", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True, help="CSV")
    parser.add_argument("--problems", type=Path, help="text: what is missing, a line each")


def settings_of(args: argparse.Namespace) -> AnalysisSettings:
    """The parsed `--settings`."""
    return analysis_settings(read_settings(args.settings))


def report_problems(args: argparse.Namespace, problems: Sequence[str]) -> None:
    """Name what is missing on stderr and in the `--problems` file."""
    for line in problems:
        print(line, file=sys.stderr)
    if args.problems:
        write_text(args.problems, "".join(line + "\n" for line in problems))


def write_csv(path: Path, columns: Sequence[str], rows: list[dict[str, Any]]) -> None:
    """Write rows; an empty cell is empty."""
    write_text(path, csv_text(list(columns), rows))
