"""The page: well-formed and self-contained, absent parts said, nothing invented, all escaped."""

from __future__ import annotations

import base64
import csv
import io
import json
import struct
import zlib
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from lopd_repro.cli import main
from lopd_repro.errors import UserError
from lopd_repro.report.behaviour import COLUMNS, SUFFIXES
from lopd_repro.report.budget import BUDGET_COLUMNS
from lopd_repro.report.controls import CONTROLS_COLUMNS
from lopd_repro.report.diagnostics import SUMMARY_COLUMNS
from lopd_repro.report.figures.points import COLUMNS as POINT_COLUMNS
from lopd_repro.report.layout import TABLE1
from lopd_repro.report.page.costs import headline, read_jobs
from lopd_repro.report.page.markdown import markdown
from lopd_repro.report.page.markup import Html, el
from lopd_repro.report.page.numbers import number, seconds, span
from lopd_repro.report.page.picture import natural_size
from lopd_repro.report.page.results import Results
from lopd_repro.report.selection import SELECTION_COLUMNS
from lopd_repro.stats import COMPARISON_COLUMNS

TABLES = ["table1", "table2", "table3"]
FIGURES = ["figure3", "figure4", "figure5"]
ANALYSES = ["comparisons", "selection", "controls", "diagnostics", "budget"]
SECTIONS = ["run", *TABLES, *FIGURES, *ANALYSES, "audit", "costs", "environment"]
HOSTILE = "<script>alert('x')</script>&\"'"
SETTINGS: dict[str, Any] = {
    "scale": "test",
    "notice": "No <evidence> & nothing else.",
    "preset": "paper",
    "seeds": [0, 1],
    "methods": ["vanilla", "grpo", "lopd"],
    "controls": ["lopd_shuffled"],
    "labels": {"vanilla": "Vanilla", "grpo": "GRPO", "lopd": "LOPD", "lopd_shuffled": HOSTILE},
    "backbones": {"tool_use": {"small": {"label": "Small", "paper_backbone": "Qwen3-4B"}}},
    "figure4": {"methods": ["lopd"]},
}
VOID = {"br", "img", "meta"}


class Page(HTMLParser):
    """Checks that tags close in order; gathers ids, links, sources and each section's text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.sources: list[str] = []
        self.tags: set[str] = set()
        self.section = ""
        self.text: dict[str, str] = {}
        self.cells: dict[str, list[list[str]]] = {}
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        own = dict(attrs)
        self.tags.add(tag)
        if tag not in VOID:
            self.open.append(tag)
        if "id" in own:
            self.ids.append(own["id"] or "")
        self.links += [own["href"] or ""] if "href" in own else []
        self.sources += [own["src"] or ""] if "src" in own else []
        if tag in ("section", "header"):
            self.section = own.get("id") or ""
        if tag == "tr":
            self.cells.setdefault(self.section, []).append([])
        if tag in ("td", "th"):
            self.cells[self.section][-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open[-1] == tag, f"</{tag}> closes {self.open[-1:]}"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        self.text[self.section] = self.text.get(self.section, "") + data
        if "td" in self.open or "th" in self.open:
            separator = "|" if self.open[-1] == "small" else ""
            self.cells[self.section][-1][-1] += separator + data


def put(path: Path, columns: Any, *rows: dict[str, Any]) -> None:
    out = io.StringIO()
    writer = csv.DictWriter(out, list(columns), restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(out.getvalue())


def png(width: int, height: int, dots_per_metre: int = 0) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        check = zlib.crc32(kind + data)
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", check)

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0))
    size = struct.pack(">IIB", dots_per_metre, dots_per_metre, 1)
    data = zlib.compress(b"".join(b"\0" + bytes(width) for _ in range(height)))
    return (
        b"\x89PNG\r\n\x1a\n"
        + head
        + (chunk(b"pHYs", size) if dots_per_metre else b"")
        + chunk(b"IDAT", data)
        + chunk(b"IEND", b"")
    )


def table1(root: Path) -> None:
    columns = ["scale", "backbone", "method", "n_seeds"]
    for metric in TABLE1.metrics:
        ends = ("", "_std", "_ci_low", "_ci_high", "_reported")
        columns += [metric.name + end for end in ends]
    about = {"scale": "test", "backbone": "small", "n_seeds": 2}
    score = {"envscaler": "51.9531", "envscaler_std": "1.3453"}
    bounds = {"envscaler_ci_low": "49.0017", "envscaler_ci_high": "54.9702"}
    put(
        root / "table1.csv",
        columns,
        {**about, "method": "Vanilla", **score, **bounds, "envscaler_reported": "48.6000"},
        {**about, "method": "LOPD", "bfcl_base": "12.5000", "bfcl_base_reported": "32.5000"},
    )
    (root / "table1.md").write_text("# Table\n\n- EnvScaler: made & up.\n")


def comparisons(root: Path) -> None:
    about = {"scale": "test", "metric": "envscaler", "backbone": "small", "n_seeds": 2}
    put(
        root / "comparisons.csv",
        COMPARISON_COLUMNS,
        {
            **about,
            "method_a": "vanilla",
            "method_b": "lopd",
            "difference": "-47.9460",
            "ci_low": "-50.7600",
            "ci_high": "-44.9500",
            "p_holm": "0.0042",
            "verdict": "b_higher",
        },
        {
            **about,
            "method_a": "vanilla",
            "method_b": "grpo",
            "difference": "0.0400",
            "ci_low": "-1.0000",
            "ci_high": "2.0000",
            "p_holm": "0.9000",
            "verdict": "undecided",
        },
        {**about, "method_a": "grpo", "method_b": "lopd", "verdict": "incomplete"},
    )


def analyses(root: Path) -> None:
    about = {"scale": "test", "backbone": "small"}
    put(
        root / "controls.csv",
        CONTROLS_COLUMNS,
        {
            **about,
            "control": "lopd_shuffled",
            "label": HOSTILE,
            "n_tasks": 4,
            "lopd": "90.0000",
            "control_score": "71.4700",
            "difference": "28.4200",
            "ci_low": "25.0700",
            "ci_high": "31.7700",
            "p_holm": "0.0016",
            "verdict": "lopd_higher",
            "gain_kept": "0.4070",
        },
    )
    (root / "controls_verdict.md").write_text(
        "**Decisive control: LOPD is higher.** By 28.42 points. So it goes on.\n"
    )
    put(
        root / "selection.csv",
        SELECTION_COLUMNS,
        {
            **about,
            "choice": "margin",
            "method": "lopd",
            "seed": "all",
            "candidates": "0; 0.05",
            "rule": "highest",
            "validation_scores": "0=96.20; 0.05=99.60",
            "chosen_on_validation": "0.05",
            "test_score": "91.0000",
            "test_scores": "0=93.00; 0.05=91.00",
            "chosen_on_test": "0",
            "printed_if_chosen_on_test": "93.0000",
            "optimism": "2.0000",
            "optimism_ci_low": "0.5000",
            "optimism_ci_high": "3.2500",
        },
    )
    put(
        root / "diagnostics_summary.csv",
        SUMMARY_COLUMNS,
        {**about, "method": "lopd", "label": "LOPD", "seed": 0, "delta": "0.0123", "flag": 1},
        {**about, "method": "lopd", "label": "LOPD", "seed": 1, "delta": "0.0750", "flag": 0},
    )
    claim = {"method": "lopd", "limit": "0.3000", "counted": "training", "n_seeds": 2}
    put(
        root / "budget.csv",
        BUDGET_COLUMNS,
        {
            **about,
            **claim,
            "against": "claim",
            "rival": "grpo",
            "generations": "320",
            "generations_ci_low": "320",
            "generations_ci_high": "not reached",
            "share": "0.2500",
            "verdict": "undecided",
        },
        {**about, **claim, "against": "claim", "rival": "grpo; vanilla", "verdict": "undecided"},
    )
    reward = {f"{column}{end}": "" for column in COLUMNS for end in SUFFIXES}
    row = {"vanilla": "0.519531", "vanilla_ci_low": "0.49", "vanilla_ci_high": "0.55"}
    put(
        root / "table3.csv",
        ["metric", *reward, "backbone"],
        {"metric": "reward", **reward, **row, "vanilla_reported": "0.486", "backbone": "small"},
    )
    point = {"figure": "figure3", "label": "LOPD, m = 0", "x": "0", "metric": "envscaler"}
    put(
        root / "figure3.csv",
        POINT_COLUMNS,
        {**point, "value": "96.1589", "ci_low": "94.4878", "ci_high": "97.6128", "n_seeds": 2}
        | {"source": "measured", "split": "test"},
        {**point, "value": "55.1000", "printed": "0.551", "source": "paper"},
    )
    (root / "figure3.png").write_bytes(png(300, 150, 3937))


def audit(root: Path) -> None:
    finding = {"id": "F001", "check": "x", "severity": "contradiction", "statement": "1 > 2 & so"}
    put(root / "audit/findings.csv", finding, finding)
    claim = {"id": "C01", "where": "abstract", "statement": "Best.", "verdict": "consistent"}
    put(root / "audit/claims.csv", claim, claim)
    (root / "audit/report.html").write_text("x")
    second = {**claim, "reproduced": "not tested", "reproduction_detail": "no evidence"}
    put(root / "audit_reproduced/claims.csv", second, second)


def runs(root: Path) -> None:
    for method, python in (("lopd", "3.11.7"), ("lopd_shuffled", "3.12.1")):
        folder = root / "runs/tool_use/small" / method / "seed0"
        folder.mkdir(parents=True)
        manifest = {
            "method": method,
            "python": python,
            "packages": {"torch": "2.13.0"},
            "hardware": {"cores": 2, "gpu": None},
            "settings": {"train": {"steps": 40, "rollouts_per_step": 32}},
            "settings_digest": "ab" * 32,
            "source_digest": "cd" * 8,
        }
        (folder / "manifest.json").write_text(json.dumps(manifest))
    times = "s\th:m:s\tmax_rss\tcpu_time\n"
    for name, row in (
        ("train/tool_use/small/lopd/seed0", "50.0\t0:00:50\t1000.5\t40.0"),
        ("train/tool_use/small/lopd_shuffled/seed0", "30.0\t0:00:30\t900\t20.0"),
        ("evaluate/bfcl/small/lopd/seed0", "20.0\t0:00:20\tNA\t-"),
        ("page", "999.0\t0:16:39\t1\t999"),
    ):
        path = root / "benchmarks" / f"{name}.tsv"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{times}{row}\n")


def fill(root: Path) -> None:
    for make in (table1, comparisons, analyses, audit, runs):
        make(root)


def page(root: Path, *more: str, settings: dict[str, Any] = SETTINGS) -> str:
    out = root / "index.html"
    arguments = ["--settings", json.dumps(settings), "--results", str(root), "--out", str(out)]
    assert main(["page", *arguments, *more]) == 0
    return out.read_text()


@pytest.fixture
def results(tmp_path: Path) -> Path:
    fill(tmp_path)
    return tmp_path


def test_without_results_every_section_says_so_and_names_its_target(tmp_path: Path) -> None:
    found = Page(page(tmp_path))
    assert [name for name in found.ids if name != "top"] == SECTIONS
    for name in SECTIONS:
        assert "Not made in this run." in found.text[name]
    assert f"snakemake --cores all {tmp_path}/figure4.png" in found.text["figure4"]
    assert f"snakemake --cores all {tmp_path}/audit/report.html" in found.text["audit"]
    # The settings name no coding backbone, so no target of theirs makes Table 2.
    assert "snakemake" not in found.text["table2"]
    assert found.cells == {}
    assert "More" not in found.text["top"]


def test_the_page_is_well_formed_and_self_contained(results: Path) -> None:
    text = page(results)
    found = Page(text)
    assert found.sources and all(s.startswith("data:image/png;base64,") for s in found.sources)
    for link in found.links:
        if link.startswith("#"):
            assert link[1:] in found.ids
        elif not link.startswith("https://arxiv.org/"):
            assert (results / unquote(link)).is_file()
    assert len(set(found.ids)) == len(found.ids)
    assert {"script", "link", "iframe"}.isdisjoint(found.tags)
    assert "@import" not in text and "url(" not in text
    for name in set(SECTIONS) - {"table2", "figure4", "figure5"}:
        assert "Not made in this run." not in found.text[name]


def test_the_notice_and_hostile_labels_are_text(results: Path) -> None:
    text = page(results)
    assert "<script" not in text
    found = Page(text)
    assert SETTINGS["notice"] in found.text["top"]
    assert HOSTILE in found.text["controls"]
    assert HOSTILE in found.text["run"]
    assert HOSTILE in found.text["costs"]


def test_cells_are_those_of_the_csv(results: Path) -> None:
    reported = results / "paper"
    reported.mkdir()
    header = "backbone,method,metric,value\n"
    (reported / "table1.csv").write_text(f"{header}Qwen3-4B,LOPD,bfcl_base,32.50\n")
    found = Page(page(results, "--reported", str(reported)))
    assert found.cells["table1"] == [
        ["Method", "EnvScaler", "BFCL base"],
        ["Small (paper: Qwen3-4B)"],
        ["Vanilla", "52.0 ± 1.3|49.0 to 55.0paper 48.6", "not measured"],
        ["LOPD", "not measured", "12.5paper 32.50"],
    ]
    assert "EnvScaler: made & up." in found.text["table1"]
    assert found.cells["table3"][1][:2] == ["Reward", "0.520|0.490 to 0.550paper 0.486"]
    assert found.cells["figure3"][1:] == [
        ["LOPD, m = 0", "0", "EnvScaler", "test", "96.2|94.5 to 97.6", "2"],
        ["LOPD, m = 0", "0", "EnvScaler", "", "paper 0.551", ""],
    ]


def test_another_table_of_a_domain_may_stand_in_for_the_papers(results: Path) -> None:
    row = {"scale": "test", "backbone": "code", "method": "LOPD", "humaneval_base": "21.3000"}
    put(results / "humaneval.csv", row, row)
    coding = {"backbones": {**SETTINGS["backbones"], "coding": {"code": {"label": "Code"}}}}
    found = Page(page(results, settings={**SETTINGS, **coding}))
    assert found.text["table2"].strip().endswith("Not made in this run.")
    assert ["LOPD", "21.3"] in found.cells["humaneval"]
    assert ["Code"] in found.cells["humaneval"]


def test_a_comparison_turns_its_sign_with_its_direction(results: Path) -> None:
    found = Page(page(results))
    rows = found.cells["comparisons"]
    # LOPD against the others: the CSV has vanilla minus LOPD.
    assert ["Metric", "Vanilla", "GRPO"] in rows
    assert ["EnvScaler", "+47.9▲|+45.0 to +50.8", "incomplete"] in rows
    assert ["Vanilla", "", "-47.9▼", "0.0"] in rows or ["Vanilla", "", "0.0", "-47.9▼"] in rows
    assert "higher in 1 of 1 comparisons, lower in 0, undecided in 0" in found.text["top"]


def test_the_analyses_are_those_of_their_files(results: Path) -> None:
    found = Page(page(results))
    assert "Decisive control: LOPD is higher. By 28.42 points. More" in " ".join(
        found.text["top"].split()
    )
    row = found.cells["controls"][1]
    assert row[1:5] == ["71.5", "+28.42|+25.07 to +31.77", "0.0016", "LOPD higher"]
    assert row[6] == "41%"
    # margin: optimism 93 - 91.
    row = next(r for r in found.cells["selection"] if r[0].startswith("Margin m") and len(r) > 1)
    assert row[1] == "0.05" and row[4:7] == ["0", "93.0", "2.00|0.50 to 3.25"]
    assert ["0.05", "99.60", "91.00"] in found.cells["selection"]
    assert "1 of 2 of LOPD's own runs" in found.text["diagnostics"]
    assert found.cells["diagnostics"][1][1] == "flagged"
    claim = next(r for r in found.cells["budget"] if r[0] == "GRPO")
    assert claim[1:5] == ["320|320 to not reached", "", "25%", "30%"]
    assert "less than 30% of their generations: at this scale undecided" in found.text["top"]


def test_the_ledger_has_both_verdicts(results: Path) -> None:
    found = Page(page(results)).text["audit"]
    assert "1 contradiction, 0 discrepancies" in found
    assert "this run: not tested" in found and "no evidence" in found
    assert "1 > 2 & so" in found


def test_costs_are_sums_over_jobs_without_the_page_itself(results: Path) -> None:
    rows = {row[0]: row[1:] for row in Page(page(results)).cells["costs"]}
    # Wall 50 + 30 of 100 s, CPU 40 + 20; the evaluation's CPU time is not known.
    assert rows["train tool use"] == ["2", "80", "60", "80.0%", "0.75", "1,000"]
    assert rows["evaluate bfcl"] == ["1", "20", "0", "20.0%", "0.00", ""]
    assert rows["all"] == ["3", "100", "60", "100.0%", "0.60", "1,000"]
    assert rows["train tool use: LOPD"] == ["1", "50", "40", "50.0%", "0.80", "1,000"]
    jobs = list(read_jobs(Results(results, results / "index.html")))
    assert headline(jobs) == "3 jobs, 2 min of wall time, 60 s of CPU time (CPU / wall 0.60)"


def test_environment_shows_where_runs_differ(results: Path) -> None:
    rows = {row[0]: row[1] for row in Page(page(results)).cells["environment"] if len(row) > 1}
    assert rows["Python"] == "3.11.7 (1 runs)|3.12.1 (1 runs)"
    assert rows["torch"] == "2.13.0"
    assert rows["GPU"] == "none"


def test_the_same_results_give_the_same_bytes(results: Path) -> None:
    assert page(results) == page(results)


def test_links_are_relative_to_the_page(results: Path) -> None:
    out = results / "pages" / "one.html"
    arguments = ["--settings", json.dumps(SETTINGS), "--results", str(results)]
    assert main(["page", *arguments, "--out", str(out)]) == 0
    assert "../table1.csv" in Page(out.read_text()).links


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("table1.csv", "scale,backbone\nx\n", "table1.csv: row 1 has not 2 cells"),
        ("figure3.png", "GIF89a", "figure3.png: not a PNG file"),
        ("benchmarks/a.tsv", "seconds\n1\n", "a.tsv: not a time file"),
    ],
)
def test_an_unusable_file_is_one_clear_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, content: str, message: str
) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(content)
    out = tmp_path / "index.html"
    arguments = ["--settings", json.dumps(SETTINGS), "--results", str(tmp_path)]
    assert main(["page", *arguments, "--out", str(out)]) == 2
    error = capsys.readouterr().err
    assert message in error and len(error.splitlines()) == 1
    assert not out.exists()


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    out = tmp_path / "index.html"
    arguments = ["--settings", json.dumps(SETTINGS), "--results", str(tmp_path / "none")]
    assert main(["page", *arguments, "--out", str(out)]) == 2


def test_elements_escape_everything_that_is_not_html() -> None:
    made = el("a", "<b>", [el("b", "x"), None, " & "], href='"y"', class_="z", open=True, id=None)
    assert made == '<a href="&quot;y&quot;" class="z" open>&lt;b&gt;<b>x</b> &amp; </a>'
    assert el("br") == "<br>"
    assert el("i", Html("<u>")) == "<i><u></i>"


def test_markdown_keeps_markup_out() -> None:
    source = "# Head\n\nOne **bold** `a<b`\ntwo <i>\n- first\n  more\n- second\n"
    assert markdown(source).replace("\n", "") == (
        "<p><strong>Head</strong></p><p>One <strong>bold</strong> <code>a&lt;b</code> two"
        " &lt;i&gt;</p><ul><li>first more</li><li>second</li></ul>"
    )


@pytest.mark.parametrize(
    ("value", "places", "sign", "shown"),
    [
        ("48.6000", None, False, "48.6"),
        ("1280", None, False, "1280"),
        ("1280", 0, False, "1,280"),
        ("-0.04", 1, True, "0.0"),
        ("0.0500", 1, True, "+0.1"),
        ("28.42", 2, True, "+28.42"),
        ("-0.0000", None, False, "0"),
        ("not reached", 1, True, "not reached"),
        ("nan", 1, False, "nan"),
        ("", 1, False, ""),
    ],
)
def test_numbers(value: str, places: int | None, sign: bool, shown: str) -> None:
    assert number(value, places, sign=sign) == shown


def test_spans_and_durations() -> None:
    assert span("1.25", "", 1) == ""
    assert span("-1.26", "2.04", 1, sign=True) == "-1.3 to +2.0"
    assert [seconds(s) for s in (41.2, 89.6, 720, 3599, 3900)] == [
        "41 s",
        "90 s",
        "12 min",
        "1 h 00 min",
        "1 h 05 min",
    ]


def test_a_picture_has_the_size_of_its_resolution() -> None:
    # 3,937 dots per metre are 100 per inch: 300 dots are 3 inches, or 288 CSS pixels.
    assert natural_size(png(300, 150, 3937), Path("x.png")) == (288, 144)
    assert natural_size(png(300, 150), Path("x.png")) == (300, 150)
    with pytest.raises(UserError, match="not a PNG"):
        natural_size(b"\x89PNG\r\n\x1a\n", Path("x.png"))


def test_the_picture_in_the_page_is_the_file(results: Path) -> None:
    source = Page(page(results)).sources[0]
    encoded = source.removeprefix("data:image/png;base64,")
    assert base64.b64decode(encoded) == (results / "figure3.png").read_bytes()
