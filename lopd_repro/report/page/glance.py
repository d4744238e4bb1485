"""The few facts at the top of the page, each from a result file that is there."""

from __future__ import annotations

from collections.abc import Iterator

from lopd_repro.report.page.audit import PRINTED, counts
from lopd_repro.report.page.budget import claim_verdict
from lopd_repro.report.page.comparisons import FILES, MAIN, tally
from lopd_repro.report.page.controls import first_sentences
from lopd_repro.report.page.costs import headline, read_jobs
from lopd_repro.report.page.markdown import inline
from lopd_repro.report.page.markup import Content, Html, el
from lopd_repro.report.page.results import Results
from lopd_repro.report.page.settings import PageSettings


def glance(results: Results, settings: PageSettings) -> Html:
    """A list of facts; each ends in a link to its section."""
    items = [
        el("li", content, " ", el("a", "More", href=f"#{anchor}", aria_label=f"More: {anchor}"))
        for anchor, content in _facts(results, settings)
    ]
    return el("ul", items, class_="glance") if items else Html()


def _facts(results: Results, settings: PageSettings) -> Iterator[tuple[str, Content]]:
    verdict = first_sentences(results)
    if verdict:
        yield "controls", inline(verdict)
    if results.has("budget.csv"):
        sentence = claim_verdict(results.rows("budget.csv"), settings)
        if sentence:
            yield "budget", f"The paper's claim of a small rollout budget: {sentence}"
    for name, domain in FILES.items():
        if results.has(name):
            found = tally(results.rows(name), MAIN)
            total = sum(found.values())
            if total:
                yield (
                    "comparisons",
                    f"{settings.label(MAIN)} against each other method, {domain}, all metrics and"
                    f" backbones: higher in {found['higher']} of {total} comparisons, lower in"
                    f" {found['lower']}, undecided in {found['undecided']}.",
                )
    if results.has(f"{PRINTED}/findings.csv"):
        rows = results.rows(f"{PRINTED}/findings.csv")
        yield "audit", f"The paper's printed numbers alone: {counts(rows)}."
    jobs = list(read_jobs(results))
    if jobs:
        yield "costs", f"Cost: {headline(jobs)}."
