"""HTML elements as strings. Whatever is not `Html` already is escaped; tags are always closed."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import TypeAlias

_VOID = frozenset({"br", "img", "meta"})
_OWN_LINE = frozenset(
    {"body", "details", "div", "dl", "figure", "footer", "h1", "h2", "h3", "head", "header"}
    | {"html", "li", "main", "meta", "nav", "p", "section", "style", "table", "tbody", "thead"}
    | {"title", "tr", "ul"}
)


class Html(str):
    """Text that is HTML already."""

    __slots__ = ()


Content: TypeAlias = "str | Iterable[Content] | None"


def text(content: Content) -> Html:
    """Content as HTML; nested lists are joined, None is nothing."""
    if content is None:
        return Html()
    if isinstance(content, Html):
        return content
    if isinstance(content, str):
        return Html(escape(content))
    return Html("".join(text(part) for part in content))


def el(name: str, /, *content: Content, **attributes: str | int | bool | None) -> Html:
    """One element. A trailing underscore of an attribute's name is dropped, others become
    hyphens (`class_`, `aria_label`); None and False leave the attribute out, True leaves its
    value out."""
    written = []
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        attribute = key.rstrip("_").replace("_", "-")
        written.append(f" {attribute}" if value is True else f' {attribute}="{escape(str(value))}"')
    end = "\n" if name in _OWN_LINE else ""
    opened = f"<{name}{''.join(written)}>"
    if name in _VOID:
        return Html(opened + end)
    return Html(f"{opened}{text(content)}</{name}>{end}")


def join(parts: Iterable[Content], between: str) -> Html:
    """Parts with a text between them."""
    return Html(text(between).join(text(part) for part in parts))
