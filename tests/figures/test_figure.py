"""Pictures: equal bytes, print sizes, nothing beyond the edges, gaps, errors in one line."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text
from small_results import PAPER, TABLES, fill_figure3, fill_figure4, fill_figure5, settings

from lopd_repro.cli import main
from lopd_repro.report.figures.draw import NAMES, styled
from lopd_repro.report.figures.draw import draw as picture
from lopd_repro.report.figures.draw.axes import spans, tick_step
from lopd_repro.report.figures.points import read_points
from lopd_repro.workflow.sources import closure

ROOT = Path(__file__).parents[2]
FILL = {"figure3": fill_figure3, "figure4": fill_figure4, "figure5": fill_figure5}
WIDTH = {"figure5": 7.0, "diagnostics": 7.0, "divergence": 7.0}
NOTICE = "Tiny scale: these numbers show that the pipeline works; no evidence about the paper."


def csv_of(root: Path, figure: str) -> Path:
    out = root / f"{figure}.csv"
    if figure in TABLES:
        out.write_text(TABLES[figure])
        return out
    FILL[figure](root)
    arguments = ["--figure", figure, "--settings", settings(), "--results", str(root)]
    reported = str(PAPER / f"{figure}.csv")
    assert main(["figure-data", *arguments, "--reported", reported, "--out", str(out)]) == 0
    return out


def draw(figure: str, data: Path, stem: Path) -> list[str]:
    return [
        *("figure", "--figure", figure, "--data", str(data), "--notice", NOTICE),
        *("--pdf", f"{stem}.pdf", "--png", f"{stem}.png"),
    ]


@pytest.mark.parametrize("figure", ["figure5", "controls", "diagnostics"])
def test_two_runs_give_equal_bytes_without_dates(tmp_path: Path, figure: str) -> None:
    data = csv_of(tmp_path, figure)
    assert main(draw(figure, data, tmp_path / "one")) == 0
    assert main(draw(figure, data, tmp_path / "two")) == 0
    same_files(tmp_path)
    pdf = (tmp_path / "one.pdf").read_bytes()
    assert b"/FontFile2" in pdf and b"/Type3" not in pdf


def test_another_process_and_its_settings_change_no_byte(tmp_path: Path) -> None:
    data = csv_of(tmp_path, "figure4")
    assert main(draw("figure4", data, tmp_path / "one")) == 0
    command = [sys.executable, "-m", "lopd_repro", *draw("figure4", data, tmp_path / "two")]
    # Another order of hashes, another folder, and settings of the user's own.
    (tmp_path / "matplotlibrc").write_text("font.size: 20\nlines.linewidth: 5\n")
    env = {**os.environ, "PYTHONHASHSEED": "7", "PYTHONPATH": str(ROOT)}
    subprocess.run(command, check=True, cwd=tmp_path, env=env)
    same_files(tmp_path)


def same_files(root: Path) -> None:
    for form in ("pdf", "png"):
        first, second = ((root / f"{n}.{form}").read_bytes() for n in ("one", "two"))
        assert first == second and len(first) > 5000
        assert b"CreationDate" not in first and b"tIME" not in first


@pytest.mark.parametrize("figure", NAMES)
def test_print_size_fonts_and_edges(tmp_path: Path, figure: str) -> None:
    drawn = figure_of(figure, csv_of(tmp_path, figure))
    assert drawn.get_figwidth() == WIDTH.get(figure, 3.3)
    texts = shown_texts(drawn)
    assert NOTICE in " ".join(" ".join(t.get_text().split()) for t in texts)
    for text in texts:
        assert text.get_fontsize() >= 7.0, text.get_text()
        box = text.get_window_extent()
        assert box.x0 >= -1 and box.y0 >= -1, text.get_text()
        assert box.x1 <= drawn.bbox.x1 + 1 and box.y1 <= drawn.bbox.y1 + 1, text.get_text()


def figure_of(figure: str, data: Path) -> Figure:
    with styled():
        drawn = picture(figure, data, NOTICE)
        drawn.draw_without_rendering()
    return drawn


def shown_texts(drawn: Figure) -> list[Text]:
    found = []
    for ax in drawn.axes:
        found += [ax.title, ax.xaxis.label, ax.yaxis.label]
        for axis in (ax.xaxis, ax.yaxis):
            low, high = sorted(axis.get_view_interval())
            for tick in axis.get_major_ticks():
                if low <= tick.get_loc() <= high:
                    found.append(tick.label1)
    for legend in drawn.legends:
        found += [*legend.get_texts(), legend.get_title()]
    found += drawn.texts
    return [text for text in found if text.get_text() and text.get_visible()]


def test_a_point_that_was_not_measured_leaves_a_gap(tmp_path: Path) -> None:
    data = csv_of(tmp_path, "figure3")
    text = data.read_text()
    row = re.search(
        r"(figure3,test,small,,margin,\"LOPD, m = 0\",0,envscaler,test,lopd_margin_0,).*", text
    )
    assert row is not None
    data.write_text(text.replace(row[0], row[1] + ",,,,,measured,,,,"))
    drawn = figure_of("figure3", data)
    lines = [line for ax in drawn.axes for line in ax.lines if len(line.get_xdata()) == 2]
    ours = [list(line.get_ydata()) for line in lines if line.get_marker() == "o"]
    assert any(y[0] != y[0] and y[1] == 75.0 for y in ours)


def test_nothing_to_draw_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = csv_of(tmp_path, "figure3")
    lines = data.read_text().splitlines(keepends=True)
    data.write_text("".join(line for line in lines if ",measured," not in line))
    assert main(draw("figure3", data, tmp_path / "one")) == 2
    assert "no measured point of figure3, so there is nothing to draw" in capsys.readouterr().err
    assert not (tmp_path / "one.png").exists()


def test_another_file_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = tmp_path / "other.csv"
    other.write_text("a,b\n1,2\n")
    assert main(draw("figure3", other, tmp_path / "one")) == 2
    assert f"{other}: found other columns, allowed: figure, scale" in capsys.readouterr().err
    assert main(draw("figure9", other, tmp_path / "one")) == 2
    assert "--figure: found 'figure9', allowed: figure3" in capsys.readouterr().err


def test_points_survive_their_file(tmp_path: Path) -> None:
    found = read_points(csv_of(tmp_path, "figure5"))
    assert {p.figure for p in found} == {"figure5"}
    assert all(p.value is not None for p in found)


def test_a_wide_gap_breaks_the_axis_and_an_interval_never() -> None:
    # 0 to 10 and 90 to 100: the gap of 80 is over 30% of 100; both parts get 8% of 20 around.
    assert spans([(0.0, 10.0), (90.0, 100.0)]) == [(88.4, 101.6), (-1.6, 11.6)]
    # The same ends as one interval: nothing to break. 8% of 100 around.
    assert spans([(0.0, 100.0), (50.0, 50.0)]) == [(-8.0, 108.0)]
    # One value: one unit stands for the range.
    assert spans([(5.0, 5.0)]) == [(4.85, 5.15)]
    assert tick_step(12.0) == 2.0
    assert tick_step(55.0) == 10.0


def test_controls_are_drawn_in_order_and_a_gap_is_named(tmp_path: Path) -> None:
    (ax,) = figure_of("controls", csv_of(tmp_path, "controls")).axes
    labels = [text.get_text() for text in ax.get_yticklabels()]
    assert labels == ["Vanilla", "shuffled experiences", "frozen composer", "self retrieval"]
    markers = {
        line.get_marker(): line.get_xdata()[0] for line in ax.lines if len(line.get_xdata()) == 1
    }
    assert markers == {">": 48.0, "o": 0.5, "<": -3.0}
    numbers = [text.get_text() for text in ax.child_axes[0].get_yticklabels()]
    assert numbers == [
        "48.0 [45.0, 50.8]",
        "0.5 [\N{MINUS SIGN}0.2, 1.1]",
        "\N{MINUS SIGN}3.0 [\N{MINUS SIGN}4.0, \N{MINUS SIGN}2.0]",
        "not measured",
    ]
    low, high = ax.get_ylim()
    assert low > high


def test_flagged_seeds_are_named_and_flagged_steps_marked(tmp_path: Path) -> None:
    drawn = figure_of("diagnostics", csv_of(tmp_path, "diagnostics"))
    assert [ax.get_title() for ax in drawn.axes if ax.get_title()] == ["LOPD\nflag: 1", "m = 0"]
    beta = drawn.axes[1]
    thick = [line for line in beta.lines if line.get_linewidth() > 3]
    # Seed 1's last step alone is flagged: beta is 0.9 there.
    assert [y for line in thick for y in line.get_ydata() if y == y] == [0.9]
    (margin,) = [line for line in drawn.axes[0].lines if list(line.get_xdata()) == [0, 1]]
    assert list(margin.get_ydata()) == [0.05, 0.05]


def test_divergence_is_a_mean_over_the_seeds_that_have_it(tmp_path: Path) -> None:
    drawn = figure_of("divergence", csv_of(tmp_path, "divergence"))
    failure = drawn.axes[1].lines[1]
    # Step 1: seeds 0.4 and 0.2; step 2: seed 0 had no failure, seed 1 0.1.
    assert list(failure.get_xdata()) == [32.0, 64.0]
    assert list(failure.get_ydata()) == pytest.approx([0.3, 0.1])


@pytest.mark.parametrize(
    ("figure", "text", "line"),
    [
        ("controls", "backbone,metric\n", "has no column 'label'"),
        (
            "controls",
            TABLES["controls"].splitlines()[0] + "\nsmall,envscaler,X,,,,incomplete\n",
            "no control was measured, so there is nothing to draw",
        ),
        (
            "diagnostics",
            TABLES["diagnostics"].splitlines()[0] + "\n",
            "no run logged a margin constraint, so there is nothing to draw",
        ),
        (
            "divergence",
            TABLES["diagnostics"].splitlines()[0] + "\n",
            "no run logged its divergence, so there is nothing to draw",
        ),
        (
            "controls",
            TABLES["controls"].replace("45.0", "much"),
            "ci_low = 'much', allowed: a number or nothing",
        ),
    ],
)
def test_tables_that_cannot_be_drawn(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], figure: str, text: str, line: str
) -> None:
    data = tmp_path / "data.csv"
    data.write_text(text)
    assert main(draw(figure, data, tmp_path / "one")) == 2
    assert f"error: {data}: {line}" in capsys.readouterr().err


def test_a_change_of_style_reaches_no_point() -> None:
    data = set(closure(ROOT, "lopd_repro.commands.figure_data"))
    style = {p for p in closure(ROOT, "lopd_repro.commands.figure") if "draw" in p.parts}
    assert style and not data & style
    assert ROOT / "lopd_repro/commands/figure.py" not in data
