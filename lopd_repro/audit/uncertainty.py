"""How much chance the printed numbers leave: intervals, tests, detectable differences.

All tests here are unpaired, because a table prints totals and not which items were solved. A
paired test on the per-item results could be sharper, so for single runs the smallest p that any
pairing could give is worked out as well. Items are the only source of chance considered: the
training seed is another, of unknown size, on top of all that stands here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from lopd_repro.audit.averages import AverageFit
from lopd_repro.audit.columns import Column, Counts, cell_share, recovered_counts
from lopd_repro.audit.expression import best_rival
from lopd_repro.audit.findings import Finding, Severity
from lopd_repro.audit.paper import Cell, Family, Metric, Paper
from lopd_repro.stats.correction import holm
from lopd_repro.stats.proportions import (
    Interval,
    Stratum,
    bounded_mean_interval,
    most_favourable_paired_p,
    sign_test,
    smallest_detectable_difference,
    weighted_difference_test,
    wilson,
)

ALPHA = 0.05
POWER = 0.8
WORST = 1.0
TYPICAL = 1 / 3
"""Variance of a bounded score as a share of mean * (1 - mean); see `bounded_mean_interval`."""


@dataclass(frozen=True)
class CellInterval:
    """95% interval of one cell in printed units.

    `narrow` takes every scored episode as independent, `wide` counts the items once, as if the
    repeats of an item always agreed; they are one interval where there is one run. For bounded
    scores `wide` is the worst-case and `narrow` the typical variance.
    """

    cell: Cell
    narrow: Interval
    wide: Interval
    method: str

    def show(self, *, wide: bool = False) -> str:
        """The interval with one decimal less than the cell is printed with, at least one."""
        interval = self.wide if wide else self.narrow
        places = max(1, self.cell.printed.decimals - 1)
        return f"{interval.low:.{places}f} to {interval.high:.{places}f}"


@dataclass(frozen=True)
class Comparison:
    """One method against another in one cell, with p under both assumptions of `CellInterval`."""

    cell: Cell
    other: Cell
    title: str
    tied_with: int
    """How many further methods share the other's printed value."""
    difference: float
    error_narrow: float
    error_wide: float
    p_narrow: float
    p_wide: float
    p_paired_floor: float | None
    """Smallest p of any pairing; None where no bound exists (bounded scores, unknown counts)."""
    items_ahead: int | None
    n: int
    detectable: float | None
    """Smallest rise shown with 80% power over the other's score, in printed units."""


@dataclass(frozen=True)
class FamilyResult:
    """All comparisons of one family, with Holm-adjusted p."""

    family: Family
    against: str
    comparisons: tuple[Comparison, ...]
    adjusted_narrow: tuple[float, ...]
    adjusted_wide: tuple[float, ...]
    adjusted_floor: tuple[float, ...]

    def significant(self, which: str) -> int:
        """How many adjusted p are below 0.05: `narrow`, `wide` or `floor`."""
        adjusted: tuple[float, ...] = getattr(self, f"adjusted_{which}")
        return sum(p < ALPHA for p in adjusted)


class Sampling:
    """What is known about the sample behind each cell of a paper."""

    def __init__(
        self, paper: Paper, columns: Sequence[Column], averages: Sequence[AverageFit]
    ) -> None:
        self.paper = paper
        self.counts: Counts = recovered_counts(list(columns))
        self._repeats = {(c.table, c.metric.name): c.fit.repeats for c in columns if c.trustworthy}
        self._weights = {(fit.table, fit.metric.name): fit.best.weights for fit in averages}

    def parts(self, cell: Cell) -> list[tuple[float, Cell, Metric]]:
        """The independent test sets behind a cell: weight, cell, metric."""
        metric = self.paper.metrics[cell.key[2]]
        if metric.kind != "average":
            return [(1.0, cell, metric)]
        parts = []
        weights = self._weights.get((cell.file, metric.name), "equal")
        for name in metric.parts:
            part = self.paper.cells.get(f"{cell.file}[{cell.key[0]},{cell.key[1]},{name}]")
            if part is None:
                return []
            inner = self.paper.metrics[name]
            weight = float(inner.items or 1) if weights == "items" else 1.0
            parts.append((weight, part, inner))
        return parts

    def mean(self, cell: Cell) -> float:
        """Best estimate of the share in [0, 1]: the recovered count, else the printed value."""
        if cell.ref in self.counts:
            low, high = cell_share(self.paper, cell, self.counts)
            return float((low + high) / 2)
        return float(cell.printed.face) / self.paper.metrics[cell.key[2]].scale

    def repeats(self, cell: Cell) -> int:
        """Runs behind a cell: inferred, else stated, else 1."""
        stated = self.paper.metrics[cell.key[2]].repeats or 1
        return self._repeats.get((cell.file, cell.key[2]), stated)

    def strata(self, a: Cell, b: Cell, wide: bool) -> list[Stratum]:
        """The strata of a comparison; empty where a sample size is unknown."""
        strata = []
        for (weight, part_a, metric), (_, part_b, _) in zip(
            self.parts(a), self.parts(b), strict=False
        ):
            if metric.items is None:
                return []
            repeats_a = 1 if wide else self.repeats(part_a)
            repeats_b = 1 if wide else self.repeats(part_b)
            bounded = metric.kind == "bounded_mean"
            strata.append(
                Stratum(
                    weight,
                    self.mean(part_a),
                    self.mean(part_b),
                    metric.items * repeats_a,
                    metric.items * repeats_b,
                    TYPICAL if bounded and not wide else WORST,
                )
            )
        return strata


def cell_intervals(sampling: Sampling) -> dict[str, CellInterval]:
    """Intervals of every cell whose sample size is known."""
    result = {}
    for table in sampling.paper.score_tables():
        for cell in table.cells:
            interval = _interval(sampling, cell)
            if interval is not None:
                result[cell.ref] = interval
    return result


def _interval(sampling: Sampling, cell: Cell) -> CellInterval | None:
    metric = sampling.paper.metrics[cell.key[2]]
    if metric.kind == "quantity":
        return None
    parts = sampling.parts(cell)
    if not parts or any(part[2].items is None for part in parts):
        return None
    if len(parts) == 1:
        mean, items = sampling.mean(cell), float(metric.items or 0)
        if metric.kind == "bounded_mean":
            narrow = bounded_mean_interval(mean, items, TYPICAL)
            wide = bounded_mean_interval(mean, items, WORST)
            return CellInterval(
                cell, _times(narrow, metric), _times(wide, metric), "normal, bounded score"
            )
        n = items * sampling.repeats(cell)
        return CellInterval(
            cell,
            _times(wilson(mean * n, n), metric),
            _times(wilson(mean * items, items), metric),
            "Wilson",
        )
    widths = []
    total = sum(weight for weight, _, _ in parts)
    mean = sum(weight * sampling.mean(part) for weight, part, _ in parts) / total
    for cautious in (False, True):
        variance = 0.0
        for weight, part, inner in parts:
            p = sampling.mean(part)
            n = float(inner.items or 1) * (1 if cautious else sampling.repeats(part))
            spread = TYPICAL if inner.kind == "bounded_mean" and not cautious else WORST
            variance += (weight / total) ** 2 * spread * p * (1 - p) / n
        half = 1.959963984540054 * math.sqrt(variance)
        widths.append(Interval(max(0.0, mean - half), min(1.0, mean + half)))
    return CellInterval(
        cell, _times(widths[0], metric), _times(widths[1], metric), "normal, weighted sets"
    )


def _times(interval: Interval, metric: Metric) -> Interval:
    return Interval(interval.low * metric.scale, interval.high * metric.scale)


def compare(sampling: Sampling, a: Cell, b: Cell, tied_with: int = 0) -> Comparison | None:
    """Unpaired test of two cells of one column; None where a sample size is unknown."""
    paper = sampling.paper
    metric = paper.metrics[a.key[2]]
    narrow, wide = sampling.strata(a, b, False), sampling.strata(a, b, True)
    if not narrow:
        return None
    sign = 1 if metric.higher_is_better else -1
    difference, error_narrow, p_narrow = weighted_difference_test(narrow)
    _, error_wide, p_wide = weighted_difference_test(wide)
    n = int(sum(s.n_a for s in wide))
    base = sampling.mean(b) if len(narrow) == 1 else _weighted_mean(wide)
    spread = narrow[0].spread if len(narrow) == 1 else WORST
    detectable = smallest_detectable_difference(
        base, sum(s.n_a for s in narrow), ALPHA, POWER, spread
    )
    ahead = _items_ahead(sampling, a, b)
    return Comparison(
        cell=a,
        other=b,
        title=metric.title,
        tied_with=tied_with,
        difference=sign * difference * metric.scale,
        error_narrow=error_narrow * metric.scale,
        error_wide=error_wide * metric.scale,
        p_narrow=p_narrow,
        p_wide=p_wide,
        p_paired_floor=None if ahead is None else most_favourable_paired_p(ahead),
        items_ahead=None if ahead is None else sign * ahead,
        n=n,
        detectable=None if detectable is None else detectable * metric.scale,
    )


def _weighted_mean(strata: Sequence[Stratum]) -> float:
    return sum(s.weight * s.mean_b for s in strata) / sum(s.weight for s in strata)


def _items_ahead(sampling: Sampling, a: Cell, b: Cell) -> int | None:
    """Difference of the recovered totals, where every part has a unique count and the weights of
    the sets are those of their sizes, so that the average is a share of all items."""
    parts_a, parts_b = sampling.parts(a), sampling.parts(b)
    if len({weight / (metric.items or 1) for weight, _, metric in parts_a}) > 1:
        return None
    ahead = 0
    for (_, part_a, _), (_, part_b, _) in zip(parts_a, parts_b, strict=True):
        mine, theirs = sampling.counts.get(part_a.ref), sampling.counts.get(part_b.ref)
        if mine is None or theirs is None or mine.unique is None or theirs.unique is None:
            return None
        ahead += mine.unique - theirs.unique
    return ahead


def family_results(sampling: Sampling) -> list[FamilyResult]:
    """Every family, against the strongest rival of each cell and against the baseline."""
    results = []
    paper = sampling.paper
    for family in paper.families:
        for against in ("strongest rival", "baseline"):
            comparisons = []
            for table, name in family.table_metrics:
                for cell in paper.tables[table].column(name):
                    if cell.key[1] != family.method:
                        continue
                    found = _compare_against(sampling, family, cell, against)
                    if found is not None:
                        comparisons.append(found)
            if comparisons:
                results.append(
                    FamilyResult(
                        family,
                        against,
                        tuple(comparisons),
                        tuple(holm([c.p_narrow for c in comparisons])),
                        tuple(holm([c.p_wide for c in comparisons])),
                        tuple(holm([c.p_paired_floor or 0.0 for c in comparisons])),
                    )
                )
    return results


def _compare_against(
    sampling: Sampling, family: Family, cell: Cell, against: str
) -> Comparison | None:
    paper, (backbone, method, metric) = sampling.paper, cell.key
    if against == "baseline":
        other = paper.cells.get(f"{cell.file}[{backbone},{family.baseline},{metric}]")
        return None if other is None else compare(sampling, cell, other)
    other = best_rival(paper, cell.file, backbone, metric, method)
    tied = sum(
        c.printed.face == other.printed.face
        for c in paper.tables[cell.file].column(metric)
        if c.key[0] == backbone and c.key[1] not in (method, other.key[1])
    )
    return compare(sampling, cell, other, tied)


def uncertainty_findings(
    sampling: Sampling, results: Sequence[FamilyResult], intervals: dict[str, CellInterval]
) -> list[Finding]:
    """Significance of each family, detectable differences, sign test, interval widths."""
    findings = []
    for result in results:
        findings.append(_family_finding(result))
        if result.against == "strongest rival":
            findings.append(_power_finding(result))
            sign = _sign_finding(sampling, result)
            if sign is not None:
                findings.append(sign)
    findings += _width_findings(sampling, intervals)
    return findings


def comparison_name(c: Comparison) -> str:
    """Row group and column of a comparison, for reading."""
    return f"{c.cell.key[0]} {c.title}"


def _family_finding(result: FamilyResult) -> Finding:
    n = len(result.comparisons)
    narrow, wide = result.significant("narrow"), result.significant("wide")
    floor = result.significant("floor")
    open_ended = sum(c.p_paired_floor is None for c in result.comparisons)
    text = (
        f"{result.family.title}, {result.family.method} against the {result.against}: {narrow} of "
        f"{n} differences are significant at 5% after Holm's correction (unpaired test, every "
        f"episode independent, typical variance of bounded scores); {wide} of {n} under the "
        f"cautious assumptions (each item once, largest possible variance)."
    )
    if floor < n:
        text += (
            f" The pairing by item is not printed; with the most favourable pairing at most {floor}"
            f" of {n} could be"
            + (f", counting the {open_ended} for which no bound exists." if open_ended else ".")
        )
    lines = [
        f"{comparison_name(c)}: {c.cell.printed.text} - {c.other.printed.text} "
        f"({c.other.key[1]}) = {c.difference + 1e-9:+.2f} +- {c.error_narrow:.2f}, "
        f"p {c.p_narrow:.3g}, Holm {adjusted:.3g}"
        for c, adjusted in zip(result.comparisons, result.adjusted_narrow, strict=True)
    ]
    severity = Severity.CAUTION if narrow < n else Severity.INFO
    return Finding(
        "uncertainty",
        severity,
        tuple(c.cell.ref for c in result.comparisons),
        text,
        "; ".join(lines),
        {
            "against": result.against,
            "significant_independent": narrow,
            "significant_cautious": wide,
            "at_most_with_best_pairing": floor,
            "comparisons": n,
        },
    )


def _power_finding(result: FamilyResult) -> Finding:
    known = [c for c in result.comparisons if c.detectable is not None]
    below = [c for c in known if c.detectable is not None and c.difference < c.detectable]
    lines = [
        f"{comparison_name(c)}: observed {c.difference + 1e-9:+.2f}, detectable {c.detectable:.1f}"
        for c in known
    ]
    return Finding(
        "uncertainty",
        Severity.CAUTION if below else Severity.INFO,
        tuple(c.cell.ref for c in below),
        f"{result.family.title}: {len(below)} of {len(known)} differences to the "
        f"{result.against} are smaller than what an unpaired test on these items would show with "
        f"{POWER:.0%} power.",
        "; ".join(lines),
        {comparison_name(c): round(c.detectable, 2) for c in known if c.detectable is not None},
    )


def _sign_finding(sampling: Sampling, result: FamilyResult) -> Finding | None:
    decided = [c for c in result.comparisons if c.difference != 0]
    if len(decided) < 2:
        return None
    wins = sum(c.difference > 0 for c in decided)
    units: dict[tuple[str, tuple[str, ...]], list[float]] = {}
    for c in decided:
        group = next(
            (g for g in result.family.trained_together if c.cell.key[2] in g), (c.cell.key[2],)
        )
        units.setdefault((c.cell.key[0], group), []).append(c.difference)
    models = [sum(d > 0 for d in ds) - sum(d < 0 for d in ds) for ds in units.values()]
    model_wins, model_n = sum(m > 0 for m in models), sum(m != 0 for m in models)
    p, p_models = sign_test(wins, len(decided)), sign_test(model_wins, max(model_n, 1))
    return Finding(
        "uncertainty",
        Severity.CAUTION,
        tuple(c.cell.ref for c in decided),
        f"{result.family.title}: {wins} of {len(decided)} signs favour {result.family.method} "
        f"(sign test p = {p:.3g}). "
        + (
            f"That is weaker than it looks: the {len(decided)} comparisons come from "
            f"{len(units)} trained models, and counted by model the p is {p_models:.3g}."
            if len(units) < len(decided)
            else "Each comparison is taken as one trained model."
        ),
        "a training run that came out well lifts every benchmark it is scored on, so signs within "
        "one model are not independent; the sign ignores how small a lead is; and the test takes "
        "the method as fixed beforehand, not tuned on one of the benchmarks. In its favour: the "
        "rival is chosen as the strongest of each cell",
        {
            "wins": wins,
            "comparisons": len(decided),
            "p": p,
            "models": len(units),
            "p_by_model": p_models,
        },
    )


def _width_findings(sampling: Sampling, intervals: dict[str, CellInterval]) -> list[Finding]:
    findings = []
    for table in sampling.paper.score_tables():
        for name in table.metrics():
            found = [intervals[c.ref] for c in table.column(name) if c.ref in intervals]
            if not found:
                continue
            narrow = max(i.narrow.high - i.narrow.low for i in found) / 2
            wide = max(i.wide.high - i.wide.low for i in found) / 2
            places = max(1, found[0].cell.printed.decimals - 1)
            widths = f"+-{narrow:.{places}f}"
            if f"{wide:.{places}f}" != f"{narrow:.{places}f}":
                widths += f" (cautious: +-{wide:.{places}f})"
            findings.append(
                Finding(
                    "intervals",
                    Severity.INFO,
                    tuple(i.cell.ref for i in found),
                    f"{sampling.paper.metrics[name].title}: 95% intervals of a "
                    f"cell reach up to {widths}.",
                    f"{found[0].method}; "
                    + "; ".join(
                        f"{i.cell.key[0]} {i.cell.key[1]} {i.cell.printed.text} [{i.show()}]"
                        for i in found
                    ),
                    {"half_width": round(narrow, 2), "half_width_cautious": round(wide, 2)},
                )
            )
    return findings
