"""The few Markdown forms our own notes use, as HTML."""

from __future__ import annotations

import re
from collections.abc import Iterator

from lopd_repro.report.page.markup import Content, Html, el, text

_INLINE = re.compile(r"\*\*(?P<bold>[^*]+)\*\*|`(?P<code>[^`]+)`")


def markdown(source: str) -> Html:
    """A note as HTML. Headings become bold lines: the page has headings of its own."""
    return text(_blocks(source.splitlines()))


def _blocks(lines: list[str]) -> Iterator[Content]:
    paragraph: list[str] = []
    items: list[str] = []

    def close() -> Iterator[Content]:
        if paragraph:
            yield el("p", inline(" ".join(paragraph)))
            paragraph.clear()
        if items:
            yield el("ul", [el("li", inline(item)) for item in items])
            items.clear()

    for line in lines:
        stripped = line.strip()
        if not stripped:
            yield from close()
        elif stripped.startswith("#"):
            yield from close()
            yield el("p", el("strong", inline(stripped.lstrip("#").strip())))
        elif stripped.startswith("- "):
            if paragraph:
                yield from close()
            items.append(stripped[2:])
        elif items:
            items[-1] += f" {stripped}"
        else:
            paragraph.append(stripped)
    yield from close()


def inline(source: str) -> Html:
    """Bold and code within a line."""
    parts: list[Content] = []
    end = 0
    for match in _INLINE.finditer(source):
        parts.append(source[end : match.start()])
        bold, code = match["bold"], match["code"]
        parts.append(el("strong", bold) if bold else el("code", code))
        end = match.end()
    return text([*parts, source[end:]])
