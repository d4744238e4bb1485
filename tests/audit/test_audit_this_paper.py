"""What the audit finds in the paper this project is about."""

from __future__ import annotations

from fractions import Fraction

import pytest
from audit_paper_helpers import REAL, audit, found

from lopd_repro.audit import Severity
from lopd_repro.audit.averages import Reading
from lopd_repro.audit.expression import Verdict
from lopd_repro.audit.printed import Rounding


@pytest.fixture(scope="module")
def result():  # type: ignore[no-untyped-def]
    return audit(REAL)


def test_runs_behind_the_columns(result) -> None:  # type: ignore[no-untyped-def]
    runs = {c.metric.name: c.fit.repeats for c in result.columns}
    assert runs == {
        "bfcl_base": 1,
        "bfcl_miss_func": 1,
        "bfcl_miss_param": 1,
        "bfcl_long_context": 1,
        "ace_multi_step": 3,
        "ace_multi_turn": 3,
        "lcb_v5": 1,
        "lcb_v6": 1,
        "humaneval_plus": 1,
        "mbpp_plus": 1,
    }
    assert all(c.fit.decisive for c in result.columns)


def test_counts_of_the_code_benchmarks(result) -> None:  # type: ignore[no-untyped-def]
    # by hand: round(percentage * items / 100), in printed order
    expected = {
        "lcb_v5": [133, 140, 139, 119, 114, 136, 141, 132, 138, 137, 123, 139, 133, 149],
        "lcb_v6": [54, 58, 55, 46, 45, 57, 59, 58, 60, 59, 59, 57, 58, 60],
        "humaneval_plus": [140, 142, 141, 140, 139, 143, 144, 142, 146, 143, 144, 145, 146, 148],
        "mbpp_plus": [287, 288, 291, 290, 283, 291, 297, 266, 275, 273, 272, 275, 276, 277],
    }
    for name, counts in expected.items():
        cells = result.paper.tables["table2"].column(name)
        assert [result.counts[c.ref].unique for c in cells] == counts, name


def test_every_count_prints_its_cell(result) -> None:  # type: ignore[no-untyped-def]
    assert len(result.counts) == 140
    for ref, recovered in result.counts.items():
        cell = result.paper.cells[ref]
        assert recovered.unique is not None
        unit = Fraction(1, 10**cell.printed.decimals)
        off = Fraction(100 * recovered.unique, recovered.total) - cell.printed.face
        assert -unit / 2 <= off < unit, ref


def test_cells_that_are_cut_off(result) -> None:  # type: ignore[no-untyped-def]
    cut = {f.cells[0] for f in found(result, "rounding") if len(f.cells) == 1}
    assert cut == {
        "table1[Qwen3-4B,Skill-SD,ace_multi_step]",
        "table1[Qwen3-4B,OPSD,ace_multi_step]",
        "table1[Qwen3-4B,LOPD,ace_multi_step]",
        "table1[Qwen3-8B,Vanilla,ace_multi_step]",
        "table2[Olmo3-7B,Skill-SD,lcb_v6]",
        "table2[Qwen3-4B,OPSD,humaneval_plus]",
    }
    twice = [set(f.numbers["printed"]) for f in found(result, "rounding") if len(f.cells) > 1]
    assert twice == [{"56.6", "56.7"}, {"45.04", "45.03"}, {"85.37", "85.36"}]


def test_averages(result) -> None:  # type: ignore[no-untyped-def]
    best = {fit.metric.name: fit.best for fit in result.averages}
    assert best["bfcl_avg"] == Reading("counts", "equal", Rounding.HALF_UP)
    assert best["ace_avg"] == Reading("printed", "items", Rounding.HALF_UP)
    assert best["lcb_avg"] == Reading("counts", "items", Rounding.HALF_UP)
    assert best["evalplus_avg"] == Reading("printed", "items", Rounding.HALF_UP)
    # 24.625 and 25.125 would print 24.62 and 25.12 half-even: half-up is decided by two rows
    bfcl = next(f for f in result.averages if f.metric.name == "bfcl_avg")
    assert bfcl.explained[Reading("counts", "equal", Rounding.HALF_EVEN)] == 12
    off = {
        f.cells[0]: f.numbers["exact_prints"]
        for f in found(result, "averages", Severity.DISCREPANCY)
    }
    assert off == {
        "table1[Qwen3-4B,Vanilla,ace_avg]": "50.7",  # 76/150
        "table1[Qwen3-4B,OPSD,ace_avg]": "48.7",  # 73/150
        "table1[Qwen3-4B,LOPD,ace_avg]": "60.7",  # 91/150
        "table1[Qwen3-8B,Vanilla,ace_avg]": "54.7",  # 82/150
        "table2[Olmo3-7B,SDFT,lcb_avg]": "46.59",  # 191/410
        "table2[Qwen3-4B,Vanilla,evalplus_avg]": "78.78",  # 427/542
        "table2[Qwen3-4B,OPSD,evalplus_avg]": "79.34",  # 430/542
        "table2[Qwen3-4B,LOPD,evalplus_avg]": "81.37",  # 441/542
        "table2[Olmo3-7B,GRPO,evalplus_avg]": "77.68",  # 421/542
    }


def test_places_that_disagree(result) -> None:  # type: ignore[no-untyped-def]
    differing = {f.cells for f in found(result, "cross-check", Severity.DISCREPANCY)}
    assert differing == {
        ("figure4[GRPO,1600]", "table1[Qwen3-4B,GRPO,envscaler]"),
        ("figure4[Skill-SD,1600]", "table1[Qwen3-4B,Skill-SD,envscaler]"),
        ("code_settings[cold_start_clip,LOPD]", "table4[cold_start_clip,LOPD]"),
        ("code_settings[training_steps,LOPD]", "table4[training_steps,LOPD]"),
        (
            "code_settings[environment_steps,agentic training]",
            "table4[environment_steps,agentic training]",
        ),
    }
    assert not found(result, "cross-check", Severity.CONTRADICTION)


def test_significance_of_the_ten_aggregates(result) -> None:  # type: ignore[no-untyped-def]
    rival, baseline = result.families
    assert len(rival.comparisons) == len(baseline.comparisons) == 10
    assert (rival.significant("narrow"), rival.significant("wide")) == (0, 0)
    assert rival.significant("floor") == 4
    assert (baseline.significant("narrow"), baseline.significant("wide")) == (2, 2)
    ahead = [c.items_ahead for c in rival.comparisons]
    # totals of recovered counts, such as 200 - 198 of 410 and 425 - 422 of 542
    assert ahead == [None, None, 17, 7, 7, 7, 2, 11, 7, 3]
    # LiveCodeBench, Qwen3-4B: pooled within v5 and v6, p from the normal distribution
    lcb = rival.comparisons[6]
    assert lcb.difference == pytest.approx(100 * 2 / 410)
    assert lcb.p_narrow == pytest.approx(0.889, abs=5e-4)


def test_ratios_and_repeated_calls(result) -> None:  # type: ignore[no-untyped-def]
    ratios = found(result, "ratios", Severity.DISCREPANCY)
    # 0.486 / (11.12 * 3.50), 0.631 / (16.31 * 1.21), 0.637 / (17.04 * 1.11)
    assert [f.numbers["ratio_of_means"] for f in ratios] == ["0.0125", "0.032", "0.0337"]
    turned = found(result, "ratios", Severity.CAUTION)
    # 8.89 / 38.92 = 22.84%, 5.25 / 18.9144 = 27.76%
    assert [f.numbers for f in turned] == [{"vanilla": "0.2284", "lopd": "0.2776"}]


def test_ledger(result) -> None:  # type: ignore[no-untyped-def]
    verdicts = {item.claim.id: item.verdict for item in result.claims}
    assert len(verdicts) == 27
    special = {k: v for k, v in verdicts.items() if v is not Verdict.FOLLOWS}
    assert special == {
        "C02": Verdict.NOT_DECIDABLE,  # >0.61 at 20% against 0.611; 0.637 only at 36%
        "C08": Verdict.CONTRADICTED,  # BFCL: 0.88 with 8B, 2.13 with 4B
        "C18": Verdict.CONSISTENT,  # these points are printed in the text only
        "C19": Verdict.CONSISTENT,
        "C20": Verdict.CONSISTENT,
        "C22": Verdict.CONSISTENT,  # true of the ten aggregates, one tie among single benchmarks
        "C25": Verdict.NOT_DECIDABLE,
    }
    trend = next(item for item in result.claims if item.claim.id == "C08")
    envscaler, bfcl, ace = trend.parts
    assert envscaler.verdict is Verdict.FOLLOWS
    assert bfcl.verdict is Verdict.CONTRADICTED
    # 62.7 - 58.0 = 4.7 above 60.6 - 56.0 = 4.6, but 94 - 87 and 91 - 84 of 150 are equal
    assert ace.verdict is Verdict.CONSISTENT and ace.face_only


def test_readme_repeats_the_tables(result) -> None:  # type: ignore[no-untyped-def]
    repeated = [f for f in found(result, "cross-check") if f.numbers.get("shared") == 60]
    assert repeated and repeated[0].numbers["differing"] == 0


def test_only_one_contradiction(result) -> None:  # type: ignore[no-untyped-def]
    contradictions = [f for _, f in result.findings if f.severity is Severity.CONTRADICTION]
    assert [f.numbers.get("claim") for f in contradictions] == ["C08"]
