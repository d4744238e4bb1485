"""The invented paper of these tests, and ways to change it."""

from __future__ import annotations

import csv
import shutil
from pathlib import Path

from lopd_repro.audit import Audit, Finding, Severity, audit_paper, read_paper

INVENTED = Path(__file__).parent / "invented"
REAL = Path(__file__).parents[2] / "paper_tables"


def invented_copy(folder: Path) -> Path:
    """A copy of the invented paper that a test may change."""
    target = folder / "paper"
    shutil.copytree(INVENTED, target)
    return target


def change(folder: Path, file: str, old: str, new: str) -> None:
    """Replace a text that stands exactly once in a file."""
    path = folder / file
    text = path.read_text()
    assert text.count(old) == 1, f"{old!r} stands {text.count(old)} times in {file}"
    path.write_text(text.replace(old, new))


def audit(folder: Path, results: Path | None = None) -> Audit:
    """Read and audit a folder."""
    return audit_paper(read_paper(folder), results)


def found(result: Audit, check: str, *severities: Severity) -> list[Finding]:
    """Findings of one check, of some severities or of all."""
    return [
        f
        for _, f in result.findings
        if f.check == check and (not severities or f.severity in severities)
    ]


def write_rows(path: Path, rows: list[dict[str, object]]) -> None:
    """Write a CSV file with the columns of its first row."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as handle:
        writer = csv.DictWriter(handle, list(rows[0]), restval="")
        writer.writeheader()
        writer.writerows(rows)
