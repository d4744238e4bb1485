"""Granularity and recovered counts of every column of shares in a paper's score tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from lopd_repro.audit.expression import Value
from lopd_repro.audit.findings import Finding, Severity
from lopd_repro.audit.granularity import CellFit, ColumnFit, fit_column
from lopd_repro.audit.paper import Cell, Metric, Paper
from lopd_repro.audit.printed import Rounding, counts_behind, print_number


@dataclass(frozen=True)
class Column:
    """One column of shares: its cells, in printed order, and what was inferred about them."""

    table: str
    metric: Metric
    cells: tuple[Cell, ...]
    fit: ColumnFit

    @property
    def trustworthy(self) -> bool:
        """Whether the number of runs is identified, so that counts can be stated."""
        return self.fit.decisive


@dataclass(frozen=True)
class Recovered:
    """The counts that can be behind one cell: k of `total` for every k in `counts`."""

    counts: tuple[int, ...]
    total: int

    @property
    def unique(self) -> int | None:
        """The count, where only one is possible."""
        return self.counts[0] if len(self.counts) == 1 else None

    def shares(self) -> tuple[Fraction, Fraction]:
        """The smallest and the largest possible share."""
        return Fraction(self.counts[0], self.total), Fraction(self.counts[-1], self.total)


Counts = Mapping[str, Recovered]
"""Recovered counts by cell reference; a cell without an entry has none."""


def fit_columns(paper: Paper) -> list[Column]:
    """Fit every column whose metric is a proportion. Cells with an odd number of decimals are
    left out here and reported by `decimals_findings`."""
    columns = []
    for table in paper.score_tables():
        for name in table.metrics():
            metric = paper.metrics[name]
            if metric.kind != "proportion" or metric.items is None:
                continue
            cells = table.column(name)
            decimals = usual_decimals(metric, cells)
            kept = tuple(c for c in cells if c.printed.decimals == decimals)
            if not kept:
                continue
            fit = fit_column(
                [cell.printed.units for cell in kept],
                metric.items,
                metric.scale * 10**decimals,
                metric.repeats,
                metric.rounding,
            )
            columns.append(Column(table.name, metric, kept, fit))
    return columns


def usual_decimals(metric: Metric, cells: list[Cell]) -> int:
    """The stated number of decimals, else the commonest in the column."""
    if metric.decimals is not None:
        return metric.decimals
    seen = [cell.printed.decimals for cell in cells]
    return max(sorted(set(seen)), key=seen.count)


def recovered_counts(columns: list[Column]) -> dict[str, Recovered]:
    """The counts behind each cell of the columns whose number of runs is identified."""
    counts = {}
    for column in columns:
        if not column.trustworthy:
            continue
        for cell, fit in zip(column.cells, column.fit.cells, strict=True):
            if candidates := fit.candidates(column.fit.plausible):
                counts[cell.ref] = Recovered(candidates, column.fit.total)
    return counts


def cell_share(paper: Paper, cell: Cell, counts: Counts) -> tuple[Fraction, Fraction]:
    """Smallest and largest value of a score in [0, 1] that the cell allows."""
    if cell.ref in counts:
        return counts[cell.ref].shares()
    scale = paper.metrics[cell.key[2]].scale
    low = max(Fraction(0), cell.printed.low / scale)
    return low, min(Fraction(1), cell.printed.high / scale)


def printed_value(cell: Cell) -> Value:
    """A cell as printed: its face value and its rounding interval."""
    return Value(cell.printed.face, cell.printed.low, cell.printed.high)


def decimals_findings(paper: Paper) -> list[Finding]:
    """Cells printed with another number of decimals than the rest of their column."""
    findings = []
    for table in paper.score_tables():
        for name in table.metrics():
            cells = table.column(name)
            decimals = usual_decimals(paper.metrics[name], cells)
            findings += [
                Finding(
                    "decimals",
                    Severity.DISCREPANCY,
                    (cell.ref,),
                    f"{paper.label(cell)}: {cell.printed.text} has {cell.printed.decimals} "
                    f"decimals, its column has {decimals}.",
                    f"printed {cell.printed.text}",
                )
                for cell in cells
                if cell.printed.decimals != decimals
            ]
    return findings


def granularity_findings(columns: list[Column]) -> list[Finding]:
    """Number of runs, rounding, and cells that no count gives, column by column."""
    findings = []
    for column in columns:
        findings.append(_runs_finding(column))
        findings += _impossible_findings(column)
        findings += _rounding_findings(column)
        findings += _twice_findings(column)
    return findings + _neighbour_findings(columns)


def _name(column: Column) -> str:
    return column.metric.title


def _runs_finding(column: Column) -> Finding:
    fit = column.fit
    refs = tuple(cell.ref for cell in column.cells)
    unique = [
        (cell, found.candidates(fit.plausible)[0])
        for cell, found in zip(column.cells, fit.cells, strict=True)
        if len(found.candidates(fit.plausible)) == 1
    ]
    numbers: dict[str, object] = {
        "items": fit.items,
        "repeats": fit.repeats,
        "identified": fit.decisive,
        "other_repeats_possible": list(fit.rivals),
        "print_every_cell": list(fit.excuses),
        "main_rounding": fit.main.value,
        "counts": {cell.ref: k for cell, k in unique} if fit.decisive else {},
    }
    if not fit.decisive:
        listed = ", ".join(map(str, sorted((fit.repeats, *fit.rivals))))
        return Finding(
            "runs",
            Severity.INFO,
            refs,
            f"{_name(column)}: the printed digits do not tell how many runs over the "
            f"{fit.items} items are behind a cell (possible: {listed}).",
            "several numbers of runs print these digits about equally well",
            numbers,
        )
    runs = "one run" if fit.repeats == 1 else f"{fit.repeats} runs"
    stated = " (as stated)" if column.metric.repeats else ""
    full = column.metric.scale * 10 ** column.cells[0].printed.decimals
    fitting = sum(found.fits for found in fit.cells)
    why = f"{fitting} of {len(refs)} cells are multiples of 1/{fit.total} to the printed digits"
    if fit.repeats > 1:
        single = sum(
            any(counts_behind(found.units, fit.items, full, mode) for mode in Rounding)
            for found in fit.cells
        )
        why += f", only {single} of 1/{fit.items}"
    return Finding(
        "runs",
        Severity.INFO,
        refs,
        f"{_name(column)}: {runs} over {fit.items} items{stated}; "
        f"{len(unique)} of {len(refs)} counts are recovered exactly.",
        why + "; " + "; ".join(f"{_row(c)} {k}/{fit.total}" for c, k in unique),
        numbers,
    )


def _row(cell: Cell) -> str:
    return f"{cell.key[0]} {cell.key[1]}"


def _label(column: Column, cell: Cell) -> str:
    return f"{_row(cell)}, {column.metric.title}"


def _impossible_findings(column: Column) -> list[Finding]:
    """A cell that no count prints is a contradiction, unless another number of runs explains the
    whole column or averaging rounded runs explains the cell."""
    fit, findings = column.fit, []
    full = column.metric.scale * 10 ** column.cells[0].printed.decimals
    for cell, found in zip(column.cells, fit.cells, strict=True):
        if found.fits:
            continue
        near = sorted({found.units * fit.total // full, -(-found.units * fit.total // full)})
        options = " and ".join(f"{k}/{fit.total} = {_percent(k, fit.total, column)}" for k in near)
        if found.near:
            reading = "averaging runs that were rounded before can shift the last digit"
        elif fit.excuses:
            reading = f"{fit.excuses[0]} runs would print every cell of the column"
        else:
            reading = ""
        findings.append(
            Finding(
                "granularity",
                Severity.DISCREPANCY if reading else Severity.CONTRADICTION,
                (cell.ref,),
                f"{_label(column, cell)}: {cell.printed.text} cannot come from {fit.total} "
                f"scored episodes ({fit.items} items x {fit.repeats}) by rounding or cutting off"
                + (f"; {reading}." if reading else "."),
                f"the neighbouring counts are {options}",
                {"value": cell.printed.text, "total": fit.total, "near": near},
                f"{_label(column, cell)} {cell.printed.text}",
            )
        )
    return findings


def _percent(k: int, total: int, column: Column, extra: int = 2) -> str:
    decimals = column.cells[0].printed.decimals + extra
    return print_number(Fraction(column.metric.scale * k, total), decimals)


def _rounding_findings(column: Column) -> list[Finding]:
    """Cells whose last digit is cut off, and how the rest of the column was rounded."""
    fit = column.fit
    if not fit.decisive:
        return []
    pairs = list(zip(column.cells, fit.cells, strict=True))
    cut = [(cell, found) for cell, found in pairs if found.truncated]
    rounded = [(cell, found) for cell, found in pairs if found.rounded]
    if not cut:
        return []
    stated = column.metric.rounding is not None and column.metric.rounding is not fit.main
    mixed = bool(rounded) or stated or fit.main is not Rounding.TRUNCATED
    severity = Severity.DISCREPANCY if mixed else Severity.INFO
    findings = []
    for cell, found in cut:
        k = found.counts[Rounding.TRUNCATED][0]
        exact = Fraction(column.metric.scale * k, fit.total)
        findings.append(
            Finding(
                "rounding",
                severity,
                (cell.ref,),
                f"{_label(column, cell)}: {cell.printed.text} is cut off, not rounded; "
                f"{k}/{fit.total} would "
                f"round to {print_number(exact, cell.printed.decimals)}.",
                f"{k}/{fit.total} = {_percent(k, fit.total, column)}; in this column {len(cut)} of "
                f"{len(pairs)} cells can only be cut off, {len(rounded)} only rounded, "
                f"{len(pairs) - len(cut) - len(rounded)} do not tell",
                {
                    "count": k,
                    "total": fit.total,
                    "rounds_to": print_number(exact, cell.printed.decimals),
                },
                f"{_label(column, cell)} {cell.printed.text}",
            )
        )
    return findings


def _twice_findings(column: Column) -> list[Finding]:
    """One count that is printed with two different last digits in a column."""
    if not column.fit.decisive:
        return []
    by_count: dict[int, list[Cell]] = {}
    for cell, found in zip(column.cells, column.fit.cells, strict=True):
        candidates = found.candidates(column.fit.plausible)
        if len(candidates) == 1:
            by_count.setdefault(candidates[0], []).append(cell)
    findings = []
    for k, cells in by_count.items():
        texts = list(dict.fromkeys(cell.printed.text for cell in cells))
        if len(texts) > 1:
            findings.append(
                Finding(
                    "rounding",
                    Severity.DISCREPANCY,
                    tuple(cell.ref for cell in cells),
                    f"{_name(column)}: the same count {k}/{column.fit.total} is printed as "
                    f"{' and as '.join(texts)}.",
                    "; ".join(f"{_row(cell)} {cell.printed.text}" for cell in cells),
                    {"count": k, "total": column.fit.total, "printed": texts},
                )
            )
    return findings


def _neighbour_findings(columns: list[Column]) -> list[Finding]:
    """Columns of one table that disagree about the number of runs."""
    findings = []
    for table in dict.fromkeys(column.table for column in columns):
        known = [c for c in columns if c.table == table and c.fit.decisive]
        runs = {c.metric.name: c.fit.repeats for c in known}
        if len(set(runs.values())) > 1:
            single = [name for name, r in runs.items() if r == 1]
            several = {name: r for name, r in runs.items() if r > 1}
            findings.append(
                Finding(
                    "runs",
                    Severity.INFO,
                    tuple(f"{table}: {name}" for name in runs),
                    f"{table}: "
                    + ", ".join(f"{name} averages {r} runs" for name, r in several.items())
                    + (f"; one run in {', '.join(single)}." if single else "."),
                    "inferred column by column",
                    {"repeats": runs},
                )
            )
    return findings


def fit_of(columns: list[Column], ref: str) -> tuple[Column, CellFit] | None:
    """The column and the fit of a cell, if its metric is a proportion."""
    for column in columns:
        for cell, fit in zip(column.cells, column.fit.cells, strict=True):
            if cell.ref == ref:
                return column, fit
    return None
