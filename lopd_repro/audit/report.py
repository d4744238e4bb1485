"""The report as a list of blocks, rendered alike to HTML and to Markdown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from lopd_repro.audit.claims import Judged
from lopd_repro.audit.core import Audit
from lopd_repro.audit.expression import Verdict
from lopd_repro.audit.findings import Finding, Severity
from lopd_repro.audit.paper import Cell, Table
from lopd_repro.audit.reproduction import NOT_TESTED
from lopd_repro.audit.uncertainty import FamilyResult, comparison_name


@dataclass(frozen=True)
class Heading:
    """A section heading; `anchor` is its target in the page."""

    text: str
    anchor: str
    level: int = 2


@dataclass(frozen=True)
class Paragraph:
    """Running text."""

    text: str


@dataclass(frozen=True)
class Bullets:
    """A list."""

    items: tuple[str | tuple[str, tuple[str, ...]], ...]
    """Text, or text with a list under it."""


@dataclass(frozen=True)
class GridCell:
    """One table cell: text, what hovering shows, footnote marks, severity class."""

    text: str
    hover: str = ""
    notes: tuple[str, ...] = ()
    severity: str = ""
    header: bool = False


@dataclass(frozen=True)
class Grid:
    """A table with footnotes (mark, text)."""

    caption: str
    header: tuple[GridCell, ...]
    rows: tuple[tuple[GridCell, ...], ...]
    notes: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Entry:
    """A finding or a claim: chip, title, lines of detail."""

    anchor: str
    chip: str
    css: str
    title: str
    lines: tuple[str, ...]
    open: bool = False


@dataclass(frozen=True)
class Group:
    """Entries under one summary line, folded away in the page unless `open`."""

    title: str
    entries: tuple[Entry, ...]
    open: bool = True


Block = Heading | Paragraph | Bullets | Grid | Group


@dataclass(frozen=True)
class Report:
    """Title and blocks."""

    title: str
    blocks: tuple[Block, ...] = field(default_factory=tuple)


VERDICT_CSS = {
    Verdict.FOLLOWS: "ok",
    Verdict.CONSISTENT: "info",
    Verdict.NOT_DECIDABLE: "caution",
    Verdict.CONTRADICTED: "contradiction",
}
SEVERITY_TEXT = {
    Severity.CONTRADICTION: "Contradictions: no reading that was tried makes these agree",
    Severity.DISCREPANCY: "Discrepancies: a named other reading explains them",
    Severity.CAUTION: "Cautions: right as printed, but they carry less than they may seem to",
    Severity.INFO: "Facts recovered from the printed digits",
}


def build_report(audit: Audit) -> Report:
    """All sections, summary first."""
    blocks: list[Block] = [*_summary(audit)]
    blocks.append(Heading("The tables, marked", "tables"))
    blocks.append(
        Paragraph(
            "Numbers are as printed. A mark leads to the note under the table; resting the pointer "
            "on a cell shows the count behind it, where the digits give one, and its 95% interval; "
            "the same stands under Findings, among the recovered facts."
        )
    )
    for table in audit.paper.score_tables():
        blocks.append(_grid(audit, table))
    if audit.families:
        blocks.append(Heading("What chance leaves of the comparisons", "chance"))
        blocks += _chance(audit)
    blocks.append(Heading("Findings", "findings"))
    for severity in Severity:
        entries = tuple(
            _finding_entry(name, finding)
            for name, finding in audit.findings
            if finding.severity is severity
        )
        if entries:
            title = f"{SEVERITY_TEXT[severity]} ({len(entries)})"
            blocks.append(Group(title, entries, severity is not Severity.INFO))
    blocks.append(Heading("Claims ledger", "claims"))
    blocks.append(
        Paragraph(
            "Each claim gets the verdict of its weakest part. 'Follows' means that every number "
            "the printed digits allow makes it true; 'consistent' that the printed values do and "
            "the digits leave a little open; the second verdict is about reproduced results."
        )
    )
    blocks += _ledger(audit)
    return Report(f"Audit of the printed numbers: {audit.paper.title}", tuple(blocks))


def _summary(audit: Audit) -> list[Block]:
    tally = Counter(finding.severity for _, finding in audit.findings)
    verdicts = Counter(item.verdict for item in audit.claims)
    second = Counter(item.verdict for item in audit.second)
    blocks: list[Block] = [
        Paragraph(
            "This page says what the printed numbers of a paper can and cannot mean, from the "
            "numbers alone: no model was run. It makes no statement about how a number came to be "
            "printed or what anyone intended."
        )
    ]
    if audit.paper.note:
        blocks.append(Paragraph(audit.paper.note))
    items: list[str | tuple[str, tuple[str, ...]]] = [
        "Findings: " + ", ".join(f"{tally[s]} {_plural(s, tally[s])}" for s in Severity) + ".",
        f"{len(audit.claims)} claims: "
        + "; ".join(f"{v.value}: {verdicts[v]}" for v in Verdict if verdicts[v])
        + ".",
    ]
    items += _key_facts(audit)
    if second.total() and second[NOT_TESTED] < second.total():
        items.append(
            "Reproduced results: " + ", ".join(f"{n} {v}" for v, n in sorted(second.items())) + "."
        )
    else:
        items.append("No claim has been tested against reproduced results.")
    blocks.append(Heading("Summary", "summary"))
    blocks.append(Bullets(tuple(items)))
    return blocks


def _plural(severity: Severity, n: int) -> str:
    names = {
        Severity.CONTRADICTION: ("contradiction", "contradictions"),
        Severity.DISCREPANCY: ("discrepancy", "discrepancies"),
        Severity.CAUTION: ("caution", "cautions"),
        Severity.INFO: ("recovered fact", "recovered facts"),
    }
    return names[severity][n != 1]


def _key_facts(audit: Audit) -> list[str | tuple[str, tuple[str, ...]]]:
    facts: list[str | tuple[str, tuple[str, ...]]] = []
    by_runs: dict[int, list[str]] = {}
    for column in audit.columns:
        if column.trustworthy:
            by_runs.setdefault(column.fit.repeats, []).append(column.metric.title)
    for runs, titles in sorted(by_runs.items()):
        what = "One run is" if runs == 1 else f"{runs} runs are"
        facts.append(f"{what} behind each cell of {', '.join(titles)}.")
    unique = sum(found.unique is not None for found in audit.counts.values())
    if audit.counts:
        facts.append(
            f"The exact count is recovered for {unique} of {len(audit.counts)} cells that are "
            "shares of items."
        )
    serious = (Severity.CONTRADICTION, Severity.DISCREPANCY)
    for check, text in (
        ("granularity", "Cells that no count of items prints"),
        ("rounding", "Last digit cut off instead of rounded"),
        ("averages", "Averages that the exact counts behind their parts do not print"),
        ("cross-check", "Printed differently in two places"),
    ):
        briefs = tuple(
            f.brief
            for _, f in audit.findings
            if f.check == check and f.brief and (f.severity in serious or check == "rounding")
        )
        if briefs:
            facts.append((f"{text} ({len(briefs)}):", briefs))
    for result in audit.families:
        n = len(result.comparisons)
        facts.append(
            f"{result.family.title}: against the {result.against} {result.significant('narrow')} "
            f"of {n} differences are significant after Holm's correction (unpaired, from the "
            "printed numbers)"
            f"; with the most favourable pairing of items at most {result.significant('floor')} "
            "could be."
        )
    contradicted = [item for item in audit.claims if item.verdict is Verdict.CONTRADICTED]
    for item in contradicted:
        facts.append(
            f"Claim {item.claim.id} ({item.claim.where}): '{item.claim.statement}' is not borne "
            f"out by {', '.join(part.text for part in item.failing[:3])}."
        )
    return facts


def _marks(audit: Audit, table: Table) -> dict[str, list[tuple[str, Finding]]]:
    marks: dict[str, list[tuple[str, Finding]]] = {}
    for name, finding in audit.findings:
        if finding.check == "claims" or finding.severity in (Severity.CAUTION, Severity.INFO):
            continue
        refs = finding.cells[:1] if finding.check in ("averages", "ratios") else finding.cells
        for ref in refs:
            if ref in audit.paper.cells and audit.paper.cells[ref].file == table.name:
                marks.setdefault(ref, []).append((name, finding))
    return marks


def _grid(audit: Audit, table: Table) -> Grid:
    marks = _marks(audit, table)
    metrics = table.metrics()
    header = [GridCell("Backbone", header=True), GridCell("Method", header=True)]
    header += [GridCell(audit.paper.metrics[m].title, header=True) for m in metrics]
    rows, used = [], {}
    last = ""
    for backbone, method in dict.fromkeys((c.key[0], c.key[1]) for c in table.cells):
        row = [GridCell(backbone if backbone != last else "", header=True)]
        row.append(GridCell(method, header=True))
        last = backbone
        for metric in metrics:
            cell = audit.paper.cells.get(f"{table.name}[{backbone},{method},{metric}]")
            if cell is None:
                row.append(GridCell(""))
                continue
            found = marks.get(cell.ref, [])
            for name, finding in found:
                used[name] = finding
            severity = min((f.severity for _, f in found), key=list(Severity).index, default=None)
            row.append(
                GridCell(
                    cell.printed.text,
                    _hover(audit, cell, found),
                    tuple(name for name, _ in found),
                    severity.value if severity else "",
                )
            )
        rows.append(tuple(row))
    notes = tuple((name, f"{f.statement} {f.evidence}.") for name, f in sorted(used.items()))
    return Grid(table.title, tuple(header), tuple(rows), notes)


def _hover(audit: Audit, cell: Cell, found: Sequence[tuple[str, Finding]]) -> str:
    lines = [f"{cell.ref} = {cell.printed.text} (read from: {cell.read_from})"]
    recovered = audit.counts.get(cell.ref)
    if recovered is not None:
        ks = " or ".join(map(str, recovered.counts[:4]))
        lines.append(f"count {ks} of {recovered.total}")
    interval = audit.intervals.get(cell.ref)
    if interval is not None:
        text = f"95% interval {interval.show()}"
        if interval.wide != interval.narrow:
            text += f", cautious {interval.show(wide=True)}"
        lines.append(f"{text} ({interval.method})")
    lines += [f"{name}: {finding.statement}" for name, finding in found]
    return "\n".join(lines)


def _chance(audit: Audit) -> list[Block]:
    blocks: list[Block] = [
        Paragraph(
            "Unpaired tests from the printed numbers, with Holm's correction over the family that "
            "the paper itself compares. 'Cautious' counts each item once however often it was run, "
            "and gives bounded scores the largest variance they can have. 'Best pairing' is the "
            "smallest p (uncorrected) that any per-item pairing could give; a dash means that no "
            "bound exists. 'Detectable' is the rise such a test would show with 80% power. Chance "
            "from the training seed is not in any of these numbers."
        )
    ]
    for result in audit.families:
        blocks.append(_family_grid(result))
    return blocks


def _family_grid(result: FamilyResult) -> Grid:
    names = (
        "Where",
        "Score",
        "Against",
        "Difference",
        "± 1 SE",
        "p",
        "Holm p",
        "Holm p, cautious",
        "Best pairing p",
        "Items ahead",
        "Detectable",
    )
    rows = []
    for c, adjusted, cautious in zip(
        result.comparisons, result.adjusted_narrow, result.adjusted_wide, strict=True
    ):
        tied = f" (+{c.tied_with} tied)" if c.tied_with else ""
        rows.append(
            (
                GridCell(comparison_name(c), header=True),
                GridCell(c.cell.printed.text),
                GridCell(f"{c.other.printed.text} {c.other.key[1]}{tied}"),
                GridCell(f"{c.difference + 1e-9:+.2f}"),
                GridCell(f"{c.error_narrow:.2f}"),
                GridCell(_p(c.p_narrow)),
                GridCell(_p(adjusted)),
                GridCell(_p(cautious)),
                GridCell("-" if c.p_paired_floor is None else _p(c.p_paired_floor)),
                GridCell("-" if c.items_ahead is None else str(c.items_ahead)),
                GridCell("-" if c.detectable is None else f"{c.detectable:.1f}"),
            )
        )
    return Grid(
        f"{result.family.title}: {result.family.method} against the {result.against}",
        tuple(GridCell(name, header=True) for name in names),
        tuple(rows),
    )


def _p(value: float) -> str:
    return f"{value:.3f}" if value >= 0.001 else "<0.001"


def _finding_entry(name: str, finding: Finding) -> Entry:
    lines = [finding.evidence] if finding.evidence else []
    if finding.cells and len(finding.cells) <= 12:
        lines.append("cells: " + ", ".join(finding.cells))
    elif finding.cells:
        lines.append(f"cells: {len(finding.cells)}, {finding.cells[0]} to {finding.cells[-1]}")
    return Entry(
        name,
        f"{name} {finding.check}",
        finding.severity.value,
        finding.statement,
        tuple(lines),
        finding.severity is Severity.CONTRADICTION,
    )


def _ledger(audit: Audit) -> list[Block]:
    entries = []
    for item, second in zip(audit.claims, audit.second, strict=True):
        entries.append(_claim_entry(item, f"{second.verdict}: {second.detail}"))
    return [Group(f"{len(entries)} claims", tuple(entries), True)]


def _claim_entry(item: Judged, second: str) -> Entry:
    shown = [part.text for part in item.parts[:20]]
    if len(item.parts) > 20:
        holding = len(item.parts) - 20
        shown = [part.text for part in (*item.failing, *item.parts)][:20]
        shown = [*dict.fromkeys(shown), f"and {holding} more parts, in claims.csv"]
    lines = [f"{item.claim.where}; kind {item.claim.kind}; {item.summary}", *shown]
    lines += [f"beside: {part.text}" for part in item.asides]
    note = item.claim.fields.get("note")
    if note:
        lines.append(f"note: {note}")
    lines.append(f"reproduced results: {second}")
    return Entry(
        item.claim.id,
        f"{item.claim.id} {item.verdict.value}",
        VERDICT_CSS[item.verdict],
        item.claim.statement,
        tuple(lines),
        item.verdict is Verdict.CONTRADICTED,
    )
