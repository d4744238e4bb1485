"""A self-contained HTML page: one style, no outside resources."""

from __future__ import annotations

import html
from collections.abc import Iterable

_STYLE = """
:root { color-scheme: light; }
body { font: 15px/1.45 system-ui, sans-serif; color: #1b1b1b; margin: 0 auto; padding: 1rem;
  max-width: 76rem; }
h1 { font-size: 1.35rem; } h2 { font-size: 1.05rem; margin-top: 1.6rem; }
.notice { border-left: 4px solid #b45309; background: #fef3e2; padding: .5rem .8rem; }
.wrap { overflow-x: auto; }
table { border-collapse: separate; border-spacing: 0; font-size: .86rem; }
th, td { padding: .3rem .55rem; border-bottom: 1px solid #ddd; text-align: right;
  white-space: nowrap; vertical-align: top; }
th:first-child, td:first-child { text-align: left; position: sticky; left: 0; background: #fff; }
tr.backbone th { text-align: left; background: #f3f4f6; }
.ci, .paper, .sub { display: block; font-size: .76rem; color: #555; }
.sub { font-weight: 400; white-space: normal; max-width: 9rem; }
th .sub { margin-left: auto; }
.empty { color: #999; }
ul { padding-left: 1.2rem; } li { margin: .15rem 0; overflow-wrap: anywhere; }
"""


def document(title: str, notice: str, legend: str, table: str, notes: Iterable[str]) -> str:
    """A page with one table; `table` is the HTML within `<table>`, the rest is plain text."""
    e = html.escape
    items = "".join(f"<li>{e(note)}</li>" for note in notes)
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{e(title)}</title><style>{_STYLE}</style></head><body><h1>{e(title)}</h1>"
        f'<p class="notice">{e(notice)}</p><p>{e(legend)}</p>'
        f'<div class="wrap"><table>{table}</table></div><h2>Notes</h2><ul>{items}</ul>'
        "</body></html>\n"
    )


def cell(value: str, interval: str, reported: str) -> str:
    """A measured value over its interval and the paper's number; an empty one says so."""
    paper = f'<span class="paper">paper {html.escape(reported)}</span>' if reported else ""
    if not value:
        return f'<td><span class="empty">not measured</span>{paper}</td>'
    return f'<td>{value}<span class="ci">{interval}</span>{paper}</td>'
