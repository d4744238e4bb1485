"""Paired comparisons: LOPD against every method first, then all pairs, folded by metric."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from lopd_repro.report.page.grid import Band, Cell, Column, Row, grid
from lopd_repro.report.page.markup import Content, Html, el
from lopd_repro.report.page.numbers import number, span
from lopd_repro.report.page.results import Results
from lopd_repro.report.page.section import Section, absent, fold, metric_title, sources
from lopd_repro.report.page.settings import PageSettings

MAIN = "lopd"
FILES = {
    "comparisons.csv": "tool use",
    "comparisons2.csv": "code",
    "comparisons_humaneval.csv": "HumanEval",
}

# method_a and method_b of a comparison are in no particular order; a pair is looked up as (row,
# column), and the sign and the verdict turn with it.
Pair = tuple[str, str]
_HIGHER, _LOWER = "▲", "▼"


def comparisons_section(results: Results, settings: PageSettings) -> Section:
    """Every table's comparisons; each file's own rows, nothing is tested anew."""
    present = [name for name in FILES if results.has(name)]
    if not present:
        return Section("comparisons", "Comparisons", absent(results, "comparisons.csv"))
    body: list[Content] = [
        el(
            "p",
            "Differences are paired by task and seed, in points. ",
            f"{_HIGHER} and {_LOWER} mark those whose p-value, after Holm's correction within a"
            " metric and backbone, is below 0.05 and whose 95% interval leaves out 0.",
        )
    ]
    for name in present:
        body += _file(results, settings, name)
    return Section("comparisons", "Comparisons", [*body, sources(results, present)])


def tally(rows: Sequence[Mapping[str, str]], method: str) -> dict[str, int]:
    """How often a method is significantly higher or lower than another, or neither."""
    found = {"higher": 0, "lower": 0, "undecided": 0}
    for row in rows:
        if method in (row["method_a"], row["method_b"]):
            mark = _mark(row, method == row["method_a"])
            key = {_HIGHER: "higher", _LOWER: "lower"}.get(mark, "undecided")
            if row["verdict"] != "incomplete":
                found[key] += 1
    return found


def _file(results: Results, settings: PageSettings, name: str) -> Iterator[Content]:
    rows = results.rows(name)
    methods = list(dict.fromkeys(m for row in rows for m in (row["method_a"], row["method_b"])))
    yield el("h3", f"Comparisons of {FILES[name]}")
    if MAIN in methods:
        rivals = [method for method in methods if method != MAIN]
        label = f"{settings.label(MAIN)} minus each method"
        yield el("p", el("strong", label))
        yield grid(label, *_main_grid(rows, settings, rivals))
    backbones = dict.fromkeys(row["backbone"] for row in rows)
    for backbone in backbones:
        own = [row for row in rows if row["backbone"] == backbone]
        matrices = [
            _matrix(own, settings, metric) for metric in dict.fromkeys(row["metric"] for row in own)
        ]
        decided = sum(row["verdict"] in ("a_higher", "b_higher") for row in own)
        yield fold(
            f"All pairs, {settings.backbone_label(backbone)}: {decided} of {len(own)} decided",
            matrices,
        )


def _main_grid(
    rows: Sequence[Mapping[str, str]], settings: PageSettings, rivals: Sequence[str]
) -> tuple[list[Column], list[Row]]:
    columns = [Column("Metric"), *(Column(settings.label(rival)) for rival in rivals)]
    lines: list[Row] = []
    for backbone in dict.fromkeys(row["backbone"] for row in rows):
        lines.append(Band(settings.backbone_label(backbone)))
        own = [row for row in rows if row["backbone"] == backbone]
        for metric in dict.fromkeys(row["metric"] for row in own):
            pairs = _pairs(row for row in own if row["metric"] == metric)
            cells = [_cell(pairs.get((MAIN, rival)), interval=True) for rival in rivals]
            lines.append([metric_title(metric), *cells])
    return columns, lines


def _matrix(rows: Sequence[Mapping[str, str]], settings: PageSettings, metric: str) -> Html:
    own = [row for row in rows if row["metric"] == metric]
    methods = list(dict.fromkeys(m for row in own for m in (row["method_a"], row["method_b"])))
    pairs = _pairs(own)
    columns = [Column("Row minus column"), *(Column(settings.label(m)) for m in methods)]
    lines: list[Row] = [
        [settings.label(first), *(_cell(pairs.get((first, second))) for second in methods)]
        for first in methods
    ]
    title = metric_title(metric)
    decided = sum(row["verdict"] in ("a_higher", "b_higher") for row in own)
    return fold(f"{title}: {decided} of {len(own)} decided", grid(title, columns, lines))


def _pairs(rows: Iterator[Mapping[str, str]] | Sequence[Mapping[str, str]]) -> dict[Pair, Row2]:
    pairs: dict[Pair, Row2] = {}
    for row in rows:
        pairs[row["method_a"], row["method_b"]] = (row, True)
        pairs[row["method_b"], row["method_a"]] = (row, False)
    return pairs


Row2 = tuple[Mapping[str, str], bool]


def _cell(found: Row2 | None, *, interval: bool = False) -> Cell:
    if found is None:
        return Cell("", css="empty")
    row, forward = found
    if row["verdict"] == "incomplete":
        return Cell("incomplete", css="empty")
    difference, low, high = (
        row["difference"] if forward else _negated(row["difference"]),
        row["ci_low"] if forward else _negated(row["ci_high"]),
        row["ci_high"] if forward else _negated(row["ci_low"]),
    )
    mark = _mark(row, forward)
    css = {_HIGHER: "higher", _LOWER: "lower"}.get(mark, "")
    below = (span(low, high, 1, sign=True),) if interval else ()
    return Cell(number(difference, 1, sign=True) + mark, below, css)


def _mark(row: Mapping[str, str], forward: bool) -> str:
    if row["verdict"] not in ("a_higher", "b_higher"):
        return ""
    return _HIGHER if (row["verdict"] == "a_higher") == forward else _LOWER


def _negated(value: str) -> str:
    return value[1:] if value.startswith("-") else f"-{value}"
