"""A section of the page, and the parts that many sections use."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from lopd_repro.report.layout import EVERY_LAYOUT
from lopd_repro.report.page.grid import Cell
from lopd_repro.report.page.markup import Content, Html, el, join
from lopd_repro.report.page.results import Results

_METRIC_TITLES = {m.name: m.title for layout in EVERY_LAYOUT.values() for m in layout.metrics}


@dataclass(frozen=True)
class Section:
    """Anchor, title, content, and the navigation's text where that is not the title."""

    anchor: str
    title: str
    body: Content
    short: str = ""

    def html(self) -> Html:
        """The section with its heading."""
        head = el("h2", self.title)
        return el("section", head, self.body, id=self.anchor)


def absent(results: Results, name: str, *, made: bool = True) -> Html:
    """What stands where a result file is not there: that, and what would make it."""
    first = el("p", "Not made in this run.", class_="absent")
    if not made:
        return first
    command = el("code", f"snakemake --cores all {results.path(name)}")
    return el("p", "Not made in this run. ", command, " makes it.", class_="absent")


def sources(results: Results, names: Sequence[str]) -> Html:
    """Links to those of the files that exist."""
    links = [link(results, name) for name in names if results.has(name)]
    return el("p", "Files: ", join(links, ", "), class_="files") if links else Html()


def link(results: Results, name: str, text: str | None = None) -> Html:
    """A link to a result file, relative to the page."""
    return el("a", text or name, href=results.href(name))


def problems(results: Results, name: str) -> Html:
    """What a file of missing things names, folded; nothing where it is empty or absent."""
    lines = results.text(name).splitlines() if results.has(name) else []
    return fold(f"Missing or remarkable ({len(lines)})", bullets(lines)) if lines else Html()


def noted(results: Results, name: str) -> Html:
    """The notes under the Markdown form of a table: data, scorers, floors, what is missing."""
    lines = results.text(name).splitlines() if results.has(name) else []
    notes = [line[2:] for line in lines if line.startswith("- ")]
    return fold("Data, scorers and remarks", bullets(notes)) if notes else Html()


def measured(value: str, interval: str, reported: str) -> Cell:
    """A measured value over its interval and the paper's number; an empty one says so."""
    paper = [el("span", f"paper {reported}", class_="paper")] if reported else []
    if not value:
        return Cell("not measured", tuple(paper), "empty")
    return Cell(value, tuple(filter(None, [interval, *paper])))


def metric_title(name: str) -> str:
    """A metric's printed name."""
    return _METRIC_TITLES.get(name, name)


def fold(title: Content, *body: Content, open_: bool = False) -> Html:
    """Content under a line that opens it."""
    return el("details", el("summary", title), body, open=open_)


def chip(text: str, kind: str) -> Html:
    """A short verdict on a tinted ground."""
    return el("span", text, class_=f"chip {kind}")


def bullets(items: Iterable[Content]) -> Html:
    """A list; nothing where there is no item."""
    made = [el("li", item) for item in items]
    return el("ul", made) if made else Html()
