"""A figure's points: one row of its CSV each, measured by us or printed by the paper.

Scores and their bounds are on a scale of 0 to 100 whatever the paper's axis is; `printed` keeps
the paper's own digits.
"""

from __future__ import annotations

import csv
import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lopd_repro.errors import UserError

MEASURED, PAPER = "measured", "paper"
VALIDATION, TEST = "validation", "test"


@dataclass(frozen=True)
class Point:
    """One point. Empty numbers are None: a measured one without `value` was not measured whole.

    `x` is text as it is on the axis ("0.05", "frozen", "320"). `backbone` is the paper's for its
    points, which have no `scale`. `split` is empty where the paper does not say. `bound_low` and
    `bound_high` hold a printed bound (`>0.61`: only low) or range; `value` is empty then.
    """

    figure: str
    scale: str
    backbone: str
    panel: str
    series: str
    label: str
    x: str
    metric: str
    split: str
    method: str
    value: float | None = None
    std: float | None = None
    ci_low: float | None = None
    ci_high: float | None = None
    n_seeds: int | None = None
    source: str = MEASURED
    bound_low: float | None = None
    bound_high: float | None = None
    printed: str = ""
    read_from: str = ""

    @property
    def measured(self) -> bool:
        """Whether this is a point of ours."""
        return self.source == MEASURED


@dataclass
class FigureData:
    """Points in the order of the CSV, and what is missing and why."""

    points: list[Point] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


COLUMNS = tuple(f.name for f in dataclasses.fields(Point))
_NUMBERS = ("value", "std", "ci_low", "ci_high", "bound_low", "bound_high")


def rows(points: Iterable[Point]) -> list[dict[str, Any]]:
    """Points as CSV rows."""
    return [dataclasses.asdict(point) for point in points]


def read_points(path: Path) -> list[Point]:
    """The points of a figure's CSV; a file in another form is a `UserError`."""
    try:
        with path.open(newline="") as file:
            reader = csv.DictReader(file)
            if tuple(reader.fieldnames or ()) != COLUMNS:
                raise UserError(f"{path}: found other columns, allowed: {', '.join(COLUMNS)}")
            return [_point(row) for row in reader]
    except (OSError, ValueError, TypeError) as error:
        raise UserError(f"{path}: not a figure's points ({error})") from None


def _point(row: dict[str, str]) -> Point:
    values: dict[str, Any] = dict(row)
    for name in _NUMBERS:
        values[name] = float(row[name]) if row[name] else None
    values["n_seeds"] = int(row["n_seeds"]) if row["n_seeds"] else None
    return Point(**values)
