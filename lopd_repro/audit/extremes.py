"""Is the highlighted method the best, how often, and by how many items?"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from lopd_repro.audit.columns import Counts
from lopd_repro.audit.findings import Finding, Severity
from lopd_repro.audit.paper import Cell, Paper, Table


@dataclass(frozen=True)
class Place:
    """Where a method stands in one column of one row group."""

    cell: Cell
    rank: int
    """1 for the best; methods that are printed alike share a rank."""
    tied: bool
    best_rival: Cell
    items_ahead: int | None
    """Difference of recovered counts to the best rival, signed so that above 0 is better."""


def place_of(paper: Paper, table: Table, cell: Cell, counts: Counts) -> Place | None:
    """Rank of a cell among the methods of its backbone; None without a rival."""
    metric = paper.metrics[cell.key[2]]
    sign = 1 if metric.higher_is_better else -1
    rivals = [
        other
        for other in table.column(metric.name)
        if other.key[0] == cell.key[0] and other.key[1] != cell.key[1]
    ]
    if not rivals:
        return None
    own = sign * cell.printed.face
    better = sum(sign * other.printed.face > own for other in rivals)
    best = max(rivals, key=lambda other: sign * other.printed.face)
    ahead = None
    mine, theirs = counts.get(cell.ref), counts.get(best.ref)
    if mine and theirs and mine.unique is not None and theirs.unique is not None:
        ahead = sign * (mine.unique - theirs.unique) if mine.total == theirs.total else None
    return Place(cell, better + 1, any(sign * r.printed.face == own for r in rivals), best, ahead)


def extreme_findings(paper: Paper, counts: Counts) -> list[Finding]:
    """For each family's method: in how many cells it leads, ties or trails; then wrong marks."""
    findings = []
    seen = set()
    for family in paper.families:
        for name in dict.fromkeys(table for table, _ in family.table_metrics):
            if (name, family.method) in seen:
                continue
            seen.add((name, family.method))
            findings.append(_summary(paper, paper.tables[name], family.method, counts))
    for table in paper.score_tables():
        findings += _mark_findings(paper, table)
    return findings


def _summary(paper: Paper, table: Table, method: str, counts: Counts) -> Finding:
    places = [
        place
        for cell in table.cells
        if cell.key[1] == method and (place := place_of(paper, table, cell, counts)) is not None
    ]
    alone = [p for p in places if p.rank == 1 and not p.tied]
    shared = [p for p in places if p.rank == 1 and p.tied]
    behind = [p for p in places if p.rank > 1]
    narrow = [p for p in alone if p.items_ahead is not None and p.items_ahead <= 2]

    def title(place: Place) -> str:
        return paper.metrics[place.cell.key[2]].title

    def show(group: list[Place]) -> str:
        return ", ".join(
            f"{p.cell.key[0]} {title(p)} {p.cell.printed.text} "
            f"({p.best_rival.key[1]} {p.best_rival.printed.text})"
            for p in group
        )

    second = sum(p.rank == 2 for p in behind)
    text = (
        f"{table.title}: {method} is best alone in {len(alone)} of {len(places)} cells, shares "
        f"the best in {len(shared)} and is behind in {len(behind)} (second in {second})."
    )
    rivals = Counter(p.best_rival.key[1] for p in places)
    if narrow:
        text += " It leads by one or two scored items in " + ", ".join(
            f"{p.cell.key[0]} {title(p)} ({p.items_ahead})" for p in narrow
        )
        text += "."
    evidence = [
        "best of the others: " + ", ".join(f"{name} in {n}" for name, n in rivals.most_common())
    ]
    if shared:
        evidence.append(f"shared: {show(shared)}")
    if behind:
        evidence.append(f"behind: {show(behind)}")
    return Finding(
        "extremes",
        Severity.INFO,
        tuple(p.cell.ref for p in places),
        text,
        "; ".join(evidence),
        {
            "alone": len(alone),
            "shared": len(shared),
            "behind": len(behind),
            "second": second,
            "cells": len(places),
            "best_of_the_others": dict(rivals),
        },
    )


def _mark_findings(paper: Paper, table: Table) -> list[Finding]:
    """Cells marked best or second in print that are not."""
    findings = []
    groups = dict.fromkeys((c.key[0], c.key[2]) for c in table.cells if c.mark)
    for backbone, name in groups:
        sign = 1 if paper.metrics[name].higher_is_better else -1
        cells = [c for c in table.column(name) if c.key[0] == backbone]
        values = sorted({sign * c.printed.face for c in cells}, reverse=True)
        for place, mark in enumerate(("best", "second")):
            if place >= len(values):
                continue
            should = {c.ref for c in cells if sign * c.printed.face == values[place]}
            has = {c.ref for c in cells if c.mark == mark}
            if has and has != should:
                findings.append(
                    Finding(
                        "extremes",
                        Severity.CONTRADICTION if has - should else Severity.DISCREPANCY,
                        tuple(sorted(has | should)),
                        f"{table.title}, {backbone} {name}: marked {mark} are "
                        f"{_list(has, paper)}, the printed numbers say {_list(should, paper)}.",
                        "; ".join(f"{c.key[1]} {c.printed.text}" for c in cells),
                    )
                )
    return findings


def _list(refs: set[str], paper: Paper) -> str:
    return ", ".join(sorted(f"{paper.cells[r].key[1]} {paper.cells[r].printed.text}" for r in refs))
