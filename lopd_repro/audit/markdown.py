"""The report in plain Markdown."""

from __future__ import annotations

from lopd_repro.audit.report import (
    Block,
    Bullets,
    Grid,
    GridCell,
    Group,
    Heading,
    Paragraph,
    Report,
)


def render_markdown(report: Report) -> str:
    """The whole report as one Markdown text."""
    return "\n\n".join([f"# {_plain(report.title)}", *map(_block, report.blocks)]) + "\n"


def _block(block: Block) -> str:
    if isinstance(block, Heading):
        return f"{'#' * block.level} {_plain(block.text)}"
    if isinstance(block, Paragraph):
        return _plain(block.text)
    if isinstance(block, Bullets):
        return "\n".join(_item(item) for item in block.items)
    if isinstance(block, Grid):
        return _grid(block)
    return _group(block)


def _item(item: str | tuple[str, tuple[str, ...]]) -> str:
    if isinstance(item, str):
        return f"- {_plain(item)}"
    return "\n".join([f"- {_plain(item[0])}", *(f"  - {_plain(line)}" for line in item[1])])


def _grid(grid: Grid) -> str:
    lines = [f"**{_plain(grid.caption)}**", ""]
    lines.append(_line(grid.header))
    lines.append("|" + "---|" * len(grid.header))
    lines += [_line(row) for row in grid.rows]
    if grid.notes:
        lines += ["", *(f"- {mark}: {_plain(text)}" for mark, text in grid.notes)]
    return "\n".join(lines)


def _line(cells: tuple[GridCell, ...]) -> str:
    texts = [
        _plain(cell.text) + (f" ({', '.join(cell.notes)})" if cell.notes else "") for cell in cells
    ]
    return "| " + " | ".join(texts) + " |"


def _group(group: Group) -> str:
    lines = [f"### {_plain(group.title)}", ""]
    for entry in group.entries:
        lines.append(f"- **{_plain(entry.chip)}** {_plain(entry.title)}")
        lines += [f"  - {_plain(line)}" for line in entry.lines]
    return "\n".join(lines)


def _plain(text: str) -> str:
    for mark in "\\`*_[]<>|":
        text = text.replace(mark, f"\\{mark}")
    return " ".join(text.split())
