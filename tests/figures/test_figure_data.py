"""Points of figures 3 to 5: values derived by hand, gaps named, errors in one line."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_results import PAPER, fill_figure3, fill_figure4, fill_figure5, settings

from lopd_repro.cli import main
from lopd_repro.report.figures.points import PAPER as PRINTED
from lopd_repro.report.figures.points import Point, read_points


def data(root: Path, figure: str, reported: Path | None = None, **changes: object) -> int:
    return main(
        [
            "figure-data",
            *("--figure", figure, "--settings", settings(**changes), "--results", str(root)),
            *("--reported", str(reported or PAPER / f"{figure}.csv")),
            *("--out", str(root / f"{figure}.csv"), "--problems", str(root / "log")),
        ]
    )


def points(root: Path, figure: str, **changes: object) -> list[Point]:
    assert data(root, figure, **changes) == 0
    return read_points(root / f"{figure}.csv")


def one(found: list[Point], **wanted: str) -> Point:
    (point,) = [p for p in found if all(getattr(p, k) == v for k, v in wanted.items())]
    return point


def test_margins_are_means_over_seeds_in_rising_order(tmp_path: Path) -> None:
    fill_figure3(tmp_path)
    found = points(tmp_path, "figure3")
    ours = [p for p in found if p.measured and p.split == "test"]
    assert [p.x for p in ours] == ["0", "0.05", "frozen"]
    assert [p.method for p in ours] == ["lopd_margin_0", "lopd", "lopd_frozen"]
    lopd = one(ours, x="0.05")
    # Seed means 100 and 50: mean 75, deviation with n-1 50 / sqrt(2) = 35.3553.
    assert (lopd.value, lopd.std, lopd.n_seeds) == (75.0, 35.3553, 2)
    assert lopd.ci_low is not None and lopd.ci_high is not None
    assert 0.0 <= lopd.ci_low < 75.0 < lopd.ci_high <= 100.0
    # Every score of the frozen composer is 0.5, so no draw can differ.
    frozen = one(ours, x="frozen")
    assert (frozen.value, frozen.std, frozen.ci_low, frozen.ci_high) == (50.0, 0.0, 50.0, 50.0)


def test_validation_is_the_chosen_checkpoints_score(tmp_path: Path) -> None:
    fill_figure3(tmp_path)
    found = points(tmp_path, "figure3")
    # Chosen: step 10 with 90 by seed 0, step 20 with 70 by seed 1. A quarter of the draws over two
    # seeds is one seed twice, so the interval is the range of the seeds.
    lopd = one(found, x="0.05", split="validation")
    assert (lopd.value, lopd.std) == (80.0, 14.1421)
    assert (lopd.ci_low, lopd.ci_high) == (70.0, 90.0)


def test_the_papers_points_are_brought_to_one_scale_and_kept_as_printed(tmp_path: Path) -> None:
    fill_figure3(tmp_path)
    found = points(tmp_path, "figure3")
    printed = one(found, x="0.05", source=PRINTED)
    assert (printed.value, printed.printed, printed.backbone) == (63.7, "0.637", "Qwen3-4B")
    assert (printed.scale, printed.std, printed.n_seeds) == ("", None, None)
    assert one(found, x="frozen", source=PRINTED).value == 57.3


def test_bounds_and_ranges_are_not_values(tmp_path: Path) -> None:
    fill_figure4(tmp_path)
    found = [p for p in points(tmp_path, "figure4") if not p.measured]
    bound = one(found, series="LOPD", x="320")
    assert (bound.value, bound.bound_low, bound.bound_high) == (None, 61.0, None)
    assert bound.printed == ">0.61"
    span = one(found, series="LOPD", x="1600")
    assert (span.value, span.bound_low, span.bound_high) == (None, 63.0, 64.0)
    assert {p.split for p in found} == {""}


def test_a_curve_is_by_generations_and_a_seed_short_empties_its_point(tmp_path: Path) -> None:
    fill_figure4(tmp_path)
    found = [p for p in points(tmp_path, "figure4") if p.measured]
    lopd = [p for p in found if p.method == "lopd" and p.split == "validation"]
    # Steps 0, 10, 20 at 32 generations each; means of 30 and 30, 60 and 80, 80 and 90.
    assert [(p.x, p.value) for p in lopd] == [("0", 30.0), ("320", 70.0), ("640", 85.0)]
    grpo = [p for p in found if p.method == "grpo"]
    assert [(p.x, p.value, p.n_seeds) for p in grpo] == [
        ("0", 30.0, 2),
        ("320", 40.0, 2),
        ("640", None, None),
    ]
    log = (tmp_path / "log").read_text()
    assert "small / GRPO / validation: incomplete: no score of step 20 for seed 1" in log
    assert "small / GRPO / test: not run" in log


def test_the_test_curve_is_a_series_of_its_own(tmp_path: Path) -> None:
    fill_figure4(tmp_path)
    test = [p for p in points(tmp_path, "figure4") if p.split == "test"]
    # Step 10: seeds at 100 and 50; step 20: both at 50.
    assert [(p.method, p.x, p.value) for p in test] == [
        ("lopd", "320", 75.0),
        ("lopd", "640", 50.0),
    ]
    assert (test[1].ci_low, test[1].ci_high) == (50.0, 50.0)


def test_panels_have_their_metrics_and_the_papers_weights(tmp_path: Path) -> None:
    fill_figure5(tmp_path)
    found = points(tmp_path, "figure5")
    test = {p.panel: p for p in found if p.measured and p.split == "test" and p.x in ("16", "2")}
    # EnvScaler (1 + 0.5) / 2; multi-step 1 of 2; multi-turn 0.25; average (20 * 50 + 30 * 25) / 50.
    assert {k: p.value for k, p in test.items()} == {
        "a": 75.0,
        "b": 75.0,
        "c": 35.0,
        "d": 50.0,
        "e": 25.0,
    }
    assert {p.panel for p in found if p.split == "validation"} == {"a", "b"}
    assert [p.x for p in found if p.panel == "c" and p.measured] == ["1", "2"]
    # Figure 5's axis is in percent already.
    assert one(found, panel="a", x="32", source=PRINTED).value == 63.7


def test_a_grid_that_was_not_run_leaves_the_papers_points(tmp_path: Path) -> None:
    fill_figure5(tmp_path)
    found = points(tmp_path, "figure5", figure5={"latents": {"16": "lopd"}})
    assert {p.panel for p in found if p.measured} == {"a"}
    assert {p.panel for p in found} == set("abcde")
    assert (
        "panel e: not run: settings.figure5.retrieved has no grid" in (tmp_path / "log").read_text()
    )


def test_a_missing_seed_leaves_a_gap_and_a_line(tmp_path: Path) -> None:
    fill_figure3(tmp_path)
    (tmp_path / "eval/envscaler/tool_use/small/lopd_margin_0/seed1.jsonl").unlink()
    (tmp_path / "runs/tool_use/small/lopd_frozen/seed0/selected.json").unlink()
    found = points(tmp_path, "figure3")
    gap = one(found, method="lopd_margin_0", split="test")
    assert (gap.value, gap.std, gap.ci_low, gap.n_seeds) == (None, None, None, None)
    assert one(found, method="lopd_frozen", split="validation").value is None
    assert one(found, method="lopd_frozen", split="test").value == 50.0
    log = (tmp_path / "log").read_text()
    assert "small / LOPD, m = 0 / envscaler: not run" in log
    assert "small / LOPD, frozen composer / validation: not run" in log


def test_nothing_measured_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert data(tmp_path, "figure3") == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("lopd-repro figure-data: error: figure3: nothing was measured (small")
    assert not (tmp_path / "figure3.csv").exists()


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"figure3": {}}, "settings.figure3.margin: found none, allowed: a filled mapping"),
        (
            {"figure3": {"margin": {"big": "lopd"}}},
            "found {'big': 'lopd'}, allowed: a mapping with numbers as keys",
        ),
        ({"figure3": {"margin": {"0": "lopd_x"}}}, "settings.labels: no name for 'lopd_x'"),
        ({"seeds": []}, "settings.seeds: found none, allowed: at least one training seed"),
    ],
)
def test_settings_that_cannot_be(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    changes: dict[str, object],
    line: str,
) -> None:
    assert data(tmp_path, "figure3", **changes) == 2
    assert line in capsys.readouterr().err


@pytest.mark.parametrize("y", ["about 0.6", ">0.5-0.6", ""])
def test_a_reading_in_another_form_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], y: str
) -> None:
    fill_figure3(tmp_path)
    reported = tmp_path / "reported.csv"
    reported.write_text(f"panel,series,x,y,read_from\n,margin,0,{y},text\n")
    assert data(tmp_path, "figure3", reported) == 2
    err = capsys.readouterr().err
    assert f"{reported}: not a file of reported points" in err and repr(y) in err


def test_generations_that_differ_between_seeds_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from small_results import put_run

    fill_figure4(tmp_path)
    put_run(tmp_path, "lopd", 1, {0: 0.3, 10: 0.6, 20: 0.8}, selected=20, per_step=16)
    assert data(tmp_path, "figure4") == 2
    assert "step 10 is at [160, 320] generations by seed" in capsys.readouterr().err


def test_an_unknown_figure_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert data(tmp_path, "figure9", PAPER / "figure3.csv") == 2
    assert "found 'figure9', allowed: figure3, figure4, figure5" in capsys.readouterr().err
