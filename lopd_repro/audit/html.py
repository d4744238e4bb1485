"""The report as one self-contained HTML page: no script, no file or address outside itself."""

from __future__ import annotations

from html import escape

from lopd_repro.audit.report import (
    Block,
    Bullets,
    Entry,
    Grid,
    GridCell,
    Group,
    Heading,
    Paragraph,
    Report,
)

STYLE = """
:root { color-scheme: light; }
* { box-sizing: border-box; }
body { font: 16px/1.5 system-ui, sans-serif; color: #1c1c1c; background: #fff; margin: 0 auto;
  max-width: 72rem; padding: 1rem; overflow-wrap: anywhere; }
h1 { font-size: 1.5rem; line-height: 1.25; } h2 { font-size: 1.2rem; margin-top: 2.2rem; }
nav a { margin-right: 1rem; } a { color: #0b4f8a; }
p, li { max-width: 46rem; }
.scroll { overflow-x: auto; margin: .3rem 0 .4rem; }
table { border-collapse: separate; border-spacing: 0; font-size: .88rem;
  font-variant-numeric: tabular-nums; }
.caption { font-weight: 600; margin: 1.4rem 0 0; }
th, td { padding: .25rem .55rem; border-bottom: 1px solid #ddd; white-space: nowrap; }
td { text-align: right; } th { text-align: left; font-weight: 600; }
thead th { vertical-align: bottom; text-align: right; white-space: normal;
  min-width: 4rem; overflow-wrap: normal; }
tbody tr.first th, tbody tr.first td { border-top: 2px solid #888; }
thead th.stub { text-align: left; }
.stick { position: sticky; left: 0; background: #fff; }
sup { color: #0b4f8a; font-size: .7rem; } sup a { text-decoration: none; margin-left: .1rem; }
.contradiction { background: #f9d4d0; } .discrepancy { background: #fde9c4; }
.caution { background: #e6e1f5; } .info { background: #e3edf6; } .ok { background: #dcefdc; }
.notes { font-size: .85rem; padding-left: 0; list-style: none; max-width: 60rem; }
.notes li { margin: .25rem 0; max-width: none; }
.chip { display: inline-block; border-radius: .3rem; padding: 0 .45rem; margin-right: .4rem;
  font-size: .8rem; font-weight: 600; }
details.group > summary { font-weight: 600; margin: 1.2rem 0 .4rem; cursor: pointer; }
.entry { border-top: 1px solid #ddd; padding: .5rem 0; max-width: 60rem; }
.entry details { font-size: .88rem; color: #333; } .entry summary { cursor: pointer; }
.entry ul { margin: .2rem 0; padding-left: 1.2rem; } .entry li { max-width: none; }
:target { outline: 2px solid #0b4f8a; outline-offset: 2px; }
@media (max-width: 40rem) {
  .stick { white-space: normal; overflow-wrap: normal; max-width: 11rem; } }
@media print { .scroll { overflow: visible; } }
"""


def render_html(report: Report) -> str:
    """The whole report as one page."""
    links = "".join(
        f'<a href="#{block.anchor}">{escape(block.text)}</a>'
        for block in report.blocks
        if isinstance(block, Heading)
    )
    body = "\n".join(_block(block) for block in report.blocks)
    title = escape(report.title)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        f"<h1>{title}</h1>\n<nav>{links}</nav>\n{body}\n</body>\n</html>\n"
    )


def _block(block: Block) -> str:
    if isinstance(block, Heading):
        tag = f"h{block.level}"
        return f'<{tag} id="{block.anchor}">{escape(block.text)}</{tag}>'
    if isinstance(block, Paragraph):
        return f"<p>{escape(block.text)}</p>"
    if isinstance(block, Bullets):
        return "<ul>" + "".join(_item(item) for item in block.items) + "</ul>"
    if isinstance(block, Grid):
        return _grid(block)
    return _group(block)


def _item(item: str | tuple[str, tuple[str, ...]]) -> str:
    if isinstance(item, str):
        return f"<li>{escape(item)}</li>"
    under = "".join(f"<li>{escape(line)}</li>" for line in item[1])
    return f"<li>{escape(item[0])}<ul>{under}</ul></li>"


def _grid(grid: Grid) -> str:
    stub = sum(cell.header for cell in grid.rows[0]) if grid.rows else 0
    head = "<tr>" + "".join(
        _cell(cell, stick=n == stub, stub=n <= stub) for n, cell in enumerate(grid.header, start=1)
    )
    rows = []
    for row in grid.rows:
        first = ' class="first"' if stub > 1 and row[0].text else ""
        rows.append(
            f"<tr{first}>"
            + "".join(_cell(cell, stick=n == stub) for n, cell in enumerate(row, start=1))
            + "</tr>"
        )
    notes = ""
    if grid.notes:
        notes = (
            '<ul class="notes">'
            + "".join(
                f'<li><a href="#{mark}">{mark}</a> {escape(text)}</li>' for mark, text in grid.notes
            )
            + "</ul>"
        )
    return (
        f'<p class="caption">{escape(grid.caption)}</p><div class="scroll" tabindex="0">'
        f'<table aria-label="{escape(grid.caption)}">'
        f"<thead>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>{notes}"
    )


def _cell(cell: GridCell, *, stick: bool = False, stub: bool = False) -> str:
    """One cell. `stub` marks the header of a row-name column, `stick` the last such column, which
    stays in view when the table is scrolled sideways."""
    if cell.header:
        names = " ".join(["stick"] * stick + ["stub"] * stub)
        css = f' class="{names}"' if names else ""
        return f"<th{css}>{escape(cell.text)}</th>"
    links = ", ".join(f'<a href="#{mark}">{mark}</a>' for mark in cell.notes)
    marks = f"<sup>{links}</sup>" if links else ""
    css = f' class="{cell.severity}"' if cell.severity else ""
    hover = f' title="{escape(cell.hover)}"' if cell.hover else ""
    return f"<td{css}{hover}>{escape(cell.text)}{marks}</td>"


def _group(group: Group) -> str:
    opened = " open" if group.open else ""
    entries = "".join(_entry(entry) for entry in group.entries)
    return (
        f'<details class="group"{opened}><summary>{escape(group.title)}</summary>'
        f"{entries}</details>"
    )


def _entry(entry: Entry) -> str:
    lines = "".join(f"<li>{escape(line)}</li>" for line in entry.lines)
    opened = " open" if entry.open else ""
    detail = (
        f"<details{opened}><summary>arithmetic</summary><ul>{lines}</ul></details>" if lines else ""
    )
    return (
        f'<div class="entry" id="{entry.anchor}"><span class="chip {entry.css}">'
        f"{escape(entry.chip)}</span>{escape(entry.title)}{detail}</div>"
    )
