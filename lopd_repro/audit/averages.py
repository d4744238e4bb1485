"""Row averages recomputed from their parts: which weighting, which digits, which rounding.

A reading says what was averaged (the exact shares behind the parts, or the printed parts), how the
parts were weighted, and how the result lost its last digits. The reading that explains the most
rows of a column is taken as the paper's; a row that only another reading explains is a
discrepancy, one that none explains a contradiction.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from lopd_repro.audit.columns import Column, Counts, cell_share
from lopd_repro.audit.findings import Finding, Severity
from lopd_repro.audit.paper import Cell, Metric, Paper
from lopd_repro.audit.printed import Rounding, print_number, round_units


@dataclass(frozen=True)
class Reading:
    """One way of forming an average."""

    source: str
    """`counts` (exact shares) or `printed` (the rounded parts)."""
    weights: str
    """`items` or `equal`."""
    rounding: Rounding

    def describe(self, same_size: bool) -> str:
        """The reading in words."""
        weights = "plain" if self.weights == "equal" else "item-weighted"
        if same_size:
            weights = "plain (= item-weighted, the sets have the same size)"
        what = "exact counts" if self.source == "counts" else "printed parts"
        return f"{weights} mean of the {what}, {self.rounding.value}"


@dataclass(frozen=True)
class AverageRow:
    """One printed average with what its parts give under each reading."""

    cell: Cell
    parts: tuple[Cell, ...]
    readings: frozenset[Reading]
    exact: dict[str, tuple[Fraction, Fraction]]
    """By weighting: smallest and largest exact average in printed units of the metric's scale."""
    from_printed: dict[str, Fraction]


@dataclass(frozen=True)
class AverageFit:
    """One column of averages."""

    table: str
    metric: Metric
    rows: tuple[AverageRow, ...]
    same_size: bool
    explained: dict[Reading, int]

    @cached_property
    def best(self) -> Reading:
        """The reading that explains the most rows; on a tie the stated weighting, then exact
        counts, then half-up."""
        return max(
            self.explained, key=lambda reading: (self.explained[reading], self._plain(reading))
        )

    def _plain(self, reading: Reading) -> tuple[bool, bool, int]:
        stated = self.metric.weights in ("unstated", reading.weights)
        place = list(Rounding).index(reading.rounding)
        return stated, reading.source == "counts", -place

    def exact_of(self, row: AverageRow) -> tuple[Fraction, Fraction]:
        """Smallest and largest exact average of a row under the paper's weighting."""
        return row.exact[self.best.weights]


def fit_averages(paper: Paper, counts: Counts) -> list[AverageFit]:
    """Recompute every average column whose parts stand in the same table."""
    fits = []
    for table in paper.score_tables():
        present = set(table.metrics())
        for name in table.metrics():
            metric = paper.metrics[name]
            if metric.kind != "average" or not set(metric.parts) <= present:
                continue
            weightings = _weightings(paper, metric)
            rows = tuple(
                row
                for cell in table.column(name)
                if (row := _row(paper, metric, cell, weightings, counts)) is not None
            )
            if not rows:
                continue
            explained = {
                Reading(source, weights, mode): sum(
                    Reading(source, weights, mode) in row.readings for row in rows
                )
                for source in ("counts", "printed")
                for weights in weightings
                for mode in Rounding
            }
            sizes = {paper.metrics[part].items for part in metric.parts}
            same_size = len(sizes) == 1 and None not in sizes
            fits.append(AverageFit(table.name, metric, rows, same_size, explained))
    return fits


def _weightings(paper: Paper, metric: Metric) -> dict[str, tuple[Fraction, ...]]:
    """Weights that sum to 1; `items` only where the sizes are known and differ."""
    n = len(metric.parts)
    result = {"equal": (Fraction(1, n),) * n}
    sizes = [paper.metrics[part].items for part in metric.parts]
    known = [size for size in sizes if size is not None]
    if len(known) == n and (len(set(known)) > 1 or metric.weights == "items"):
        by_items = tuple(Fraction(size, sum(known)) for size in known)
        result = {"items": by_items, **result} if len(set(known)) > 1 else {"items": by_items}
    return result


def _row(
    paper: Paper,
    metric: Metric,
    cell: Cell,
    weightings: dict[str, tuple[Fraction, ...]],
    counts: Counts,
) -> AverageRow | None:
    parts = [
        paper.cells.get(f"{cell.file}[{cell.key[0]},{cell.key[1]},{name}]") for name in metric.parts
    ]
    found = tuple(part for part in parts if part is not None)
    if len(found) != len(parts):
        return None
    ranges = [cell_share(paper, part, counts) for part in found]
    faces = [part.printed.face / paper.metrics[part.key[2]].scale for part in found]
    exact, from_printed, readings = {}, {}, set()
    for name, weights in weightings.items():
        low = metric.scale * sum(w * r[0] for w, r in zip(weights, ranges, strict=True))
        high = metric.scale * sum(w * r[1] for w, r in zip(weights, ranges, strict=True))
        face = metric.scale * sum(w * f for w, f in zip(weights, faces, strict=True))
        exact[name], from_printed[name] = (Fraction(low), Fraction(high)), Fraction(face)
        unit = 10**cell.printed.decimals
        for mode in Rounding:
            if (
                round_units(low * unit, mode)
                <= cell.printed.units
                <= round_units(high * unit, mode)
            ):
                readings.add(Reading("counts", name, mode))
            if round_units(face * unit, mode) == cell.printed.units:
                readings.add(Reading("printed", name, mode))
    return AverageRow(cell, found, frozenset(readings), exact, from_printed)


def average_findings(fits: list[AverageFit], columns: list[Column]) -> list[Finding]:
    """The paper's way of averaging, and the rows that it or any way does not explain."""
    repeated = {(column.table, column.metric.name) for column in columns if column.fit.repeats > 1}
    findings = []
    for fit in fits:
        findings.append(_formula_finding(fit))
        runs = any((fit.table, part) in repeated for part in fit.metric.parts)
        for row in fit.rows:
            finding = _row_finding(fit, row, runs)
            if finding is not None:
                findings.append(finding)
    return findings


def _formula_finding(fit: AverageFit) -> Finding:
    best = fit.best
    rows = len(fit.rows)
    total = fit.explained[best]
    others = {
        reading.describe(fit.same_size): n for reading, n in fit.explained.items() if n < rows
    }
    ranked = sorted(fit.explained, key=fit._plain)
    others_equal = {
        (r.source, r.weights): r.describe(fit.same_size)
        for r in ranked
        if fit.explained[r] == total and (r.source, r.weights) != (best.source, best.weights)
    }
    equal = others_equal.values()
    text = f"{fit.metric.title}: {total} of {rows} averages are the {best.describe(fit.same_size)}"
    if equal:
        text += f"; as many are the {' and the '.join(sorted(equal))}"
    stated = fit.metric.weights
    wrong = stated not in ("unstated", best.weights) and not fit.same_size
    if wrong:
        text += f", although weights by '{stated}' are stated"
    return Finding(
        "averages",
        Severity.DISCREPANCY if wrong else Severity.INFO,
        tuple(row.cell.ref for row in fit.rows),
        text + ".",
        "rows explained by the other readings: "
        + ("; ".join(f"{name}: {n}/{rows}" for name, n in others.items()) or "all of them all"),
        {
            "reading": best.describe(fit.same_size),
            "explained": {r.describe(fit.same_size): n for r, n in fit.explained.items()},
            "rows": rows,
        },
    )


def _row_finding(fit: AverageFit, row: AverageRow, runs: bool) -> Finding | None:
    low, high = fit.exact_of(row)
    decimals = row.cell.printed.decimals
    ends = {print_number(low, decimals), print_number(high, decimals)}
    would = ends.pop() if len(ends) == 1 else None
    extra = decimals + 2
    exact = print_number(low, extra)
    if high != low:
        exact += f" to {print_number(high, extra)}"
    printed_mean = print_number(row.from_printed[fit.best.weights], extra)
    arithmetic = (
        f"Parts {', '.join(part.printed.text for part in row.parts)}: exact counts give {exact}"
        f"{f', which rounds to {would}' if would else ''}; the printed parts give {printed_mean}"
    )
    numbers: dict[str, object] = {
        "printed": row.cell.printed.text,
        "exact": exact,
        "exact_prints": would,
        "from_printed_parts": printed_mean,
    }

    def finding(severity: Severity, text: str) -> Finding:
        refs = (row.cell.ref, *(part.ref for part in row.parts))
        name = f"{row.cell.key[0]} {row.cell.key[1]}, {fit.metric.title}"
        head = f"{name}: {row.cell.printed.text}"
        brief = f"{name} {row.cell.printed.text} (exact {exact})"
        return Finding("averages", severity, refs, f"{head} {text}", arithmetic, numbers, brief)

    if fit.best in row.readings:
        if would is None or would == row.cell.printed.text:
            return None
        return finding(
            Severity.DISCREPANCY,
            f"is not what its exact counts print, {would}; it is the "
            f"{fit.best.describe(fit.same_size)}.",
        )
    if row.readings:
        same = [r for r in row.readings if r.weights == fit.best.weights] or list(row.readings)
        ranked = sorted(same, key=fit._plain, reverse=True)
        kinds = {reading.source: reading for reading in reversed(ranked)}
        named = [kinds[source].describe(fit.same_size) for source in sorted(kinds)]
        return finding(
            Severity.DISCREPANCY,
            f"differs from the column's way of averaging; it is the {', or the '.join(named)}.",
        )
    unit = Fraction(1, 10**decimals)
    if runs and low - 2 * unit <= row.cell.printed.face <= high + unit:
        return finding(
            Severity.DISCREPANCY,
            "is a unit or two off; averaging runs that were rounded before can do that.",
        )
    return finding(
        Severity.CONTRADICTION,
        "is not given by its parts under any weighting or rounding that was tried.",
    )
