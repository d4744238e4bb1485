"""Rollout budget: the paper's claim asked again, and what each method needs to reach a rival."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from lopd_repro.report.page.grid import Band, Cell, Column, Row, grid
from lopd_repro.report.page.markup import Content, el
from lopd_repro.report.page.numbers import as_float, number, span
from lopd_repro.report.page.results import Results
from lopd_repro.report.page.section import Section, absent, chip, fold, problems, sources
from lopd_repro.report.page.settings import PageSettings

_VERDICTS = {"supported": "ok", "undecided": "caution", "not supported": "discrepancy"}


def budget_section(results: Results, settings: PageSettings) -> Section:
    """The claim first, then best rivals, then all pairs, folded."""
    title = "Rollout budget"
    if not results.has("budget.csv"):
        return Section("budget", title, absent(results, "budget.csv"))
    rows = results.rows("budget.csv")
    by_kind = {
        kind: [row for row in rows if row["against"] == kind]
        for kind in ("claim", "best rival", "pair")
    }
    body: list[Content] = [
        el(
            "p",
            "Training generations until a run's validation score is at its rival's, in medians over"
            " seeds with bootstrap intervals. Scores are known at validated steps only. A run that"
            " never gets there counts as more than any number.",
        )
    ]
    if by_kind["claim"]:
        body.append(el("h3", "The paper's claim"))
        body.append(grid("The paper's claim", _CLAIM, _claim_rows(by_kind["claim"], settings)))
    for kind, heading in (("best rival", "Against the best rival"), ("pair", "All pairs")):
        if by_kind[kind]:
            table = grid(heading, _PAIR, _pair_rows(by_kind[kind], settings))
            body.append(fold(heading, table, open_=kind == "best rival"))
    body.append(problems(results, "budget.log"))
    return Section("budget", title, [*body, sources(results, ["budget.csv", "budget.log"])])


def claim_verdict(rows: Sequence[Mapping[str, str]], settings: PageSettings) -> str:
    """The claim's verdict over all its rivals, by what is counted, in a sentence; empty if none."""
    found = [r for r in rows if r["against"] == "claim" and ";" in r["rival"] and r["verdict"]]
    if not found:
        return ""
    first = found[0]
    verdicts = ", ".join(f"{row['verdict']} counting {row['counted']}" for row in found)
    return (
        f"{settings.label(first['method'])} surpasses {_names(first['rival'], settings)} with less"
        f" than {_percent(first['limit'])} of their generations: at this scale {verdicts}."
    )


_CLAIM = [
    Column("Rival"),
    Column("Generations"),
    Column("Rival's whole budget"),
    Column("Share"),
    Column("Limit"),
    Column("Seeds that reached it"),
    Column("Verdict", text=True),
]
_PAIR = [
    Column("Method"),
    Column("Rival", text=True),
    Column("Target", text=True),
    Column("Target's score"),
    Column("Generations"),
    Column("Rival's own"),
    Column("Ratio"),
    Column("Seeds that reached it"),
]


def _claim_rows(rows: Sequence[Mapping[str, str]], settings: PageSettings) -> Iterator[Row]:
    last = None
    for row in rows:
        if row["counted"] != last:
            last = row["counted"]
            yield Band(f"{settings.label(row['method'])} {row['criterion']}, counted: {last}")
        verdict = row["verdict"]
        share = _span(row, "share", percent=True)
        yield [
            _names(row["rival"], settings),
            Cell(number(row["generations"], 0), _span(row, "generations")),
            number(row["rival_budget"], 0),
            Cell(_percent(row["share"]), share),
            _percent(row["limit"]),
            _reached(row),
            Cell(chip(verdict, _VERDICTS.get(verdict, "info")) if verdict else ""),
        ]


def _pair_rows(rows: Sequence[Mapping[str, str]], settings: PageSettings) -> Iterator[Row]:
    for row in rows:
        yield [
            settings.label(row["method"]),
            _names(row["rival"], settings),
            row["target"],
            number(row["target_score"], 1),
            Cell(number(row["generations"], 0), _span(row, "generations")),
            number(row["rival_generations"], 0),
            Cell(number(row["ratio"], 2), _span(row, "ratio", places=2)),
            _reached(row),
        ]


def _names(methods: str, settings: PageSettings) -> str:
    return " and ".join(settings.label(name) for name in methods.split("; "))


def _reached(row: Mapping[str, str]) -> str:
    return f"{row['n_reached']} of {row['n_seeds']}" if row["n_reached"] else ""


def _span(
    row: Mapping[str, str], name: str, *, places: int = 0, percent: bool = False
) -> tuple[str, ...]:
    low, high = row[f"{name}_ci_low"], row[f"{name}_ci_high"]
    if as_float(low) is None:
        return ()
    if percent:
        low, high = _percent(low), _percent(high)
    found = span(low, high, places)
    return (found,) if found else ()


def _percent(share: str) -> str:
    value = as_float(share)
    return share if value is None else f"{100 * value:.0f}%"
