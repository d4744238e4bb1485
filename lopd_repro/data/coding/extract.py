"""Rules that take the program out of a reply.

A fence opens at a line that starts with three backticks (a word may follow) and closes at the
next such line. `last_fence_lines` is LiveCodeBench's rule: what lies between the last two lines
that hold three backticks anywhere.
"""

from __future__ import annotations

from collections.abc import Callable

from lopd_repro.errors import UserError

_MARK = "```"


def extract(reply: str, rule: str) -> str | None:
    """The program in a reply, or None where the rule finds none."""
    if rule not in RULES:
        raise UserError(f"extraction: found {rule!r}, allowed: {', '.join(RULES)}")
    return RULES[rule](reply)


def _fences(reply: str) -> list[str]:
    found: list[str] = []
    inside: list[str] | None = None
    for line in reply.split("\n"):
        if not line.lstrip().startswith(_MARK):
            if inside is not None:
                inside.append(line)
        elif inside is None:
            inside = []
        else:
            found.append("\n".join(inside))
            inside = None
    return found


def _first_fence(reply: str) -> str | None:
    return next(iter(_fences(reply)), None)


def _last_fence(reply: str) -> str | None:
    return next(reversed(_fences(reply)), None)


def _last_fence_lines(reply: str) -> str | None:
    lines = reply.split("\n")
    marks = [index for index, line in enumerate(lines) if _MARK in line]
    return "\n".join(lines[marks[-2] + 1 : marks[-1]]) if len(marks) >= 2 else None


def _whole_reply(reply: str) -> str | None:
    return reply if reply.strip() else None


RULES: dict[str, Callable[[str], str | None]] = {
    "first_fence": _first_fence,
    "last_fence": _last_fence,
    "last_fence_lines": _last_fence_lines,
    "whole_reply": _whole_reply,
}
