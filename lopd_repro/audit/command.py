"""The `audit` command: read a paper's folder, run every check, write four files."""

from __future__ import annotations

import argparse
import csv
import io
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from lopd_repro.audit.core import Audit, audit_paper
from lopd_repro.audit.findings import Severity
from lopd_repro.audit.html import render_html
from lopd_repro.audit.markdown import render_markdown
from lopd_repro.audit.paper import read_paper
from lopd_repro.audit.report import build_report
from lopd_repro.errors import UserError
from lopd_repro.files import write_text

FINDING_COLUMNS = ("id", "check", "severity", "cells", "statement", "evidence", "numbers")
CLAIM_COLUMNS = (
    "id",
    "where",
    "kind",
    "statement",
    "verdict",
    "arithmetic",
    "cells",
    "reproduced",
    "scale",
    "margin",
    "reproduction_detail",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `audit`."""
    parser.add_argument(
        "--paper",
        type=Path,
        default=Path("paper_tables"),
        help="folder with protocol.yaml, claims.yaml and the CSV files (default: paper_tables)",
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("results/audit"),
        help="folder for findings.csv, claims.csv, report.html, report.md",
    )
    parser.add_argument(
        "--results",
        type=Path,
        default=None,
        help="folder with reproduced table1.csv and so on, for the second verdict of each claim",
    )
    parser.add_argument(
        "--backbone",
        action="append",
        default=[],
        metavar="OURS=PAPER",
        help="which backbone of the paper one of the results stands for; may be repeated",
    )


def run(args: argparse.Namespace) -> int:
    """Check what a paper's printed numbers can and cannot mean."""
    backbones = {}
    for pair in args.backbone:
        ours, equals, theirs = pair.partition("=")
        if not (ours and equals and theirs):
            raise UserError(f"--backbone: {pair!r} is not OURS=PAPER, such as tiny-128=Qwen3-4B")
        backbones[ours] = theirs
    audit = run_audit(args.paper, args.out, args.results, backbones)
    tally = Counter(finding.severity for _, finding in audit.findings)
    print(
        ", ".join(f"{tally[severity]} {severity.value}" for severity in Severity)
        + f"; {args.out / 'report.html'}"
    )
    return 0


def run_audit(
    paper_dir: Path,
    out_dir: Path,
    results_dir: Path | None = None,
    backbones: Mapping[str, str] | None = None,
) -> Audit:
    """Audit the paper in `paper_dir`, write the four files to `out_dir`, and return the audit.

    `results_dir` may hold reproduced tables; `backbones` maps their backbones to the paper's.
    Raises `UserError` for unusable input, before anything is written.
    """
    audit = audit_paper(read_paper(paper_dir), results_dir, backbones)
    report = build_report(audit)
    write_text(out_dir / "findings.csv", _csv(FINDING_COLUMNS, _finding_rows(audit)))
    write_text(out_dir / "claims.csv", _csv(CLAIM_COLUMNS, _claim_rows(audit)))
    write_text(out_dir / "report.md", render_markdown(report))
    write_text(out_dir / "report.html", render_html(report))
    return audit


def _finding_rows(audit: Audit) -> Iterable[Sequence[str]]:
    for name, f in audit.findings:
        yield (
            name,
            f.check,
            f.severity.value,
            "; ".join(f.cells),
            f.statement,
            f.evidence,
            f.numbers_json(),
        )


def _claim_rows(audit: Audit) -> Iterable[Sequence[str]]:
    for item, second in zip(audit.claims, audit.second, strict=True):
        claim = item.claim
        asides = [f"beside: {part.text}" for part in item.asides]
        yield (
            claim.id,
            claim.where,
            claim.kind,
            claim.statement,
            item.verdict.value,
            "; ".join([item.summary, *(part.text for part in item.parts), *asides]),
            "; ".join(item.cells),
            second.verdict,
            second.scale,
            second.margin,
            second.detail,
        )


def _csv(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return buffer.getvalue()
