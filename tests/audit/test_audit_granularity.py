"""The number of runs behind a column, its rounding, and cells that no count prints."""

from __future__ import annotations

from pathlib import Path

from audit_paper_helpers import audit, change, found, invented_copy

from lopd_repro.audit import Severity
from lopd_repro.audit.granularity import fit_column
from lopd_repro.audit.printed import Rounding

# ACEBench multi-step of the paper this project is about: 20 tasks, one decimal
MULTI_STEP = [483, 583, 566, 416, 450, 533, 566, 616, 650, 633, 600, 567, 650, 733]


def test_three_runs_behind_twenty_items() -> None:
    fit = fit_column(MULTI_STEP, items=20, full=1000)
    # 48.3 is no multiple of 1/20 or 1/40; 29/60 = 48.33
    assert (fit.repeats, fit.decisive, fit.total) == (3, True, 60)
    counts = [cell.candidates(fit.plausible) for cell in fit.cells]
    # 48.3 58.3 56.6 41.6 45.0 53.3 56.6 61.6 65.0 63.3 60.0 56.7 65.0 73.3 of 60
    expected = [29, 35, 34, 25, 27, 32, 34, 37, 39, 38, 36, 34, 39, 44]
    assert counts == [(k,) for k in expected]
    # 56.6, 41.6, 56.6, 61.6 can only be cut off, 56.7 only rounded
    assert [c.units for c in fit.cells if c.truncated] == [566, 416, 566, 616]
    assert [c.units for c in fit.cells if c.rounded] == [567]


def test_one_run_is_preferred_to_multiples() -> None:
    # 6/12, 7/12, 9/12, 5/12, 4/12, 8/12 fit 24, 36, ... items as well
    fit = fit_column([500, 583, 750, 417, 333, 667], items=12, full=1000)
    assert (fit.repeats, fit.decisive) == (1, True)


def test_few_cells_do_not_identify_the_runs() -> None:
    # two cells, both multiples of 1/2: twice the runs halves each likelihood, 4 < 20
    fit = fit_column([500, 1000], items=10, full=1000)
    assert not fit.decisive and fit.repeats == 1 and 2 in fit.rivals


def test_a_slip_is_singled_out() -> None:
    units = [483, 583, 566, 416, 450, 533, 545, 616, 650, 633]  # 54.5 for 53.3 or 55.0
    fit = fit_column(units, items=20, full=1000)
    assert fit.repeats == 3 and fit.decisive
    assert [cell.units for cell in fit.cells if not cell.fits] == [545]
    assert fit.excuses == ()


def test_stated_runs_are_kept() -> None:
    fit = fit_column([500, 583], items=12, full=1000, stated_repeats=2)
    assert fit.repeats == 2 and fit.decisive
    assert fit.cells[1].counts[Rounding.HALF_UP] == (14,)  # 14/24 = 58.33


def test_runs_that_were_rounded_first() -> None:
    # one run of 7 items: 1/7 = 14.3, 2/7 = 28.6; their mean 21.45 prints 21.5, but 3/14 = 21.43
    fit = fit_column([215], items=7, full=1000, stated_repeats=2)
    assert not fit.cells[0].fits and fit.cells[0].near and fit.cells[0].shifted == (3,)
    # with 20 items a run prints exactly (multiples of 5.0), so there is nothing to be shifted by
    assert not fit_column([541], items=20, full=1000, stated_repeats=3).cells[0].near
    # and one run is not averaged at all
    assert not fit_column([215], items=7, full=1000, stated_repeats=1).cells[0].near


def test_rounding_of_ties() -> None:
    # k/16 with one decimal: 18.75 -> 18.8 in both, 6.25 -> 6.3 half-up and 6.2 half-even
    fit = fit_column([188, 63, 438, 63], items=16, full=1000, stated_repeats=1)
    assert fit.main is Rounding.HALF_UP
    assert fit.cells[1].roundings == {Rounding.HALF_UP}
    even = fit_column([188, 62, 438, 62], items=16, full=1000, stated_repeats=1)
    # 6.2 is half-even or cut off; 18.8 and 43.8 rule out cutting off
    assert even.main is Rounding.HALF_EVEN


def test_honest_paper_has_no_contradiction() -> None:
    result = audit(Path(__file__).parent / "invented")
    assert not [f for _, f in result.findings if f.severity is Severity.CONTRADICTION]
    assert {c.metric.name: c.fit.repeats for c in result.columns} == {"easy": 1, "hard": 2}
    assert result.counts["scores[Ant,Plain,hard]"].unique == 3  # 3/16 = 18.75
    assert result.counts["scores[Bee,New,easy]"].unique == 8


def test_impossible_cell_is_a_contradiction(tmp_path: Path) -> None:
    folder = invented_copy(tmp_path)
    change(folder, "scores.csv", "Bee,Old,easy,33.3", "Bee,Old,easy,33.9")
    findings = found(audit(folder), "granularity")
    assert [f.cells for f in findings] == [("scores[Bee,Old,easy]",)]
    assert findings[0].severity is Severity.CONTRADICTION
    # 33.9% of 12 is 4.07; 10 runs at most: 41/120 = 34.17 and 40/120 = 33.33 are the nearest
    assert "4/12 = 33.333" in findings[0].evidence and "5/12 = 41.667" in findings[0].evidence


def test_cut_off_cell_and_one_count_printed_twice(tmp_path: Path) -> None:
    folder = invented_copy(tmp_path)
    # 8/12 = 66.67: 66.6 is cut off, while 41.7 = 5/12 in the same column is rounded
    change(folder, "scores.csv", "Bee,New,easy,66.7", "Bee,New,easy,66.6")
    findings = found(audit(folder), "rounding")
    assert [f.cells for f in findings] == [("scores[Bee,New,easy]",)]
    assert findings[0].severity is Severity.DISCREPANCY and "66.7" in findings[0].statement
    change(folder, "scores.csv", "Ant,Old,easy,58.3", "Ant,Old,easy,66.7")
    twice = [f for f in found(audit(folder), "rounding") if len(f.cells) == 2]
    assert len(twice) == 1 and "66.7 and as 66.6" in twice[0].statement


def test_odd_number_of_decimals(tmp_path: Path) -> None:
    folder = invented_copy(tmp_path)
    change(folder, "scores.csv", "Ant,New,easy,75.0", "Ant,New,easy,75.00")
    findings = found(audit(folder), "decimals")
    assert [f.cells for f in findings] == [("scores[Ant,New,easy]",)]
