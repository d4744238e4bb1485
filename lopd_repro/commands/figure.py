"""`lopd-repro figure`: a figure's picture from its CSV.

    lopd-repro figure --figure figure3 --data results/figure3.csv --notice TEXT \
        --pdf results/figure3.pdf --png results/figure3.png

The notice is printed on the picture. A figure without a measured point is an error.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from lopd_repro.errors import UserError
from lopd_repro.report.figures.draw import DRAWN, save, styled


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of this command."""
    parser.add_argument("--figure", required=True, help=f"one of {', '.join(DRAWN)}")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--notice", required=True, help="what the picture is no evidence of")
    parser.add_argument("--pdf", type=Path, required=True)
    parser.add_argument("--png", type=Path, required=True)


def run(args: argparse.Namespace) -> int:
    """Draw one figure into both files."""
    if args.figure not in DRAWN:
        raise UserError(f"--figure: found {args.figure!r}, allowed: {', '.join(DRAWN)}")
    with styled():
        save(DRAWN[args.figure](args.figure, args.data, args.notice), args.pdf, args.png)
    return 0
