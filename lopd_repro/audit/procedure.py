"""What was chosen where, which reported cells that touches, and the floors of the metrics."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy.special import ndtr

from lopd_repro.audit.columns import Counts
from lopd_repro.audit.expression import ExpressionError, find_cell
from lopd_repro.audit.findings import Finding, Severity, counted
from lopd_repro.audit.paper import Cell, Claim, Paper
from lopd_repro.audit.uncertainty import ALPHA, TYPICAL, WORST
from lopd_repro.errors import UserError
from lopd_repro.stats.correction import holm


def procedure_findings(paper: Paper, counts: Counts) -> list[Finding]:
    """Findings of every claim of kind procedure, then floors and ceilings."""
    findings = []
    for claim in paper.claims:
        if claim.kind == "procedure":
            try:
                findings += _selection(paper, claim)
            except (ExpressionError, KeyError) as error:
                raise UserError(f"claims.yaml: claim {claim.id}: {error}") from None
    return findings + _floors(paper) + _ceilings(paper, counts)


def _selection(paper: Paper, claim: Claim) -> list[Finding]:
    fields = claim.fields
    reported = tuple(find_cell(paper, ref).ref for ref in fields["reported_cells"])
    findings = [
        Finding(
            "procedure",
            Severity.CAUTION,
            reported,
            f"Chosen on {fields['chosen_on']}, whose score is reported too: "
            f"{', '.join(str(name) for name in fields['chosen'])}. This touches "
            f"{counted(len(reported), 'reported cell')}.",
            f"claim {claim.id}, {claim.where}: {claim.statement}",
            {"claim": claim.id},
        )
    ]
    for group in fields.get("compared", ()):
        findings.append(_compared(paper, group))
    return findings


def _compared(paper: Paper, group: Mapping[str, Any]) -> Finding:
    """One hyper-parameter: the chosen setting against the other printed ones."""
    metric = paper.metrics[str(group["metric"])]
    scale = float(group.get("scale", 1))
    if metric.items is None:
        raise ExpressionError(f"metric {metric.name} has no items")
    chosen = find_cell(paper, group["chosen"])
    others = [find_cell(paper, ref) for ref in group["others"]]
    spread = TYPICAL if metric.kind == "bounded_mean" else WORST
    pieces, p_values = [], []
    for cell in others:
        difference, error, p = _difference(chosen, cell, scale, metric.items, spread)
        p_values.append(p)
        pieces.append(f"{cell.key[-1]}: {cell.printed.text} ({difference * scale:+.3g}, p {p:.2g})")
    significant = sum(p < ALPHA for p in holm(p_values))
    mean = float(chosen.printed.face) / scale
    error = math.sqrt(spread * mean * (1 - mean) / metric.items)
    settings = len(others) + 1
    gain = expected_maximum(settings) * error * scale
    return Finding(
        "procedure",
        Severity.CAUTION,
        (chosen.ref, *(cell.ref for cell in others)),
        f"{group['title']}: the chosen {chosen.key[-1]} ({chosen.printed.text}) differs "
        f"significantly from {significant} of {len(others)} other printed settings (unpaired, "
        f"Holm). If all {settings} were equally good, picking the best would by itself raise the "
        f"score by up to about {gain:.2g}.",
        "; ".join(pieces)
        + f"; standard error of one setting {error * scale:.3g} (typical variance, {metric.items} "
        "items); the rise is the expected maximum of independent normal scores, less if the same "
        "items make the settings rise and fall together",
        {"significant": significant, "others": len(others), "optimism_up_to": round(gain, 4)},
    )


def _difference(
    a: Cell, b: Cell, scale: float, items: int, spread: float
) -> tuple[float, float, float]:
    p, q = float(a.printed.face) / scale, float(b.printed.face) / scale
    error = math.sqrt(spread * (p * (1 - p) + q * (1 - q)) / items)
    return p - q, error, float(2 * ndtr(-abs(p - q) / error)) if error else 1.0


def expected_maximum(n: int) -> float:
    """Expected largest of n independent standard normal numbers (0.564 for 2, 1.267 for 6)."""
    grid = np.linspace(-8.0, 8.0, 4001)
    distribution = ndtr(grid) ** n
    above = np.trapezoid(1 - distribution[grid >= 0], grid[grid >= 0])
    below = np.trapezoid(distribution[grid <= 0], grid[grid <= 0])
    return float(above - below)


def _floors(paper: Paper) -> list[Finding]:
    """Scores set against what doing nothing scores."""
    findings = []
    for table in paper.score_tables():
        for name in table.metrics():
            metric = paper.metrics[name]
            if metric.floor is None:
                continue
            span = metric.scale - metric.floor
            shares = [
                (cell, (float(cell.printed.face) - metric.floor) / span)
                for cell in table.column(name)
            ]
            below = [cell.ref for cell, share in shares if share < 0]
            findings.append(
                Finding(
                    "floor",
                    Severity.CAUTION,
                    tuple(cell.ref for cell, _ in shares),
                    f"{metric.title}: doing nothing scores about {metric.floor:g}, "
                    f"not 0 ({metric.floor_source}); above that floor the cells span "
                    f"{min(s for _, s in shares):.0%} to {max(s for _, s in shares):.0%}"
                    + (f"; {len(below)} cells are below it." if below else "."),
                    "; ".join(
                        f"{c.key[0]} {c.key[1]} {c.printed.text} -> {s:.1%}" for c, s in shares
                    ),
                    {"floor": metric.floor},
                )
            )
    return findings


def _ceilings(paper: Paper, counts: Counts) -> list[Finding]:
    """Counts above the number of items that can be solved at all."""
    findings = []
    for table in paper.score_tables():
        for name in table.metrics():
            metric = paper.metrics[name]
            if metric.ceiling_items is None or metric.items is None:
                continue
            high = [
                cell
                for cell in table.column(name)
                if (found := counts.get(cell.ref)) is not None
                and found.counts[0] * metric.items > metric.ceiling_items * found.total
            ]
            findings.append(
                Finding(
                    "floor",
                    Severity.DISCREPANCY if high else Severity.INFO,
                    tuple(c.ref for c in high) or tuple(c.ref for c in table.column(name)),
                    f"{metric.title}: at most {metric.ceiling_items} of "
                    f"{metric.items} items can be solved ({metric.ceiling_source}); "
                    + (f"{len(high)} cells are above that." if high else "no cell is above that."),
                    "; ".join(f"{c.ref} {c.printed.text}" for c in high) or "recovered counts",
                    {"ceiling": metric.ceiling_items},
                )
            )
    return findings
