"""The command, its four files, and the page."""

from __future__ import annotations

import csv
import re
import subprocess
import sys
import time
from html.parser import HTMLParser
from pathlib import Path

import pytest
from audit_paper_helpers import INVENTED, REAL, audit, change, invented_copy

from lopd_repro.audit import run_audit
from lopd_repro.audit.__main__ import main
from lopd_repro.audit.html import render_html
from lopd_repro.audit.markdown import render_markdown
from lopd_repro.audit.report import build_report

VOID = {"meta", "br", "hr", "img", "link", "input"}


class Page(HTMLParser):
    """Checks nesting; collects ids, link targets, titles and text."""

    def __init__(self) -> None:
        super().__init__()
        self.stack: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.titles: list[str] = []
        self.tags: set[str] = set()
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        for name, value in attrs:
            if name == "id":
                self.ids.append(value or "")
            elif name in ("href", "src"):
                self.links.append(value or "")
            elif name == "title":
                self.titles.append(value or "")
        if tag not in VOID:
            self.stack.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.stack and self.stack.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def page_of(html: str) -> Page:
    page = Page()
    page.feed(html)
    page.close()
    assert page.stack == []
    return page


def test_four_files(tmp_path: Path) -> None:
    run_audit(INVENTED, tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "claims.csv",
        "findings.csv",
        "report.html",
        "report.md",
    ]
    with (tmp_path / "findings.csv").open(newline="") as handle:
        findings = list(csv.DictReader(handle))
    assert list(findings[0]) == [
        "id",
        "check",
        "severity",
        "cells",
        "statement",
        "evidence",
        "numbers",
    ]
    assert [f["id"] for f in findings] == [f"F{i:03d}" for i in range(1, len(findings) + 1)]
    with (tmp_path / "claims.csv").open(newline="") as handle:
        claims = list(csv.DictReader(handle))
    assert [c["id"] for c in claims] == ["K1", "K2", "K3", "K4", "K5"]
    assert {c["reproduced"] for c in claims} == {"not tested"}


def test_same_input_same_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        run_audit(REAL, tmp_path / name)
    for path in (tmp_path / "a").iterdir():
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes()


def test_page_is_self_contained() -> None:
    page = page_of(render_html(build_report(audit(REAL))))
    assert len(page.ids) == len(set(page.ids))
    assert {link for link in page.links if not link.startswith("#")} == set()
    assert {link[1:] for link in page.links} <= set(page.ids)
    assert not page.tags & {"script", "img", "link", "iframe"}
    hover = next(t for t in page.titles if t.startswith("table2[Qwen3-4B,OPSD,humaneval_plus]"))
    assert "count 140 of 164" in hover and "95% interval 79.1 to 90.0" in hover


def test_page_and_markdown_say_the_same() -> None:
    report = build_report(audit(REAL))
    page = " ".join(page_of(render_html(report)).text.split())
    markdown = re.sub(r"\\([\\`*_\[\]<>|])", r"\1", render_markdown(report))
    for name, finding in audit(REAL).findings:
        statement = " ".join(finding.statement.split())
        assert statement in page and statement in markdown, name
    for item in audit(REAL).claims:
        assert item.claim.statement in page and item.claim.statement in markdown


def test_summary_comes_first() -> None:
    html = render_html(build_report(audit(REAL)))
    order = [html.index(f'id="{name}"') for name in ("summary", "tables", "findings", "claims")]
    assert order == sorted(order)


def test_names_are_escaped(tmp_path: Path) -> None:
    folder = invented_copy(tmp_path)
    for file in ("scores.csv", "speed.csv", "curve.csv", "protocol.yaml", "claims.yaml"):
        text = (folder / file).read_text()
        (folder / file).write_text(text.replace("Old", "<b>Old&Co</b>"))
    html = render_html(build_report(audit(folder)))
    assert "<b>Old" not in html and "&lt;b&gt;Old&amp;Co" in html
    page_of(html)


def test_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:  # type: ignore[no-untyped-def]
    folder = invented_copy(tmp_path)
    arguments = ["audit", "--paper", str(folder), "--out", str(tmp_path / "out")]
    monkeypatch.setattr(sys, "argv", arguments)
    assert main() == 0
    assert "0 contradiction" in capsys.readouterr().out
    # findings of any severity are no failure
    change(folder, "claims.yaml", "= 15.0", "= 16.0")
    assert main() == 0
    assert "1 contradiction" in capsys.readouterr().out
    # unusable input is, with one line and nothing written
    change(folder, "scores.csv", "Ant,Old,easy,58.3", "Ant,Old,easy,158.3")
    arguments[-1] = str(tmp_path / "other")
    assert main() == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and "row 5, column value" in error
    assert not (tmp_path / "other").exists()


def test_quick_and_without_torch(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from lopd_repro.audit import run_audit; "
        f"run_audit(Path({str(REAL)!r}), Path({str(tmp_path)!r})); "
        "print(sorted({'torch', 'transformers', 'pandas', 'matplotlib'} & set(sys.modules)))"
    )
    start = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    assert time.perf_counter() - start < 10
