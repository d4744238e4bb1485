"""An episode as an experience: numbered lines `tool(arguments) -> short result`."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class TraceStep:
    """A call that was run and what came back; `raised` if the tool raised."""

    name: str
    arguments: dict[str, Any]
    result: str
    raised: bool = False


def format_call(name: str, arguments: dict[str, Any]) -> str:
    """`tool(key=value, ...)` with values as JSON."""
    given = (f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in arguments.items())
    return f"{name}({', '.join(given)})"


def shorten(text: str, max_chars: int) -> str:
    """Text on one line, cut to at most `max_chars` characters, the last three then dots."""
    line = " ".join(text.split())
    return line if len(line) <= max_chars else line[: max(max_chars - 3, 0)] + "..."


def lite_trace(steps: Iterable[TraceStep], max_chars: int = 120) -> str:
    """The observation-lite trace of the experience bank, each result cut to `max_chars`."""
    return "\n".join(
        f"{number}. {format_call(step.name, step.arguments)} -> {shorten(step.result, max_chars)}"
        for number, step in enumerate(steps, 1)
    )
