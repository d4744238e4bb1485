"""Selection: what validation chose, what choosing on test would have printed, the optimism."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from lopd_repro.report.page.grid import Band, Cell, Column, Row, grid
from lopd_repro.report.page.markup import Content, Html, el
from lopd_repro.report.page.numbers import number, span
from lopd_repro.report.page.results import Results
from lopd_repro.report.page.section import Section, absent, fold, problems, sources
from lopd_repro.report.page.settings import PageSettings

_CHOICES = {
    "margin": "Margin m",
    "latents": "Latents per experience, K",
    "retrieved": "Retrieved experiences",
    "checkpoint": "Checkpoint",
}
_COLUMNS = [
    Column("Choice"),
    Column("Chosen on validation", text=True),
    Column("Its validation score"),
    Column("Its test score"),
    Column("Chosen on test", text=True),
    Column("Printed if chosen on test"),
    Column("Optimism"),
    Column("of it winner's curse"),
    Column("of it real gain"),
]


def selection_section(results: Results, settings: PageSettings) -> Section:
    """Grids and checkpoints; single seeds and single candidates are folded."""
    title = "Selection"
    if not results.has("selection.csv"):
        return Section("selection", title, absent(results, "selection.csv"))
    rows = results.rows("selection.csv")
    summary = [row for row in rows if row["seed"] == "all"]
    single = [row for row in rows if row["seed"] != "all"]
    body: list[Content] = [
        el(
            "p",
            "Checkpoints and settings are chosen on validation tasks. Optimism is what choosing on"
            " the test tasks would have printed above the score of the choice that counts, with a"
            " 95% interval in which the choice is made anew on every draw. Its two parts come from"
            " choosing on one half of the test tasks and scoring on the other. Scores are means,"
            " 0 to 100; checkpoints are training steps, one per seed.",
        ),
        grid(title, _COLUMNS, _rows(summary, settings), wrap=True),
        problems(results, "selection.log"),
        fold("Checkpoints by seed", grid("Checkpoints by seed", _COLUMNS, _rows(single, settings)))
        if single
        else None,
        _candidates([row for row in summary if row["validation_scores"] or row["test_scores"]]),
        _rules(summary),
        sources(results, ["selection.csv", "chosen.json", "selection.log"]),
    ]
    return Section("selection", title, body)


def _rows(rows: Sequence[Mapping[str, str]], settings: PageSettings) -> Iterator[Row]:
    last = None
    for row in rows:
        band = "checkpoint" if row["choice"] == "checkpoint" else "grid"
        if band != last:
            last = band
            yield Band("Checkpoints, by method" if band == "checkpoint" else "Settings of LOPD")
        yield [
            _name(row, settings),
            Cell(_steps(row["chosen_on_validation"]) or "not whole", css=_empty(row)),
            number(row["validation_score"], 1),
            number(row["test_score"], 1),
            _steps(row["chosen_on_test"]),
            number(row["printed_if_chosen_on_test"], 1),
            Cell(number(row["optimism"], 2), _interval(row), "key"),
            number(row["halves_winners_curse"], 2),
            number(row["halves_real_gain"], 2),
        ]


def _name(row: Mapping[str, str], settings: PageSettings) -> Cell:
    if row["choice"] != "checkpoint":
        configured = f"configured: {row['configured']}" if row["configured"] else ""
        return Cell(_CHOICES.get(row["choice"], row["choice"]), (configured,) if configured else ())
    seed = "" if row["seed"] == "all" else f", seed {row['seed']}"
    return Cell(settings.label(row["method"]) + seed)


def _steps(chosen: str) -> str:
    """'seed 0: 40; seed 1: 30' as '40, 30'."""
    return ", ".join(part.split(": ")[-1] for part in chosen.split("; "))


def _empty(row: Mapping[str, str]) -> str:
    return "" if row["chosen_on_validation"] else "empty"


def _interval(row: Mapping[str, str]) -> tuple[str, ...]:
    found = span(row["optimism_ci_low"], row["optimism_ci_high"], 2)
    return (found,) if found else ()


def _candidates(rows: Sequence[Mapping[str, str]]) -> Html | None:
    """Scores of every candidate of the grids."""
    lines: list[Row] = []
    for row in rows:
        validation, test = _scores(row["validation_scores"]), _scores(row["test_scores"])
        names = [name for name in row["candidates"].split("; ") if name]
        lines.append(Band(_CHOICES.get(row["choice"], row["choice"])))
        for name in names:
            lines.append([name, validation.get(name, ""), test.get(name, "")])
    if not lines:
        return None
    columns = [Column("Candidate"), Column("Validation score"), Column("Test score")]
    return fold("Scores of every candidate", grid("Scores of every candidate", columns, lines))


def _scores(listed: str) -> dict[str, str]:
    pairs = [part.split("=", 1) for part in listed.split("; ") if "=" in part]
    return {name: score for name, score in pairs}


def _rules(rows: Sequence[Mapping[str, str]]) -> Html:
    rules: dict[str, str] = {}
    for row in rows:
        if row["rule"]:
            rules.setdefault(row["choice"], row["rule"])
    items = [f"{_CHOICES.get(choice, choice)}: {rule}." for choice, rule in rules.items()]
    return el("ul", [el("li", item) for item in items], class_="fine") if items else Html()
