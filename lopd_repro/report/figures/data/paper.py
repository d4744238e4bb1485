"""The paper's points of a figure."""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from pathlib import Path

from lopd_repro.errors import UserError
from lopd_repro.report.figures.points import PAPER, Point

_NUMBER = r"\d+(?:\.\d+)?"
_FORM = re.compile(rf"(?P<sign>[<>]?)(?P<first>{_NUMBER})(?:-(?P<last>{_NUMBER}))?")


@dataclass(frozen=True)
class Printed:
    """One printed point: a value, or bounds where the text gives no more; 0-100."""

    panel: str
    series: str
    x: str
    value: float | None
    bound_low: float | None
    bound_high: float | None
    printed: str
    read_from: str

    def point(
        self, figure: str, backbone: str, *, series: str, label: str, metric: str, split: str
    ) -> Point:
        """As a point of a figure."""
        return Point(
            figure=figure,
            scale="",
            backbone=backbone,
            panel=self.panel,
            series=series,
            label=label,
            x=self.x,
            metric=metric,
            split=split,
            method="",
            source=PAPER,
            value=self.value,
            bound_low=self.bound_low,
            bound_high=self.bound_high,
            printed=self.printed,
            read_from=self.read_from,
        )


def read_printed(path: Path, unit: float) -> list[Printed]:
    """Rows of a file of reported points; `unit` turns its axis into 0-100 (100 for rewards)."""
    try:
        with path.open(newline="") as file:
            return [_printed(row, unit) for row in csv.DictReader(file)]
    except (OSError, KeyError, ValueError, TypeError) as error:
        raise UserError(f"{path}: not a file of reported points ({error!r})") from None


def _printed(row: dict[str, str], unit: float) -> Printed:
    form = _FORM.fullmatch(row["y"])
    if form is None:
        raise ValueError(f"y = {row['y']!r}, allowed: 0.6, >0.6, <0.6 or 0.6-0.7")
    first, last = float(form["first"]) * unit, form["last"]
    if form["sign"] and last:
        raise ValueError(f"y = {row['y']!r}, allowed: 0.6, >0.6, <0.6 or 0.6-0.7")
    value = low = high = None
    if last:
        low, high = first, float(last) * unit
    elif form["sign"] == ">":
        low = first
    elif form["sign"] == "<":
        high = first
    else:
        value = first
    x = row["x"] if row["x"] == "frozen" else f"{float(row['x']):g}"
    return Printed(row["panel"], row["series"], x, value, low, high, row["y"], row["read_from"])
