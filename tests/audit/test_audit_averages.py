"""Averages from their parts."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

from audit_paper_helpers import INVENTED, audit, change, found, invented_copy

from lopd_repro.audit import Severity
from lopd_repro.audit.averages import Reading
from lopd_repro.audit.printed import Rounding


def test_weights_and_exact_average() -> None:
    fit = audit(INVENTED).averages[0]
    assert fit.best == Reading("counts", "items", Rounding.HALF_UP)
    row = next(r for r in fit.rows if r.cell.ref == "scores[Ant,Plain,mean]")
    # (12 * 6/12 + 8 * 3/16) / 20 = 7.5 / 20
    assert fit.exact_of(row) == (Fraction("37.5"), Fraction("37.5"))
    # (50.0 + 18.75) / 2
    assert row.exact["equal"] == (Fraction("34.375"), Fraction("34.375"))
    # (12 * 50.0 + 8 * 18.8) / 20 = 37.52
    assert row.from_printed["items"] == Fraction("37.52")
    assert fit.explained[Reading("counts", "equal", Rounding.HALF_UP)] == 0


def test_average_that_no_reading_gives(tmp_path: Path) -> None:
    folder = invented_copy(tmp_path)
    # the hard set has 2 runs, so up to 2 units are excused by runs that were rounded first
    change(folder, "scores.csv", "Ant,Old,mean,47.5", "Ant,Old,mean,48.5")
    findings = found(audit(folder), "averages", Severity.CONTRADICTION)
    assert [f.cells[0] for f in findings] == ["scores[Ant,Old,mean]"]
    assert "47.500" in findings[0].evidence


def test_stated_weights_that_were_not_used(tmp_path: Path) -> None:
    folder = invented_copy(tmp_path)
    change(folder, "protocol.yaml", "weights: items", "weights: equal")
    findings = found(audit(folder), "averages", Severity.DISCREPANCY)
    assert any("although weights by 'equal' are stated" in f.statement for f in findings)


def test_average_of_rounded_parts(tmp_path: Path) -> None:
    folder = invented_copy(tmp_path)
    # Bee Plain: exact (500 + 50)/20 = 27.50; the printed parts give (500.4 + 50.4)/20 = 27.54.
    # Both print 27.5, so three rows are changed to what only the printed parts give: with one
    # decimal and these sizes no row can differ; with two decimals 27.54 against 27.50 does.
    text = (folder / "scores.csv").read_text()
    new = {
        # (12 * 50.0 + 8 * 18.8) / 20, and so on for every row
        "Ant,Plain,mean,37.5": "Ant,Plain,mean,37.52",
        "Ant,Old,mean,47.5": "Ant,Old,mean,47.50",  # (12 * 58.3 + 8 * 31.3) / 20
        "Ant,New,mean,62.5": "Ant,New,mean,62.52",
        "Bee,Plain,mean,27.5": "Bee,Plain,mean,27.54",
        "Bee,Old,mean,47.5": "Bee,Old,mean,47.50",
        "Bee,New,mean,62.5": "Bee,New,mean,62.54",
    }
    for old, by in new.items():
        assert text.count(old) == 1
        text = text.replace(old, by)
    (folder / "scores.csv").write_text(text)
    result = audit(folder)
    assert result.averages[0].best.source == "printed"
    assert result.averages[0].explained[result.averages[0].best] == 6
    off = found(result, "averages", Severity.DISCREPANCY)
    assert {f.cells[0] for f in off} == {
        "scores[Ant,Plain,mean]",
        "scores[Ant,New,mean]",
        "scores[Bee,Plain,mean]",
        "scores[Bee,New,mean]",
    }
    assert all(f.numbers["exact_prints"] in ("37.50", "62.50", "27.50") for f in off)
