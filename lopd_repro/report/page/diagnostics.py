"""Margin diagnostics: which runs are flagged, the curves, and a summary of each run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from lopd_repro.report.page.figures import framed
from lopd_repro.report.page.grid import Cell, Column, Row, grid
from lopd_repro.report.page.markup import Content, Html, el
from lopd_repro.report.page.numbers import number, span
from lopd_repro.report.page.results import Results
from lopd_repro.report.page.section import Section, absent, bullets, chip, fold, problems, sources
from lopd_repro.report.page.settings import PageSettings

SUMMARY = "diagnostics_summary.csv"
_PICTURES = {
    "diagnostics": "Delta, beta and the share of tokens at or above the margin, over training.",
    "divergence": "Divergence from the teacher by quarter of the trajectory and by outcome, over"
    " training.",
}
_COLUMNS = [
    Column("Run"),
    Column("Flag", text=True),
    Column("m"),
    Column("Delta"),
    Column("Slope per 100 steps"),
    Column("Steps below m"),
    Column("beta"),
    Column("Tokens ≥ m"),
    Column("Divergence"),
    Column("by quarter"),
    Column("of successes, failures"),
]


def diagnostics_section(results: Results, settings: PageSettings) -> Section:
    """LOPD's own runs open, its variants folded."""
    title = "Margin diagnostics"
    if not results.has(SUMMARY):
        return Section("diagnostics", title, absent(results, "diagnostics.csv"))
    rows = results.rows(SUMMARY)
    own = [row for row in rows if row["method"] in settings.methods]
    others = [row for row in rows if row["method"] not in settings.methods]
    body: list[Content] = [
        el(
            "p",
            "The margin constraint over the second half of each run, in nats. A run is flagged"
            " where beta grows, the 95% interval of Delta lies below the margin, and Delta is not"
            " shown to rise: the sign that no composer can meet the margin, or that the policy has"
            " reached its teacher.",
        ),
        el(
            "p",
            el("strong", f"{_flagged(own)} of {settings.label('lopd')}'s own runs"),
            f" and {_flagged(others)} of its controls and other settings are flagged.",
        ),
        _flags(rows),
    ]
    for name, alt in _PICTURES.items():
        if results.has(f"{name}.png"):
            picture = framed(results, f"{name}.png", alt)
            body.append(el("figure", picture, el("figcaption", alt)))
    body.append(grid("Runs of the tables' methods", _COLUMNS, _rows(own)))
    if others:
        heading = f"Controls and other settings ({len(others)} runs)"
        body.append(fold(heading, grid(heading, _COLUMNS, _rows(others))))
    body.append(problems(results, "diagnostics.log"))
    files = [SUMMARY, "diagnostics.csv", "diagnostics.log"]
    files += [f"{name}.{end}" for name in _PICTURES for end in ("pdf", "png")]
    return Section("diagnostics", title, [*body, sources(results, files)])


def _flagged(rows: Sequence[Mapping[str, str]]) -> str:
    judged = [row for row in rows if row["flag"]]
    return f"{sum(row['flag'] == '1' for row in judged)} of {len(judged)}"


def _flags(rows: Sequence[Mapping[str, str]]) -> Html:
    """The flagged runs, by method."""
    seeds: dict[str, list[str]] = {}
    for row in rows:
        if row["flag"] == "1":
            seeds.setdefault(row["label"], []).append(row["seed"])
    items = [f"{label}: seeds {', '.join(own)}" for label, own in seeds.items()]
    return fold("Flagged runs", bullets(items)) if items else Html()


def _rows(rows: Sequence[Mapping[str, str]]) -> Iterator[Row]:
    for row in rows:
        flag = {"1": chip("flagged", "warning"), "0": "no"}.get(row["flag"], "not judged")
        frozen = ("frozen composer",) if row["frozen_composer"] == "1" else ()
        yield [
            Cell(f"{row['label']}, seed {row['seed']}", frozen),
            Cell(flag),
            number(row["margin"]),
            Cell(number(row["delta"], 4), _interval(row, "delta")),
            Cell(number(row["delta_slope_100"], 4), _interval(row, "delta_slope_100")),
            _percent(row["below_margin"]),
            _change(row["beta_first"], row["beta_last"], 2),
            _percent(row["frac_delta_ge_m"], 1),
            _change(row["kl_first_half"], row["kl"], 4),
            _listed(row, *(f"kl_q{n}" for n in range(1, 5))),
            _listed(row, "kl_success", "kl_failure"),
        ]


def _interval(row: Mapping[str, str], name: str) -> tuple[str, ...]:
    found = span(row[f"{name}_ci_low"], row[f"{name}_ci_high"], 4)
    return (found,) if found else ()


def _listed(row: Mapping[str, str], *names: str) -> str:
    shown = [number(row[name], 4) or "none" for name in names]
    return ", ".join(shown) if any(row[name] for name in names) else ""


def _change(first: str, last: str, places: int) -> str:
    return f"{number(first, places)} → {number(last, places)}" if first or last else ""


def _percent(share: str, places: int = 0) -> str:
    return f"{100 * float(share):.{places}f}%" if share else ""
