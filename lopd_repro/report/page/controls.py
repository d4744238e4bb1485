"""Controls: the decisive verdict in words, the picture, the paired differences."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from lopd_repro.report.page.figures import framed
from lopd_repro.report.page.grid import Cell, Column, Row, grid
from lopd_repro.report.page.markdown import markdown
from lopd_repro.report.page.markup import Content, el
from lopd_repro.report.page.numbers import as_float, number, span
from lopd_repro.report.page.results import Results
from lopd_repro.report.page.section import Section, absent, chip, problems, sources
from lopd_repro.report.page.settings import PageSettings

VERDICT = "controls_verdict.md"
_VERDICTS = {
    "lopd_higher": ("LOPD higher", "ok"),
    "control_higher": ("control higher", "discrepancy"),
    "undecided": ("undecided", "caution"),
    "incomplete": ("not measured whole", "info"),
}
_COLUMNS = [
    Column("Control"),
    Column("Its score"),
    Column("LOPD minus control"),
    Column("p, Holm"),
    Column("Verdict", text=True),
    Column("Control minus untrained"),
    Column("Share of LOPD's lead kept"),
]


def controls_section(results: Results, settings: PageSettings) -> Section:
    """All controls on one backbone."""
    if not results.has("controls.csv"):
        return Section("controls", "Controls", absent(results, "controls.csv"))
    rows = results.rows("controls.csv")
    body: list[Content] = []
    if results.has(VERDICT):
        body.append(el("div", markdown(results.text(VERDICT)), class_="verdict"))
    if results.has("controls.png"):
        alt = "Controls against LOPD: paired differences in test score with 95% intervals."
        body.append(el("figure", framed(results, "controls.png", alt)))
    body.append(el("p", _about(rows, settings)))
    body.append(grid("Controls", _COLUMNS, _rows(rows)))
    body.append(problems(results, "controls.log"))
    files = ["controls.csv", "controls.pdf", "controls.png", VERDICT, "controls.log"]
    return Section("controls", "Controls", [*body, sources(results, files)])


def first_sentences(results: Results) -> str:
    """The verdict and the numbers behind it, without what follows from them; Markdown."""
    if not results.has(VERDICT):
        return ""
    paragraph = " ".join(results.text(VERDICT).split("\n\n")[0].split())
    sentences = re.split(r"(?:(?<=\.)|(?<=\.\*\*))\s+(?=[A-Z*])", paragraph)
    return " ".join(sentences[:2])


def _about(rows: Sequence[Mapping[str, str]], settings: PageSettings) -> str:
    first = next((row for row in rows if row["lopd"]), None)
    scored = ""
    if first is not None:
        scored = (
            f" {settings.label('lopd')} itself scores {_score(first, 'lopd', 'lopd_std')} there,"
            f" on {first['n_tasks']} test tasks."
        )
    backbones = " and ".join(
        settings.backbone_label(name) for name in dict.fromkeys(row["backbone"] for row in rows)
    )
    return (
        "The same training with one thing taken away or changed, on EnvScaler test tasks with"
        f" {backbones}; differences are paired by task and seed, in points, with 95% intervals."
        f" 'Undecided' is not 'equal'.{scored}"
    )


def _rows(rows: Sequence[Mapping[str, str]]) -> Iterator[Row]:
    for row in rows:
        text, kind = _VERDICTS.get(row["verdict"], (row["verdict"], "info"))
        yield [
            row["label"],
            _score(row, "control_score", "control_std"),
            Cell(number(row["difference"], 2, sign=True), _interval(row, ""), "key"),
            number(row["p_holm"]),
            Cell(chip(text, kind)),
            Cell(number(row["over_vanilla"], 2, sign=True), _interval(row, "over_vanilla_")),
            _percent(row["gain_kept"]),
        ]


def _score(row: Mapping[str, str], name: str, std: str) -> str:
    shown = number(row[name], 1)
    return f"{shown} ± {number(row[std], 1)}" if shown and row[std] else shown


def _interval(row: Mapping[str, str], name: str) -> tuple[str, ...]:
    found = span(row[f"{name}ci_low"], row[f"{name}ci_high"], 2, sign=True)
    return (found,) if found else ()


def _percent(share: str) -> str:
    value = as_float(share)
    return share if value is None else f"{100 * value:.0f}%"
