"""`lopd-repro figure`: a figure's picture from its CSV.

    lopd-repro figure --figure figure3 --data results/figure3.csv --notice TEXT \
        --pdf results/figure3.pdf --png results/figure3.png

Figures controls (from controls.csv), diagnostics and divergence (from diagnostics.csv) are drawn
from the tables themselves. The notice is printed on the picture. A figure without a measured point
is an error.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from lopd_repro.report.figures.draw import NAMES, draw, save, styled


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of this command."""
    parser.add_argument("--figure", required=True, help=f"one of {', '.join(NAMES)}")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--notice", required=True, help="what the picture is no evidence of")
    parser.add_argument("--pdf", type=Path, required=True)
    parser.add_argument("--png", type=Path, required=True)


def run(args: argparse.Namespace) -> int:
    """Draw one figure into both files."""
    with styled():
        save(draw(args.figure, args.data, args.notice), args.pdf, args.png)
    return 0
