"""The same quantity printed in two places, and quantities that follow from other columns."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction
from itertools import combinations
from typing import Any

from lopd_repro.audit.columns import printed_value
from lopd_repro.audit.expression import ExpressionError, Value, check, decimal, evaluate
from lopd_repro.audit.findings import Finding, Severity
from lopd_repro.audit.paper import Cell, Paper, Table, short_title
from lopd_repro.errors import UserError


def crosscheck_findings(paper: Paper) -> list[Finding]:
    """Mirrors, stated identities, ratios and derived quantities, in this order."""
    findings = mirror_findings(paper)
    for entry in paper.same_quantity:
        findings.append(_guarded("same_quantity", entry, lambda e: _same(paper, e)))
    for entry in paper.ratios:
        findings += _guarded("ratios", entry, lambda e: _ratio(paper, e))
    for entry in paper.derived:
        findings += _guarded("derived", entry, lambda e: _derived(paper, e))
    return findings


def _guarded(section: str, entry: Mapping[str, Any], make: Any) -> Any:
    try:
        return make(entry)
    except (ExpressionError, KeyError) as error:
        name = entry.get("id", entry.get("check", entry))
        raise UserError(f"protocol.yaml: {section}: {name}: {error}") from None


def mirror_findings(paper: Paper) -> list[Finding]:
    """Cells of a file that repeats others, where the same key is printed differently."""
    findings = []
    for table in paper.tables.values():
        if not table.mirrors:
            continue
        originals = {c.key: c for name in table.mirrors for c in paper.tables[name].cells}
        shared = [(cell, originals[cell.key]) for cell in table.cells if cell.key in originals]
        differing = [(a, b) for a, b in shared if not _agree(a, b)]
        findings += [_mirror_difference(paper, table, a, b) for a, b in differing]
        findings.append(
            Finding(
                "cross-check",
                Severity.INFO,
                (),
                f"{table.title}: {len(shared) - len(differing)} of {len(shared)} values that "
                f"stand in {', '.join(table.mirrors)} too are printed alike.",
                f"{len(table.cells) - len(shared)} of its values stand nowhere else",
                {"shared": len(shared), "differing": len(differing)},
            )
        )
    return findings


def _agree(a: Cell, b: Cell) -> bool:
    return a.printed.face == b.printed.face


def _mirror_difference(paper: Paper, table: Table, a: Cell, b: Cell) -> Finding:
    overlap = a.printed.low <= b.printed.high and b.printed.low <= a.printed.high
    short = short_title(paper.tables[b.file])
    reading = table.other_reading or ("rounded differently" if overlap else "")
    return Finding(
        "cross-check",
        Severity.DISCREPANCY if reading else Severity.CONTRADICTION,
        (a.ref, b.ref),
        f"{' '.join(a.key)}: {b.printed.text}{_unit(b)} in {short}, "
        f"{a.printed.text}{_unit(a)} in {table.title}" + (f"; {reading}." if reading else "."),
        f"{b.printed.text} ({b.read_from}) against {a.printed.text} ({a.read_from})",
        {"values": [a.printed.text, b.printed.text]},
        f"{' '.join(a.key)}: {b.printed.text} ({short}), {a.printed.text} ({table.title})",
    )


def _unit(cell: Cell) -> str:
    return f" {cell.unit}" if cell.unit else ""


def _same(paper: Paper, entry: Mapping[str, Any]) -> Finding:
    """One stated identity. Values that are printed alike agree; values whose rounding intervals
    overlap may be one number; others are a contradiction unless the entry names what else could
    explain them."""
    result = check(paper, str(entry["check"]), printed_value)
    if result.relation != "=":
        raise ExpressionError("a same_quantity entry is an equation")
    cells = [paper.cells[ref] for ref in result.cells]
    where = "; ".join(f"{paper.label(c)} is {c.printed.text} ({c.read_from})" for c in cells)
    title = str(entry.get("title", " and ".join(c.ref for c in cells)))
    overlap = result.left.low <= result.right.high and result.right.low <= result.left.high
    other = str(entry.get("other_reading", ""))
    vague = any(not cell.printed.exact for cell in cells)
    if result.left.face == result.right.face or (vague and overlap):
        severity, text = Severity.INFO, "printed alike" if not vague else "compatible"
    elif overlap and not vague:
        severity, text = Severity.DISCREPANCY, "differ in the last digit, can be one number"
    elif other:
        severity, text = Severity.DISCREPANCY, f"differ; {other}"
    else:
        severity, text = Severity.CONTRADICTION, "differ"
    return Finding(
        "cross-check",
        severity,
        result.cells,
        f"{title}: {text} ({' / '.join(cell.printed.text for cell in cells)}).",
        where,
        {"left": decimal(result.left.face), "right": decimal(result.right.face)},
        f"{title}: {' / '.join(cell.printed.text for cell in cells)}",
    )


def _rows(paper: Paper, table: str) -> list[tuple[str, str]]:
    return list(dict.fromkeys((cell.key[0], cell.key[1]) for cell in paper.tables[table].cells))


def _of_row(paper: Paper, table: str, row: tuple[str, str], formula: str) -> str:
    for metric in sorted(paper.tables[table].metrics(), key=len, reverse=True):
        formula = _replace_word(formula, metric, f"{table}[{row[0]},{row[1]},{metric}]")
    return formula


def _replace_word(text: str, word: str, by: str) -> str:
    return re.sub(rf"(?<![\w,\[]){re.escape(word)}(?![\w\],])", by, text)


def _ratio(paper: Paper, entry: Mapping[str, Any]) -> list[Finding]:
    """A column that should follow from others of its row if it is a ratio of the printed means."""
    table, formula = str(entry["table"]), str(entry["formula"])
    alternative = str(entry.get("alternative", ""))
    name = formula.partition("=")[0].strip()
    title = paper.metrics[name].title if name in paper.metrics else name
    findings = []
    for row in _rows(paper, table):
        left_text, _, right_text = _of_row(paper, table, row, formula).partition("=")
        left, shown_left, cells_left = evaluate(paper, left_text, printed_value)
        right, shown_right, cells_right = evaluate(paper, right_text, printed_value)
        overlap = left.low <= right.high and right.low <= left.high
        if overlap:
            severity, text = Severity.INFO, "follows from the printed means"
        elif alternative:
            severity, text = (
                Severity.DISCREPANCY,
                f"is not the ratio of the printed means; {alternative}",
            )
        else:
            severity, text = Severity.CONTRADICTION, "does not follow from the printed means"
        factor = f", {decimal(left.face / right.face, 2)} times as large" if right.face else ""
        findings.append(
            Finding(
                "ratios",
                severity,
                tuple(c.ref for c in (*cells_left, *cells_right)),
                f"{row[0]} {row[1]}, {title}: {shown_left} {text}.",
                f"{shown_right} = {decimal(right.face)}; printed {shown_left}"
                + ("" if overlap else factor),
                {"printed": shown_left, "ratio_of_means": decimal(right.face)},
            )
        )
    return findings


def _derived(paper: Paper, entry: Mapping[str, Any]) -> list[Finding]:
    """A quantity worked out from the printed means, set beside a printed column: a pair of rows
    that the two order differently is a caution."""
    table, formula, beside = str(entry["table"]), str(entry["formula"]), str(entry["beside"])
    title = str(entry["title"])
    caveat = str(entry.get("caveat", ""))
    values: dict[tuple[str, str], tuple[Value, str, Value, tuple[str, ...]]] = {}
    for row in _rows(paper, table):
        value, shown, cells = evaluate(paper, _of_row(paper, table, row, formula), printed_value)
        column = printed_value(paper.cells[f"{table}[{row[0]},{row[1]},{beside}]"])
        values[row] = value, shown, column, tuple(c.ref for c in cells)
    findings = []
    for a, b in combinations(values, 2):
        if a[0] != b[0]:
            continue
        (value_a, shown_a, beside_a, refs_a), (value_b, shown_b, beside_b, refs_b) = (
            values[a],
            values[b],
        )
        here, there = _order(value_a, value_b), _order(beside_a, beside_b)
        if here * there >= 0:
            continue
        findings.append(
            Finding(
                "ratios",
                Severity.CAUTION,
                (*refs_a, *refs_b),
                f"{a[0]}: {title} goes from {_share(value_a.face)} ({a[1]}) to "
                f"{_share(value_b.face)} ({b[1]}), the other way than the column "
                f"'{paper.metrics[beside].title}' "
                f"({decimal(beside_a.face)} to {decimal(beside_b.face)})"
                + (f"; {caveat}." if caveat else "."),
                f"{a[1]}: {shown_a} = {decimal(value_a.face)}; "
                f"{b[1]}: {shown_b} = {decimal(value_b.face)}",
                {a[1]: decimal(value_a.face), b[1]: decimal(value_b.face)},
            )
        )
    return findings


def _order(a: Value, b: Value) -> int:
    if a.low > b.high:
        return 1
    return -1 if a.high < b.low else 0


def _share(value: Fraction) -> str:
    return f"{decimal(100 * value, 1)}%"
