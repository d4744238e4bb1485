"""The page: headline, navigation, sections."""

from __future__ import annotations

from collections.abc import Sequence

from lopd_repro.report.layout import EVERY_LAYOUT, TABLE1, TABLE2, Layout
from lopd_repro.report.page.audit import audit_section
from lopd_repro.report.page.budget import budget_section
from lopd_repro.report.page.comparisons import comparisons_section
from lopd_repro.report.page.controls import controls_section
from lopd_repro.report.page.costs import costs_section
from lopd_repro.report.page.diagnostics import diagnostics_section
from lopd_repro.report.page.environment import environment_section
from lopd_repro.report.page.figures import FIGURES, figure_section
from lopd_repro.report.page.glance import glance
from lopd_repro.report.page.markup import Html, el
from lopd_repro.report.page.results import Results
from lopd_repro.report.page.run import run_section
from lopd_repro.report.page.section import Section
from lopd_repro.report.page.selection import selection_section
from lopd_repro.report.page.settings import PageSettings
from lopd_repro.report.page.style import STYLE
from lopd_repro.report.page.table3 import table3_section
from lopd_repro.report.page.tables import Reported, table_section

PAPER = "https://arxiv.org/abs/2608.13040"


def page_html(results: Results, settings: PageSettings, reported: Reported) -> str:
    """The whole page. `reported` has the paper's digits by (backbone, method, metric)."""
    runs = list(results.manifests())
    sections = [
        run_section(results, settings, runs),
        *(table_section(results, settings, layout, reported) for layout in _layouts(results)),
        table3_section(results, settings),
        *(figure_section(results, figure) for figure in FIGURES),
        comparisons_section(results, settings),
        selection_section(results, settings),
        controls_section(results, settings),
        diagnostics_section(results, settings),
        budget_section(results, settings),
        audit_section(results),
        costs_section(results, settings),
        environment_section(results, runs),
    ]
    title = f"LOPD and its baselines, {settings.scale} scale"
    head = el(
        "head",
        el("meta", charset="utf-8"),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("title", title),
        el("style", Html(STYLE)),
    )
    main = el(
        "main",
        _header(title, results, settings),
        (section.html() for section in sections),
        el("footer", "Made by lopd-repro from the files it links to; every number is theirs."),
    )
    page = el("div", _side(sections), _menu(sections), main, class_="page")
    return "<!doctype html>\n" + el("html", head, el("body", page), lang="en")


def _layouts(results: Results) -> list[Layout]:
    """The paper's tables of scores, and other tables that a run made."""
    papers = [TABLE1, TABLE2]
    others = [x for x in EVERY_LAYOUT.values() if x not in papers and results.has(f"{x.name}.csv")]
    return [*papers, *others]


def _header(title: str, results: Results, settings: PageSettings) -> Html:
    seeds = ", ".join(map(str, settings.seeds))
    about = el(
        "p",
        "A reproduction of Latent On-Policy Self-Distillation (",
        el("a", "arXiv 2608.13040", href=PAPER),
        f"): seeds {seeds}, choices of the preset {settings.preset!r}.",
    )
    notice = el("p", settings.notice, class_="notice")
    return el("header", el("h1", title), notice, about, glance(results, settings), id="top")


def _links(sections: Sequence[Section]) -> Html:
    items = [
        el("li", el("a", section.short or section.title, href=f"#{section.anchor}"))
        for section in sections
    ]
    return el("ul", el("li", el("a", "At a glance", href="#top")), items)


def _side(sections: Sequence[Section]) -> Html:
    return el("nav", _links(sections), class_="side", aria_label="Sections")


def _menu(sections: Sequence[Section]) -> Html:
    """The navigation of narrow screens. It closes on a choice where scripts run, and by hand
    where they do not."""
    links = el("nav", _links(sections), aria_label="Sections")
    return el(
        "details",
        el("summary", "Contents"),
        links,
        class_="menu",
        onclick="if (event.target.tagName === 'A') this.open = false",
    )
