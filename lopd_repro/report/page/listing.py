"""Any of our CSV files as a table: intervals and deviations below the number they belong to."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from lopd_repro.report.page.grid import Band, Cell, Column, Row, grid
from lopd_repro.report.page.markup import Content, Html, el
from lopd_repro.report.page.numbers import as_float, number, span
from lopd_repro.report.page.settings import PageSettings

_BELONGING = ("_std", "_ci_low", "_ci_high", "_reported")
_NAMES_OF_METHODS = ("method", "method_a", "method_b", "rival", "control", "against")


@dataclass(frozen=True)
class Listing:
    """How a file's rows are shown.

    titles: printed names of columns; a column without one is shown under its own name.
    hidden: columns left to the CSV. bands: a column whose changes head groups of rows.
    places: decimals by column, for columns that are not shown as they stand.
    interval_of: the column that plain `std`, `ci_low` and `ci_high` belong to.
    """

    titles: Mapping[str, str]
    hidden: Collection[str] = ()
    bands: str = ""
    places: Mapping[str, int] | None = None
    interval_of: str = ""
    signed: Collection[str] = ()


def listing(
    label: str, rows: Sequence[Mapping[str, str]], settings: PageSettings, how: Listing
) -> Html:
    """The rows as a table, empty columns left out."""
    if not rows:
        return el("p", "The file has no rows.", class_="absent")
    shown = [c for c in rows[0] if _is_shown(c, rows, how)]
    numeric = {c for c in shown if all(not r[c] or as_float(r[c]) is not None for r in rows)}
    columns = [Column(how.titles.get(c, c.replace("_", " ")), c not in numeric) for c in shown]
    return grid(label, columns, _rows(rows, shown, settings, how), wrap=True)


def _is_shown(column: str, rows: Sequence[Mapping[str, str]], how: Listing) -> bool:
    if column in how.hidden or column in ("scale", how.bands):
        return False
    names = rows[0]
    if how.interval_of in names and column in ("std", "ci_low", "ci_high"):
        return False
    belongs = any(column.endswith(end) and column[: -len(end)] in names for end in _BELONGING)
    return not belongs and any(row[column] for row in rows)


def _rows(
    rows: Sequence[Mapping[str, str]],
    shown: Sequence[str],
    settings: PageSettings,
    how: Listing,
) -> Iterator[Row]:
    last = None
    for row in rows:
        if how.bands and row.get(how.bands) != last:
            last = row.get(how.bands, "")
            yield Band(_named(how.bands, last, settings))
        yield [_cell(row, column, settings, how) for column in shown]


def _cell(row: Mapping[str, str], column: str, settings: PageSettings, how: Listing) -> Cell:
    places = (how.places or {}).get(column)
    sign = column in how.signed
    own = "" if column == how.interval_of else f"{column}_"
    value = _named(column, row[column], settings)
    if as_float(value) is not None:
        value = number(value, places, sign=sign)
    std = row.get(f"{own}std", "")
    below: list[Content] = []
    if own or column == how.interval_of:
        if value and std:
            value += f" ± {number(std, places)}"
        interval = span(row.get(f"{own}ci_low"), row.get(f"{own}ci_high"), places, sign=sign)
        if interval:
            below.append(interval)
    printed = row.get(f"{column}_reported", "")
    if printed:
        below.append(el("span", f"paper {number(printed)}", class_="paper"))
    return Cell(value, tuple(below))


def _named(column: str, value: str, settings: PageSettings) -> str:
    if column in _NAMES_OF_METHODS:
        return settings.label(value)
    return settings.backbone_label(value) if column == "backbone" else value
