"""The second verdict: reproduced results against claims."""

from __future__ import annotations

from pathlib import Path

import pytest
from audit_paper_helpers import INVENTED, REAL, audit, change, invented_copy, write_rows

from lopd_repro.audit import audit_paper, read_paper
from lopd_repro.audit.reproduction import read_results
from lopd_repro.errors import UserError


def rows(
    means: dict[tuple[str, str], float], half: float, scale: str = "paper"
) -> list[dict[str, object]]:
    """Rows of a result table: mean with a 95% interval of +-half."""
    return [
        {
            "scale": scale,
            "backbone": backbone,
            "method": method,
            "n_seeds": 3,
            "mean": mean,
            "mean_std": 0.0,
            "mean_ci_low": mean - half,
            "mean_ci_high": mean + half,
        }
        for (backbone, method), mean in means.items()
    ]


LIKE_THE_PAPER = {
    ("Ant", "Plain"): 37.0,
    ("Ant", "Old"): 47.0,
    ("Ant", "New"): 62.4,
    ("Bee", "Plain"): 27.6,
    ("Bee", "Old"): 47.3,
    ("Bee", "New"): 62.0,
}


def verdicts(tmp_path: Path, table: list[dict[str, object]]) -> dict[str, str]:
    write_rows(tmp_path / "scores.csv", table)
    result = audit(INVENTED, tmp_path)
    return {j.claim.id: s.verdict for j, s in zip(result.claims, result.second, strict=True)}


def test_without_results() -> None:
    result = audit(INVENTED)
    assert {s.verdict for s in result.second} == {"not tested"}


def test_reproduced(tmp_path: Path) -> None:
    found = verdicts(tmp_path, rows(LIKE_THE_PAPER, 0.5))
    # K2: 62.4 - 47.0 = 15.4, off by 0.4; se = sqrt(2) * 0.5/1.96 = 0.361; 90% reaches 0.99 < 2
    assert found["K1"] == found["K2"] == "reproduced"
    # K4 speaks of a curve, K5 of a procedure: no table tests them
    assert found["K4"] == found["K5"] == "not tested"


def test_not_reproduced(tmp_path: Path) -> None:
    means = LIKE_THE_PAPER | {("Ant", "New"): 50.0}
    found = verdicts(tmp_path, rows(means, 0.5))
    # the lead is 3.0, not 15.0 +- 2.0; yet New is still ahead everywhere
    assert found["K2"] == "not reproduced" and found["K1"] == "reproduced"
    means = LIKE_THE_PAPER | {("Ant", "New"): 47.2}
    # a lead of 0.2 +- 0.6 (90%) is not above 0, and smaller than the margin of 2.0
    assert verdicts(tmp_path, rows(means, 0.5))["K1"] == "not reproduced"


def test_too_wide_to_tell(tmp_path: Path) -> None:
    found = verdicts(tmp_path, rows(LIKE_THE_PAPER, 20.0))
    assert found["K1"] == found["K2"] == "not tested"
    result = audit(INVENTED, tmp_path)
    assert "too wide to decide with margin 2" in result.second[1].detail


def test_scale_is_shown(tmp_path: Path) -> None:
    write_rows(tmp_path / "scores.csv", rows(LIKE_THE_PAPER, 0.5, scale="tiny"))
    second = audit(INVENTED, tmp_path).second[0]
    assert (second.verdict, second.scale, second.margin) == ("not tested", "tiny", "2")
    assert "no evidence about the paper" in second.detail
    assert "the test gives 'reproduced' (2 of 2 parts" in second.detail


def test_other_backbones_test_nothing(tmp_path: Path) -> None:
    found = verdicts(tmp_path, rows({("Cat", "New"): 60.0}, 0.5))
    assert set(found.values()) == {"not tested"}


def test_backbones_that_stand_for_the_papers(tmp_path: Path) -> None:
    ours = {"Ant": "ant-small", "Bee": "bee-small"}
    means = {(ours[b], m): value for (b, m), value in LIKE_THE_PAPER.items()}
    write_rows(tmp_path / "scores.csv", rows(means, 0.5))
    names = {name: paper for paper, name in ours.items()}
    second = audit_paper(read_paper(INVENTED), tmp_path, names).second
    assert second[0].verdict == second[1].verdict == "reproduced"


def test_empty_cell_and_missing_interval(tmp_path: Path) -> None:
    table = rows(LIKE_THE_PAPER, 0.5)
    table[2]["mean"] = ""
    assert verdicts(tmp_path, table)["K2"] == "not tested"
    table = rows(LIKE_THE_PAPER, 0.5)
    for row in table:
        row["mean_ci_low"] = row["mean_ci_high"] = row["mean_std"] = ""
    assert verdicts(tmp_path, table)["K2"] == "not tested"
    # deviations alone do: se = 0.3 / sqrt(3)
    for row in table:
        row["mean_std"] = 0.3
    assert verdicts(tmp_path, table)["K2"] == "reproduced"


def test_unreadable_number(tmp_path: Path) -> None:
    table = rows(LIKE_THE_PAPER, 0.5)
    table[1]["mean"] = "about 47"
    with pytest.raises(UserError, match=r"scores\.csv, row 3, column mean: 'about 47'"):
        verdicts(tmp_path, table)


def test_inequality_of_a_lower_is_better_metric(tmp_path: Path) -> None:
    folder = invented_copy(tmp_path)
    change(
        folder,
        "protocol.yaml",
        "seconds: {title: Seconds, kind: quantity, direction: lower}",
        "seconds: {title: Seconds, kind: quantity, direction: lower, margin: 5.0}",
    )
    with (folder / "claims.yaml").open("a") as handle:
        handle.write(
            "  - id: S\n    where: text\n    kind: best\n    statement: New is fastest\n"
            "    method: New\n    columns: {speed: [seconds]}\n"
        )
    base = {"scale": "paper", "backbone": "Ant", "n_seeds": 3, "seconds_std": 1.0}
    results = tmp_path / "results"
    write_rows(
        results / "speed.csv",
        [{**base, "method": "Old", "seconds": 61.0}, {**base, "method": "New", "seconds": 40.0}],
    )
    assert audit(folder, results).second[-1].verdict == "reproduced"
    write_rows(
        results / "speed.csv",
        [{**base, "method": "Old", "seconds": 40.0}, {**base, "method": "New", "seconds": 61.0}],
    )
    assert audit(folder, results).second[-1].verdict == "not reproduced"


def test_layout_of_table3(tmp_path: Path) -> None:
    write_rows(
        tmp_path / "table3.csv",
        [
            {
                "metric": "reward",
                "vanilla": 0.48,
                "vanilla_ci_low": 0.46,
                "vanilla_ci_high": 0.50,
                "lopd": 0.64,
                "lopd_ci_low": 0.62,
                "lopd_ci_high": 0.66,
                "base_plus_composer": "",
            }
        ],
    )
    found = read_results(tmp_path, read_paper(REAL))
    assert set(found) == {
        ("table3", "Qwen3-4B", "vanilla", "reward"),
        ("table3", "Qwen3-4B", "lopd", "reward"),
    }
    result = found["table3", "Qwen3-4B", "lopd", "reward"]
    assert result.mean == 0.64
    assert result.error == pytest.approx(0.02 / 1.959964, rel=1e-6)
