"""Expressions, claims and their verdicts."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest
import yaml
from audit_paper_helpers import INVENTED, audit, change, found, invented_copy

from lopd_repro.audit import Severity, read_paper
from lopd_repro.audit.columns import printed_value
from lopd_repro.audit.expression import ExpressionError, Verdict, check, evaluate

FOLLOWS, CONSISTENT = Verdict.FOLLOWS, Verdict.CONSISTENT
OPEN, CONTRADICTED = Verdict.NOT_DECIDABLE, Verdict.CONTRADICTED
PAPER = read_paper(INVENTED)


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("scores[Ant,New,mean] = 62.5", FOLLOWS),
        ("scores[Ant,New,mean] = 62.50", FOLLOWS),
        # 62.5 may stand for 62.45 to 62.6
        ("scores[Ant,New,mean] = 62.56", CONSISTENT),
        ("scores[Ant,New,mean] = 62.8", CONTRADICTED),
        # 75.0 - 58.3 = 16.7; each may be off by up to a unit
        ("scores[Ant,New,easy] - scores[Ant,Old,easy] = 16.7", FOLLOWS),
        ("scores[Ant,New,easy] - scores[Ant,Old,easy] = 16.8", CONSISTENT),
        ("scores[Ant,New,easy] - scores[Ant,Old,easy] = 17.2", CONTRADICTED),
        ("scores[Ant,New,mean] > scores[Ant,best!New,mean]", FOLLOWS),
        ("scores[Ant,New,mean] < scores[Ant,best!New,mean]", CONTRADICTED),
        ("scores[Ant,Old,mean] > scores[Bee,Old,mean]", OPEN),
        ("scores[Ant,Old,mean] >= scores[Bee,Old,mean]", CONSISTENT),
        ("curve[New,10] > 0.45", CONSISTENT),  # printed in the text only
        ("curve[New,20] > curve[New,10]", OPEN),  # 0.550 against 'above 0.45'
        ("(scores[Ant,New,mean] - 37.5) / 37.5 * 100 = 66.7", FOLLOWS),
        # 200/3 = 66.67 is cut off to 66.6
        ("(scores[Ant,New,mean] - 37.5) / 37.5 * 100 = 66.6", CONSISTENT),
        ("scores[Ant,New,mean] / 100 ~ 0.62 within 0.01", FOLLOWS),
        ("scores[Ant,New,mean] / 100 ~ 0.60 within 0.01", CONTRADICTED),
        ("settings[width,New] * settings[depth,New] = 32", FOLLOWS),
    ],
)
def test_verdicts(text: str, verdict: Verdict) -> None:
    assert check(PAPER, text, printed_value).verdict is verdict


def test_best_rival_of_a_lower_is_better_column() -> None:
    value, _, cells = evaluate(PAPER, "speed[Ant,best!Old,seconds]", printed_value)
    assert value.face == 30 and cells[0].ref == "speed[Ant,New,seconds]"


def test_interval_arithmetic() -> None:
    # 120 words stand for [119.5, 121), 60.0 seconds for [59.95, 60.1)
    value, shown, _ = evaluate(
        PAPER, "speed[Ant,Old,words] / speed[Ant,Old,seconds]", printed_value
    )
    assert value.face == 2 and shown == "120 / 60.0"
    assert value.low == Fraction("119.5") / Fraction("60.1")
    assert value.high == Fraction(121) / Fraction("59.95")


@pytest.mark.parametrize(
    "text",
    [
        "scores[Ant,New,men] = 1",
        "scores[Ant,best!Newer,mean] = 1",
        "nothing[Ant,New,mean] = 1",
        "scores[Ant,New,mean]",
        "scores[Ant,New,mean] = 1 = 1",
        "scores[Ant,New,mean] ~ 1",
        "__import__('os') = 1",
        "scores[Ant,New,mean] ** 2 = 1",
        "scores[Ant,New,mean] / (1 - 1) = 1",
    ],
)
def test_unusable_expressions(text: str) -> None:
    with pytest.raises(ExpressionError):
        check(PAPER, text, printed_value)


def test_ledger_of_the_invented_paper() -> None:
    verdicts = {item.claim.id: item.verdict for item in audit(INVENTED).claims}
    assert verdicts == {"K1": FOLLOWS, "K2": FOLLOWS, "K3": FOLLOWS, "K4": FOLLOWS, "K5": OPEN}


def with_claim(folder: Path, **record: object) -> Path:
    path = folder / "claims.yaml"
    document = yaml.safe_load(path.read_text())
    document["claims"].append({"id": "X", "where": "text", "statement": "a claim", **record})
    path.write_text(yaml.safe_dump(document))
    return folder


def judged(folder: Path, **record: object):  # type: ignore[no-untyped-def]
    return audit(with_claim(folder, **record)).claims[-1]


def test_best_is_refuted(tmp_path: Path) -> None:
    item = judged(
        invented_copy(tmp_path), kind="best", method="New", columns={"scores": ["hard", "mean"]}
    )
    assert item.verdict is CONTRADICTED
    assert [part.text for part in item.failing] == ["Bee Hard set: 56.3 > 68.8"]


def test_wrong_number_of_columns(tmp_path: Path) -> None:
    item = judged(
        invented_copy(tmp_path), kind="best", method="New", columns={"scores": ["mean"]}, stated=3
    )
    assert item.verdict is CONTRADICTED


def test_gain_range_with_a_wrong_end(tmp_path: Path) -> None:
    item = judged(
        invented_copy(tmp_path),
        kind="gain_range",
        method="New",
        baseline="Plain",
        columns={"scores": ["mean"]},
        smallest={"backbone": "Bee", "metric": "mean", "value": "35.0"},
        largest={"backbone": "Bee", "metric": "mean", "value": "35.0"},
    )
    # 35.0 is Bee's gain, but Ant's is 25.0
    assert item.verdict is CONTRADICTED and len(item.failing) == 1


def test_trend_that_the_counts_undo(tmp_path: Path) -> None:
    folder = invented_copy(tmp_path)
    # both leads are 15.0 in print
    fields = {"kind": "trend", "method": "New", "from": "Ant", "columns": {"scores": ["mean"]}}
    assert judged(folder, to="Bee", **fields).verdict is CONTRADICTED
    # 83.3 - 66.7 = 16.6 with Bee, 75.0 - 58.3 = 16.7 with Ant; in counts 10 - 8 and 9 - 7 of 12
    change(folder, "scores.csv", "Bee,New,easy,66.7", "Bee,New,easy,83.3")
    change(folder, "scores.csv", "Bee,Plain,easy,41.7", "Bee,Plain,easy,66.7")
    change(folder, "claims.yaml", "id: X", "id: Y")
    fields |= {"from": "Bee", "to": "Ant", "columns": {"scores": ["easy"]}}
    result = audit(with_claim(folder, **fields))
    item = result.claims[-1]
    assert item.verdict is CONSISTENT and item.parts[0].face_only
    assert any(f.severity is Severity.DISCREPANCY for f in found(result, "claims"))


def test_budget(tmp_path: Path) -> None:
    fields = {
        "kind": "budget",
        "curve": {"file": "curve", "series": "New"},
        "rivals": [{"cell": "curve[Old,100]"}],
        "total": 100,
    }
    # 0.475 is certainly passed at 20 (0.550), perhaps at 10 (above 0.45)
    for name, percent, verdict in (("a", 25, FOLLOWS), ("b", 15, OPEN), ("c", 5, CONTRADICTED)):
        folder = invented_copy(tmp_path / name)
        assert judged(folder, percent=percent, **fields).verdict is verdict


def test_readings(tmp_path: Path) -> None:
    readings = [
        {"name": "means", "columns": {"scores": ["mean"]}},
        {"name": "sets", "columns": {"scores": ["easy", "hard"]}},
    ]
    item = judged(invented_copy(tmp_path), kind="best", method="New", readings=readings)
    assert item.verdict is CONSISTENT
    assert "read as 'sets': contradicted" in item.summary


def test_aside_does_not_count(tmp_path: Path) -> None:
    item = judged(
        invented_copy(tmp_path),
        kind="cell",
        checks=["scores[Ant,New,mean] = 62.5"],
        also=["scores[Ant,New,mean] = 99.0"],
    )
    assert item.verdict is FOLLOWS and item.asides[0].verdict is CONTRADICTED


def test_contradicted_claim_is_a_finding(tmp_path: Path) -> None:
    folder = invented_copy(tmp_path)
    change(folder, "claims.yaml", "= 15.0", "= 16.0")
    findings = found(audit(folder), "claims", Severity.CONTRADICTION)
    assert [f.numbers["claim"] for f in findings] == ["K2"]
    assert "62.5 - 47.5 = 16.0 (computed 15)" in findings[0].evidence
