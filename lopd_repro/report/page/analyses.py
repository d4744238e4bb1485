"""Table 3, controls and diagnostics."""

from __future__ import annotations

from lopd_repro.report.page.listing import Listing, listing
from lopd_repro.report.page.markup import Content
from lopd_repro.report.page.results import Results
from lopd_repro.report.page.section import Section, absent, sources
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
