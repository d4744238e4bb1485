"""The claims ledger: every typed claim becomes checks over printed cells, and gets a verdict.

A claim's verdict is that of its weakest part. Where a claim can be read in more than one way its
record lists the readings, and it is contradicted only if every reading is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from lopd_repro.audit.expression import (
    RANK,
    CellValue,
    Checked,
    ExpressionError,
    Verdict,
    check,
    decimal,
    find_cell,
)
from lopd_repro.audit.findings import Finding, Severity, counted
from lopd_repro.audit.paper import Cell, Claim, Paper
from lopd_repro.errors import UserError


@dataclass(frozen=True)
class Part:
    """One check of a claim: its expression (empty where there is none), outcome, arithmetic."""

    expression: str
    verdict: Verdict
    text: str
    cells: tuple[str, ...]
    face_only: bool = False


@dataclass(frozen=True)
class Judged:
    """A claim with its verdict and the arithmetic behind it."""

    claim: Claim
    verdict: Verdict
    summary: str
    parts: tuple[Part, ...]
    asides: tuple[Part, ...]
    """Checks that are shown beside the claim and do not count."""

    @property
    def cells(self) -> tuple[str, ...]:
        """Cells the claim speaks of, each once."""
        return tuple(dict.fromkeys(ref for part in self.parts for ref in part.cells))

    @property
    def failing(self) -> tuple[Part, ...]:
        """The contradicted parts."""
        return tuple(part for part in self.parts if part.verdict is Verdict.CONTRADICTED)


Maker = Callable[[Paper, Mapping[str, Any], CellValue], Iterator[Part]]


def judge_claims(paper: Paper, value: CellValue) -> list[Judged]:
    """Judge all claims; a record that names no existing cell or lacks a field is a `UserError`."""
    return [_guard(paper, claim, value) for claim in paper.claims]


def _guard(paper: Paper, claim: Claim, value: CellValue) -> Judged:
    try:
        return judge(paper, claim, value)
    except KeyError as error:
        raise UserError(f"claims.yaml: claim {claim.id}: needs {error.args[0]}") from None
    except (ExpressionError, TypeError, AttributeError) as error:
        raise UserError(f"claims.yaml: claim {claim.id}: {error}") from None


def judge(paper: Paper, claim: Claim, value: CellValue) -> Judged:
    """Judge one claim; `value` says what each cell may stand for."""
    make = MAKERS[claim.kind]
    asides = tuple(_checks(paper, claim.fields.get("also", ()), value))
    readings = claim.fields.get("readings")
    if not readings:
        parts = tuple(make(paper, claim.fields, value))
        if not parts:
            raise ExpressionError("holds nothing to check")
        verdict = _weakest(parts)
        return Judged(claim, verdict, _summary(verdict, parts), parts, asides)
    outcomes: list[tuple[str, Verdict, tuple[Part, ...]]] = []
    for reading in readings:
        parts = tuple(make(paper, {**claim.fields, **reading}, value))
        outcomes.append((str(reading["name"]), _weakest(parts), parts))
    verdicts = [verdict for _, verdict, _ in outcomes]
    if all(v is verdicts[0] for v in verdicts):
        verdict = verdicts[0]
    elif Verdict.FOLLOWS in verdicts or Verdict.CONSISTENT in verdicts:
        verdict = Verdict.CONSISTENT
    else:
        verdict = Verdict.NOT_DECIDABLE
    summary = "; ".join(f"read as '{name}': {_summary(v, parts)}" for name, v, parts in outcomes)
    return Judged(
        claim, verdict, summary, tuple(p for _, _, parts in outcomes for p in parts), asides
    )


def _weakest(parts: tuple[Part, ...]) -> Verdict:
    return max((part.verdict for part in parts), key=lambda verdict: RANK[verdict])


def _summary(verdict: Verdict, parts: tuple[Part, ...]) -> str:
    n = sum(part.verdict is verdict for part in parts)
    of = f" ({n} of {len(parts)} parts)" if len(parts) > 1 and n < len(parts) else ""
    return f"{verdict.value}{of}"


def _part(paper: Paper, expression: str, value: CellValue, note: str = "") -> Part:
    outcome: Checked = check(paper, expression, value)
    text = f"{note}: {outcome.arithmetic}" if note else outcome.arithmetic
    return Part(expression, outcome.verdict, text, outcome.cells, outcome.face_only)


def _checks(paper: Paper, entries: Any, value: CellValue) -> Iterator[Part]:
    if isinstance(entries, str):
        entries = [entries]
    for entry in entries:
        if isinstance(entry, str):
            yield _part(paper, entry, value)
        else:
            yield _part(paper, str(entry["check"]), value, str(entry.get("note", "")))


def _plain(paper: Paper, fields: Mapping[str, Any], value: CellValue) -> Iterator[Part]:
    """Kinds cell, difference, ordering, arithmetic, count: a list of checks."""
    return _checks(paper, fields["checks"], value)


def _columns(paper: Paper, fields: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """(table, backbone, metric) of a claim's columns, for the backbones it names or all."""
    for table, metrics in dict(fields["columns"]).items():
        if table not in paper.tables:
            raise ExpressionError(f"no file is called {table}")
        wanted = fields.get("backbones") or paper.tables[table].backbones()
        for backbone in wanted:
            for metric in metrics:
                yield table, backbone, metric


def _better(paper: Paper, metric: str) -> str:
    if metric not in paper.metrics:
        raise ExpressionError(f"no metric is called {metric}")
    return ">" if paper.metrics[metric].higher_is_better else "<"


def _best(paper: Paper, fields: Mapping[str, Any], value: CellValue) -> Iterator[Part]:
    """Kind best: `method` is strictly better than every rival in every column."""
    method = fields["method"]
    rivals = fields.get("rivals") or [f"best!{method}"]
    columns = list(_columns(paper, fields))
    for table, backbone, metric in columns:
        for rival in rivals:
            expression = (
                f"{table}[{backbone},{method},{metric}] {_better(paper, metric)} "
                f"{table}[{backbone},{rival},{metric}]"
            )
            yield _part(paper, expression, value, f"{backbone} {paper.metrics[metric].title}")
    if "stated" in fields:
        n = len(columns)
        stated = fields["stated"]
        same = Verdict.FOLLOWS if n == stated else Verdict.CONTRADICTED
        yield Part("", same, f"columns compared: {n}, stated {stated}", ())


def _gain(table: str, backbone: str, method: str, baseline: str, metric: str) -> str:
    return f"({table}[{backbone},{method},{metric}] - {table}[{backbone},{baseline},{metric}])"


def _gain_range(paper: Paper, fields: Mapping[str, Any], value: CellValue) -> Iterator[Part]:
    """Kind gain_range: the smallest and the largest gain over a baseline, and where they are."""
    method, baseline = fields["method"], fields["baseline"]
    gains = {
        (backbone, metric): _gain(table, backbone, method, baseline, metric)
        for table, backbone, metric in _columns(paper, fields)
    }
    for end, relation in (("smallest", "<="), ("largest", ">=")):
        claimed = fields[end]
        key = (claimed["backbone"], claimed["metric"])
        if key not in gains:
            raise ExpressionError(f"{end}: {key[0]} {key[1]} is not among the columns")
        yield _part(paper, f"{gains[key]} = {claimed['value']}", value, f"{end}, {' '.join(key)}")
        for other, gain in gains.items():
            if other != key:
                note = f"{end} against {other[0]} {paper.metrics[other[1]].title}"
                yield _part(paper, f"{gains[key]} {relation} {gain}", value, note)


def _trend(paper: Paper, fields: Mapping[str, Any], value: CellValue) -> Iterator[Part]:
    """Kind trend: the lead over the strongest rival is larger (`direction: smaller` for the
    opposite) with backbone `to` than with backbone `from`."""
    method = fields["method"]
    first, second = fields["from"], fields["to"]
    relation = {"larger": ">", "smaller": "<"}[fields.get("direction", "larger")]
    for table, metrics in dict(fields["columns"]).items():
        for metric in metrics:
            leads = [_gain(table, b, method, f"best!{method}", metric) for b in (second, first)]
            note = f"{paper.metrics[metric].title}, lead with {second} against lead with {first}"
            yield _part(paper, f"{leads[0]} {relation} {leads[1]}", value, note)


def _budget(paper: Paper, fields: Mapping[str, Any], value: CellValue) -> Iterator[Part]:
    """Kind budget: a curve passes a rival's value before a stated share of the full budget.

    Needs `curve` (file and series of points), `rivals` (cells, with an optional factor to the
    curve's unit), `total` and `percent`.
    """
    file, series = fields["curve"]["file"], fields["curve"]["series"]
    total, percent = Fraction(str(fields["total"])), Fraction(str(fields["percent"]))
    if file not in paper.tables:
        raise ExpressionError(f"no file is called {file}")
    points = sorted(
        (c for c in paper.tables[file].cells if c.key[0] == series),
        key=lambda c: Fraction(c.key[1]),
    )
    if not points:
        raise ExpressionError(f"{file} has no series {series!r}")
    for entry in fields["rivals"]:
        rival = find_cell(paper, entry["cell"])
        factor = Fraction(str(entry.get("factor", 1)))
        note = str(entry.get("note", rival.ref))
        yield _budget_part(points, rival, factor, total, percent, note)


def _budget_part(
    points: list[Cell],
    rival: Cell,
    factor: Fraction,
    total: Fraction,
    percent: Fraction,
    note: str,
) -> Part:
    target = rival.printed
    sure = next((c for c in points if c.printed.low > target.high * factor), None)
    maybe = next((c for c in points if c.printed.high > target.low * factor), None)
    refs = (*(c.ref for c in (maybe, sure) if c is not None), rival.ref)

    def at(cell: Cell) -> str:
        share = 100 * Fraction(cell.key[1]) / total
        return f"{cell.printed.text} at {cell.key[1]} ({decimal(share, 1)}%)"

    head = f"{note}: above {decimal(target.face * factor)} before {decimal(percent)}%?"
    if sure is not None and 100 * Fraction(sure.key[1]) / total < percent:
        return Part("", Verdict.FOLLOWS, f"{head} {at(sure)}, yes", refs)
    if maybe is None:
        return Part("", Verdict.CONTRADICTED, f"{head} no printed point is above it", refs)
    if 100 * Fraction(maybe.key[1]) / total >= percent:
        return Part("", Verdict.CONTRADICTED, f"{head} earliest possible: {at(maybe)}", refs)
    later = f"; the first point certainly above it is {at(sure)}" if sure is not None else ""
    return Part("", Verdict.NOT_DECIDABLE, f"{head} {at(maybe)} leaves it open{later}", refs)


def _procedure(paper: Paper, fields: Mapping[str, Any], value: CellValue) -> Iterator[Part]:
    """Kind procedure: what was chosen where; how much that moved a number is never printed."""
    refs = []
    for ref in fields["reported_cells"]:
        refs.append(find_cell(paper, ref).ref)
    chosen = ", ".join(str(name) for name in fields["chosen"])
    yield Part(
        "",
        Verdict.NOT_DECIDABLE,
        f"{chosen} chosen on {fields['chosen_on']}; without a run on separate validation data "
        f"the effect on {counted(len(refs), 'reported cell')} cannot be worked out",
        tuple(refs),
    )


MAKERS: dict[str, Maker] = {
    "cell": _plain,
    "difference": _plain,
    "ordering": _plain,
    "arithmetic": _plain,
    "count": _plain,
    "best": _best,
    "gain_range": _gain_range,
    "trend": _trend,
    "budget": _budget,
    "procedure": _procedure,
}


def claim_findings(judged: list[Judged]) -> list[Finding]:
    """Claims that the paper's own numbers contradict or leave open."""
    findings = []
    for item in judged:
        if item.claim.kind == "procedure":
            continue
        if item.verdict is Verdict.CONTRADICTED:
            severity = Severity.CONTRADICTION
            shown = item.failing
        elif item.verdict is Verdict.NOT_DECIDABLE or (item.failing and item.parts):
            severity = Severity.CAUTION
            shown = tuple(p for p in item.parts if RANK[p.verdict] >= RANK[Verdict.NOT_DECIDABLE])
        elif any(part.face_only for part in item.parts):
            severity = Severity.DISCREPANCY
            shown = tuple(p for p in item.parts if p.face_only)
        else:
            continue
        findings.append(
            Finding(
                "claims",
                severity,
                item.cells,
                f"Claim {item.claim.id} ({item.claim.where}), '{item.claim.statement}': "
                f"{item.summary}.",
                "; ".join(part.text for part in shown),
                {"claim": item.claim.id, "verdict": item.verdict.value},
            )
        )
    return findings
