"""From a model's text to a program.

`official` is what LiveCodeBench does: with chat models, the lines between the last two lines that
hold three backticks, whatever they are. A trailing block of sample output therefore becomes the
program, and a program that holds backticks is cut. `strict` is what a reader would take.
"""

from __future__ import annotations

import re
from typing import Literal

from lopd_repro.data.coding.extract import extract

Style = Literal["OpenAIChat", "GenericBase", "CodeLLaMaInstruct"]

_PYTHON = {"python", "python3", "py"}
_OPENING = re.compile(r"[ \t]*(`{3,})[ \t]*([^`\s]*)[^`]*")


def official(text: str, style: Style = "OpenAIChat") -> str | None:
    """LiveCodeBench's program of a text, "" where it finds none.

    OpenAIChat stands for all of its styles but two: GenericBase takes the whole text, stripped;
    CodeLLaMaInstruct gives None, since the official function falls off its end there.
    """
    if style == "CodeLLaMaInstruct":
        return None
    if style == "GenericBase":
        return text.strip()
    return extract(text, "last_fence_lines") or ""


def strict(text: str) -> str:
    """The last closed block that is marked as Python, else the last closed block without a mark.

    A block opens at a line of at least three backticks and an optional mark. It closes at a line
    of as many backticks, or behind the last line of code where they end that line. "" if there is
    none.
    """
    marked, plain = "", ""
    mark: str | None = None
    ticks = ""
    body: list[str] = []
    for line in text.split("\n"):
        line = line.rstrip()
        if mark is None:
            if found := _OPENING.fullmatch(line):
                ticks, mark, body = found[1], found[2].lower(), []
            continue
        body.append(line.removesuffix(ticks))
        if not line.endswith(ticks):
            continue
        program = "\n".join(body if body[-1].strip() else body[:-1])
        if mark in _PYTHON:
            marked = program
        elif not mark:
            plain = program
        mark = None
    return marked or plain
