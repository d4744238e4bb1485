"""Cross-checks, ratios, extremes, uncertainty, procedure."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from audit_paper_helpers import INVENTED, audit, change, found, invented_copy

from lopd_repro.audit import Severity
from lopd_repro.audit.procedure import expected_maximum


def test_figure_and_table_disagree(tmp_path: Path) -> None:
    folder = invented_copy(tmp_path)
    change(folder, "curve.csv", "New,100,0.625", "New,100,0.652")
    findings = found(audit(folder), "cross-check", Severity.CONTRADICTION)
    assert [f.cells for f in findings] == [("curve[New,100]", "scores[Ant,New,mean]")]


def test_last_digit_may_be_one_number(tmp_path: Path) -> None:
    folder = invented_copy(tmp_path)
    # 0.626 stands for 62.55 to 62.7, 62.5 for 62.45 to 62.6
    change(folder, "curve.csv", "New,100,0.625", "New,100,0.626")
    assert not found(audit(folder), "cross-check", Severity.CONTRADICTION)
    assert len(found(audit(folder), "cross-check", Severity.DISCREPANCY)) == 1


def test_named_other_reading(tmp_path: Path) -> None:
    folder = invented_copy(tmp_path)
    change(folder, "curve.csv", "New,100,0.625", "New,100,0.652")
    change(
        folder,
        "protocol.yaml",
        'check: "curve[New,100] * 100 = scores[Ant,New,mean]"',
        'check: "curve[New,100] * 100 = scores[Ant,New,mean]", other_reading: another point',
    )
    findings = found(audit(folder), "cross-check", Severity.DISCREPANCY)
    assert len(findings) == 1 and "another point" in findings[0].statement


def test_mirror_that_differs(tmp_path: Path) -> None:
    folder = invented_copy(tmp_path)
    change(folder, "code.csv", "depth,New,4", "depth,New,6")
    findings = found(audit(folder), "cross-check", Severity.CONTRADICTION)
    assert [f.cells for f in findings] == [("code[depth,New]", "settings[depth,New]")]


def test_ratio_that_does_not_follow(tmp_path: Path) -> None:
    folder = invented_copy(tmp_path)
    change(folder, "speed.csv", "words_per_second,3.00", "words_per_second,3.30")
    findings = found(audit(folder), "ratios", Severity.CONTRADICTION)
    assert len(findings) == 1 and findings[0].cells[0] == "speed[Ant,New,words_per_second]"
    # 3.30 / (90 / 30.0) = 1.1
    assert "1.1 times as large" in findings[0].evidence


def test_derived_quantity_that_turns_the_order(tmp_path: Path) -> None:
    folder = invented_copy(tmp_path)
    with (folder / "protocol.yaml").open("a") as handle:
        handle.write(
            "derived:\n  - {table: speed, title: words a second, formula: words / seconds, "
            "beside: words}\n"
        )
    # New has fewer words (90 < 120) but more of them a second (3 > 2)
    findings = found(audit(folder), "ratios", Severity.CAUTION)
    assert len(findings) == 1 and findings[0].numbers == {"Old": "2", "New": "3"}


def test_marks(tmp_path: Path) -> None:
    folder = invented_copy(tmp_path)
    assert not found(audit(folder), "extremes", Severity.CONTRADICTION)
    change(folder, "scores.csv", "Bee,New,hard,56.3,table,", "Bee,New,hard,56.3,table,best")
    findings = found(audit(folder), "extremes", Severity.CONTRADICTION)
    assert len(findings) == 1 and "Old 68.8" in findings[0].statement


def test_leads_and_ties() -> None:
    summary = found(audit(INVENTED), "extremes")[0]
    # easy twice, mean twice, Ant hard: alone; Bee hard: behind Old alone
    assert summary.numbers == {
        "alone": 5,
        "shared": 0,
        "behind": 1,
        "second": 1,
        "cells": 6,
        # Bee easy is the one column where Plain (41.7) is ahead of Old (33.3)
        "best_of_the_others": {"Old": 5, "Plain": 1},
    }


def test_family_from_recovered_counts() -> None:
    rival, baseline = audit(INVENTED).families
    first = rival.comparisons[0]
    # Ant mean: New 9/12 and 7/16, Old 7/12 and 5/16
    assert first.items_ahead == 4 and first.difference == pytest.approx(15.0)
    v_easy = (16 / 24) * (8 / 24) * (2 / 12)
    v_hard = (12 / 32) * (20 / 32) * (2 / 16)
    error = 100 * math.sqrt(0.6**2 * v_easy + 0.4**2 * v_hard)
    assert first.error_narrow == pytest.approx(error)
    # counted once, the 8 hard items have half as many observations
    wide = 100 * math.sqrt(0.6**2 * v_easy + 0.4**2 * 2 * v_hard)
    assert first.error_wide == pytest.approx(wide)
    assert first.p_narrow == pytest.approx(math.erfc(15 / error / math.sqrt(2)))
    assert first.p_paired_floor == 0.125  # 2 * 0.5**4
    # Holm over two: the smaller p doubles, the larger stays if it is above that
    small, large = sorted(c.p_narrow for c in baseline.comparisons)
    assert sorted(baseline.adjusted_narrow) == pytest.approx([2 * small, max(2 * small, large)])
    assert baseline.significant("narrow") == 1


def test_interval_of_a_cell() -> None:
    interval = audit(INVENTED).intervals["scores[Ant,Plain,easy]"]
    # Wilson for 6 of 12 is symmetric about 1/2: half-width z/(1+z2/n) sqrt(1/(4n) + z2/(4n2))
    z2 = 1.959964**2
    half = 1.959964 / (1 + z2 / 12) * math.sqrt(1 / 48 + z2 / (4 * 144))
    assert interval.narrow.low == pytest.approx(100 * (0.5 - half), abs=1e-4)
    assert interval.narrow == interval.wide


def test_bounded_scores_and_floor(tmp_path: Path) -> None:
    folder = invented_copy(tmp_path)
    change(
        folder,
        "protocol.yaml",
        "kind: proportion, items: 12,",
        "kind: bounded_mean, items: 12, floor: 20.0, floor_source: a measurement,",
    )
    result = audit(folder)
    interval = result.intervals["scores[Ant,Plain,easy]"]
    assert interval.wide.high == pytest.approx(100 * (0.5 + 1.959964 * math.sqrt(0.25 / 12)))
    assert interval.narrow.high == pytest.approx(100 * (0.5 + 1.959964 * math.sqrt(0.25 / 36)))
    floor = found(result, "floor")[0]
    # (33.3 - 20) / 80 = 17%, (75 - 20) / 80 = 69%
    assert "17% to 69%" in floor.statement


def test_ceiling(tmp_path: Path) -> None:
    folder = invented_copy(tmp_path)
    change(
        folder,
        "protocol.yaml",
        "kind: proportion, items: 12,",
        "kind: proportion, items: 12, ceiling_items: 8, ceiling_source: four are broken,",
    )
    findings = found(audit(folder), "floor", Severity.DISCREPANCY)
    assert [f.cells for f in findings] == [("scores[Ant,New,easy]",)]  # 9 of 12


def test_procedure() -> None:
    findings = found(audit(INVENTED), "procedure")
    assert [f.cells for f in findings] == [("scores[Ant,New,hard]",)]


def test_expected_maximum() -> None:
    # order statistics of the normal distribution: 0, 1/sqrt(pi), 0.84628, 1.26721
    expected = {1: 0.0, 2: 1 / math.sqrt(math.pi), 3: 0.846284, 6: 1.267206}
    for n, value in expected.items():
        assert expected_maximum(n) == pytest.approx(value, abs=1e-4)
