"""Tables in a box of their own that scrolls sideways under a first column that stays in view."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from lopd_repro.report.page.markup import Content, Html, el


@dataclass(frozen=True)
class Cell:
    """A cell: its text, smaller lines below it, and a style class."""

    main: Content
    below: tuple[Content, ...] = ()
    css: str = ""


@dataclass(frozen=True)
class Column:
    """A column's title; text is set to the left, numbers to the right."""

    title: str
    text: bool = False


@dataclass(frozen=True)
class Band:
    """A row that heads the rows below it."""

    title: str


Row: TypeAlias = "Band | Sequence[Cell | str]"


def grid(label: str, columns: Sequence[Column], rows: Iterable[Row], *, wrap: bool = False) -> Html:
    """The table. `label` names it to screen readers; `wrap` lets text cells break into lines."""
    head = el(
        "tr",
        [
            el("th", c.title, scope="col", class_="text" if c.text or n == 0 else None)
            for n, c in enumerate(columns)
        ],
    )
    body = [_row(columns, row) for row in rows]
    table = el("table", el("thead", head), el("tbody", body), class_="wrap" if wrap else None)
    return el("div", table, class_="scroll", tabindex=0, role="region", aria_label=label)


def _row(columns: Sequence[Column], row: Row) -> Html:
    if isinstance(row, Band):
        title = el("span", row.title)
        return el("tr", el("th", title, colspan=len(columns), scope="rowgroup"), class_="band")
    pairs = zip(columns, row, strict=True)
    return el("tr", [_cell(c, cell, n == 0) for n, (c, cell) in enumerate(pairs)])


def _cell(column: Column, cell: Cell | str, first: bool) -> Html:
    if isinstance(cell, str):
        cell = Cell(cell)
    css = " ".join(filter(None, ["text" if column.text or first else "", cell.css])) or None
    content = [cell.main, *(el("small", line) for line in cell.below)]
    if first:
        return el("th", content, scope="row", class_=css)
    return el("td", content, class_=css)
