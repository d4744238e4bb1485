"""Tables of the analyses as rows of text, checked for the columns that a picture needs."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

from lopd_repro.errors import UserError

Row = dict[str, str]


def read_table(path: Path, needed: Sequence[str]) -> list[Row]:
    """Rows of a CSV; a missing file or column is a `UserError`."""
    try:
        with path.open(newline="") as file:
            reader = csv.DictReader(file)
            missing = [name for name in needed if name not in (reader.fieldnames or ())]
            if missing:
                raise UserError(f"{path}: has no column {missing[0]!r}")
            return list(reader)
    except (OSError, csv.Error) as error:
        raise UserError(f"{path}: cannot be read ({error})") from None


def number(row: Row, name: str, path: Path) -> float | None:
    """A cell's number, None if it is empty."""
    try:
        return float(row[name]) if row[name] else None
    except ValueError:
        raise UserError(f"{path}: {name} = {row[name]!r}, allowed: a number or nothing") from None


def short(label: str) -> str:
    """A variant's label without the method that all of them are."""
    return label.removeprefix("LOPD, ") if label != "LOPD" else label
