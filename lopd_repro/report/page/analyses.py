"""Table 3, controls and diagnostics."""

from __future__ import annotations

from lopd_repro.report.page.figures import framed
from lopd_repro.report.page.listing import Listing, listing
from lopd_repro.report.page.markdown import markdown
from lopd_repro.report.page.markup import Content, el
from lopd_repro.report.page.results import Results
from lopd_repro.report.page.section import Section, absent, fold, sources
from lopd_repro.report.page.settings import PageSettings


def table3_section(results: Results, settings: PageSettings) -> Section:
    """Behaviour on EnvScaler."""
    title = "Table 3: behaviour"
    if not results.has("table3.csv"):
        return Section("table3", title, absent(results, "table3.csv"))
    body: list[Content] = [
        listing(title, results.rows("table3.csv"), settings, Listing({})),
        sources(results, [f"table3.{end}" for end in ("csv", "html", "md", "log")]),
    ]
    return Section("table3", title, body)


def controls_section(results: Results, settings: PageSettings) -> Section:
    """The verdict in words, the picture, the paired differences."""
    title = "Controls"
    if not results.has("controls.csv"):
        return Section("controls", title, absent(results, "controls.csv"))
    body: list[Content] = []
    if results.has("controls_verdict.md"):
        body.append(el("div", markdown(results.text("controls_verdict.md")), class_="verdict"))
    if results.has("controls.png"):
        alt = "Controls against LOPD: paired differences with 95% intervals."
        body.append(el("figure", framed(results, "controls.png", alt)))
    rows = results.rows("controls.csv")
    body.append(listing(title, rows, settings, Listing({})))
    files = ["controls.csv", "controls.png", "controls.pdf", "controls_verdict.md"]
    return Section("controls", title, [*body, sources(results, files)])


def diagnostics_section(results: Results, settings: PageSettings) -> Section:
    """Flags, and the curves of the margin constraint."""
    title = "Margin diagnostics"
    if not results.has("diagnostics_summary.csv"):
        return Section("diagnostics", title, absent(results, "diagnostics.csv"))
    body: list[Content] = []
    if results.has("diagnostics.png"):
        alt = "Curves of Delta, beta and the share of tokens at or above the margin, over steps."
        body.append(el("figure", framed(results, "diagnostics.png", alt)))
    rows = results.rows("diagnostics_summary.csv")
    body.append(fold("Summary by run", listing(title, rows, settings, Listing({})), open_=True))
    files = ["diagnostics_summary.csv", "diagnostics.csv", "diagnostics.png", "diagnostics.pdf"]
    return Section("diagnostics", title, [*body, sources(results, files)])
