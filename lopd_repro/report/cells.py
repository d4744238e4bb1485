"""CSV files of the report: the paper's cells in, our rows out."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

from lopd_repro.errors import UserError


def read_reported(path: Path) -> dict[tuple[str, str, str], str]:
    """The paper's cells as printed, by (backbone, method, metric)."""
    try:
        with path.open(newline="") as file:
            rows = list(csv.DictReader(file))
        for row in rows:
            float(row["value"])
        return {(r["backbone"], r["method"], r["metric"]): r["value"] for r in rows}
    except (OSError, KeyError, ValueError) as error:
        raise UserError(f"{path}: not a table of reported cells ({error!r})") from None


def csv_text(columns: list[str], rows: list[dict[str, Any]]) -> str:
    """CSV with numbers to four places; an empty cell is empty."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    for row in rows:
        writer.writerow([_cell(row.get(column)) for column in columns])
    return text.getvalue()


def _cell(value: Any) -> Any:
    if value is None:
        return ""
    return f"{value:.4f}" if isinstance(value, float) else value
