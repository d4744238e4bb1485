"""The table of HumanEval (base tests): Wilson's interval for one yes-or-no sample a problem."""

from __future__ import annotations

from pathlib import Path

import pytest

from lopd_repro.files import write_jsonl
from lopd_repro.report.layout import TableSettings, layout
from lopd_repro.report.render import markdown_page
from lopd_repro.report.scores import evaluation_file
from lopd_repro.report.table import Table, build_table

HUMANEVAL = layout("humaneval")


def settings(*seeds: int) -> TableSettings:
    return TableSettings(
        scale="test",
        backbones=("small",),
        methods=("vanilla",),
        labels={"vanilla": "Vanilla"},
        paper_backbones={"small": "none"},
        seeds=seeds,
    )


def table(root: Path, scores: list[list[float]]) -> Table:
    for seed, own in enumerate(scores):
        rows = [
            {"task_id": f"HumanEval/{i}", "repeat": 0, "category": "humaneval_base", "score": s,
             "status": "ok"}
            for i, s in enumerate(own)
        ]  # fmt: skip
        path = evaluation_file(root, "evalplus", "coding", "small", "vanilla", seed)
        write_jsonl(path, rows, expected=len(rows), data="made up", scorer="by hand")
    return build_table(root, HUMANEVAL, settings(*range(len(scores))), {})


def test_one_sample_a_problem_has_wilsons_interval(tmp_path: Path) -> None:
    found = table(tmp_path, [[1.0] * 2 + [0.0] * 8])
    # z = 1.959964, p = 0.2, n = 10: centre (0.2 + z^2/20) / (1 + z^2/10) = 0.283260,
    # half z / (1 + z^2/10) * sqrt(0.016 + z^2/400) = 0.226578.
    [row] = found.rows
    assert row["humaneval_base"] == pytest.approx(20.0)
    assert row["humaneval_base_std"] is None
    assert row["humaneval_base_ci_low"] == pytest.approx(5.6682, abs=1e-3)
    assert row["humaneval_base_ci_high"] == pytest.approx(50.9838, abs=1e-3)
    page = markdown_page(HUMANEVAL, settings(0), found, "Made up.", {}, {"small": "Small"})
    assert "95% Wilson interval" in page
    assert "HumanEval (base tests)" in page


def test_several_seeds_or_shares_have_the_bootstraps(tmp_path: Path) -> None:
    several = table(tmp_path / "several", [[1.0, 0.0, 0.0], [1.0, 1.0, 0.0]])
    shares = table(tmp_path / "shares", [[0.5, 0.0, 1.0]])
    for found, seeds in ((several, (0, 1)), (shares, (0,))):
        assert not found.binomial
        page = markdown_page(HUMANEVAL, settings(*seeds), found, "Made up.", {}, {"small": "Small"})
        assert "from a bootstrap" in page
        assert "Wilson" not in page
