"""The audit of one paper in memory: every check run once, in the order the report shows them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from lopd_repro.audit.averages import AverageFit, average_findings, fit_averages
from lopd_repro.audit.claims import Judged, claim_findings, judge_claims
from lopd_repro.audit.columns import (
    Column,
    Counts,
    decimals_findings,
    fit_columns,
    granularity_findings,
    recovered_counts,
)
from lopd_repro.audit.crosscheck import crosscheck_findings
from lopd_repro.audit.expression import CellValue, Value
from lopd_repro.audit.extremes import extreme_findings
from lopd_repro.audit.findings import Finding, numbered
from lopd_repro.audit.paper import Cell, Paper
from lopd_repro.audit.procedure import procedure_findings
from lopd_repro.audit.reproduction import SecondVerdict, read_results, second_verdict
from lopd_repro.audit.uncertainty import (
    CellInterval,
    FamilyResult,
    Sampling,
    cell_intervals,
    family_results,
    uncertainty_findings,
)


@dataclass(frozen=True)
class Audit:
    """Everything the report needs."""

    paper: Paper
    columns: list[Column]
    averages: list[AverageFit]
    counts: Counts
    intervals: dict[str, CellInterval]
    families: list[FamilyResult]
    claims: list[Judged]
    second: list[SecondVerdict]
    findings: list[tuple[str, Finding]]


def audit_paper(
    paper: Paper, results_dir: Path | None = None, backbones: Mapping[str, str] | None = None
) -> Audit:
    """Run every check. `results_dir` is where reproduced tables may stand, `backbones` the
    paper's name for each of their backbones."""
    columns = fit_columns(paper)
    counts = recovered_counts(columns)
    averages = fit_averages(paper, counts)
    judged = judge_claims(paper, cell_values(counts, averages, paper))
    sampling = Sampling(paper, columns, averages)
    intervals = cell_intervals(sampling)
    families = family_results(sampling)
    results = read_results(results_dir, paper, backbones)
    findings = [
        *decimals_findings(paper),
        *granularity_findings(columns),
        *average_findings(averages, columns),
        *crosscheck_findings(paper),
        *extreme_findings(paper, counts),
        *claim_findings(judged),
        *uncertainty_findings(sampling, families, intervals),
        *procedure_findings(paper, counts),
    ]
    return Audit(
        paper=paper,
        columns=columns,
        averages=averages,
        counts=counts,
        intervals=intervals,
        families=families,
        claims=judged,
        second=[second_verdict(paper, item, results) for item in judged],
        findings=numbered(findings),
    )


def cell_values(counts: Counts, averages: list[AverageFit], paper: Paper) -> CellValue:
    """What each cell may stand for: its exact count, or the exact average of its parts' counts,
    or else its rounding interval, one unit wider for an average, which may be one of rounded
    parts."""
    exact: dict[str, Value] = {}
    for ref, recovered in counts.items():
        cell = paper.cells[ref]
        scale = paper.metrics[cell.key[2]].scale
        low, high = recovered.shares()
        exact[ref] = Value(cell.printed.face, low * scale, high * scale)
    for fit in averages:
        for row in fit.rows:
            if row.readings and all(part.ref in counts for part in row.parts):
                low, high = fit.exact_of(row)
                exact[row.cell.ref] = Value(row.cell.printed.face, low, high)
            else:
                printed = row.cell.printed
                unit = Fraction(1, 10**printed.decimals)
                exact[row.cell.ref] = Value(printed.face, printed.low - unit, printed.high + unit)

    def value(cell: Cell) -> Value:
        printed = cell.printed
        return exact.get(cell.ref, Value(printed.face, printed.low, printed.high))

    return value
