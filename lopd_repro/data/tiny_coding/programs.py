"""Programs for the tiny tasks: the reference, a noisy one, and running either in this process.

`run_here` executes only programs that this module wrote, so no sandbox is needed and corpora are
cheap; a model's program never comes here.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import CodeType
from typing import Any

from lopd_repro.data.coding.schema import CodeTask
from lopd_repro.data.tiny_coding.families import FAMILIES, VALUES, Convention
from lopd_repro.errors import UserError


@dataclass(frozen=True)
class CodeNoise:
    """Probabilities of mistakes, each drawn once per program.

    Where the convention has no pre-step, `pre_wrong` adds one and `pre_omit` does nothing.
    `post_omit` gives the plain result. `value_wrong` takes another number than the statement's.
    """

    pre_omit: float = 0.0
    pre_wrong: float = 0.0
    post_omit: float = 0.0
    post_wrong: float = 0.0
    value_wrong: float = 0.0


GOLD = CodeNoise()


@dataclass(frozen=True)
class Request:
    """What a statement asks for: its variable, its number, and the function's name."""

    noun: str
    value: int
    name: str = ""


def solution(task: CodeTask, convention: Convention | None = None) -> str:
    """The reference program; `convention` defaults to the family's own."""
    _, family = FAMILIES[task.family]
    return _program(task.family, read_statement(task), convention or family.convention)


def noisy_solution(
    task: CodeTask,
    rng: random.Random,
    noise: CodeNoise = GOLD,
    convention: Convention | None = None,
) -> str:
    """A program with mistakes drawn from `noise`."""
    topic, family = FAMILIES[task.family]
    given = convention or family.convention
    request = read_statement(task)
    pre: str | None = given.pre
    draw = rng.random()
    if draw < noise.pre_wrong:
        pre = rng.choice([step for step in topic.pre_steps if step != given.pre])
    elif draw < noise.pre_wrong + noise.pre_omit:
        pre = None
    post = given.post
    draw = rng.random()
    if draw < noise.post_wrong:
        post = rng.choice([step for step in topic.post_steps if step != given.post])
    elif draw < noise.post_wrong + noise.post_omit:
        post = topic.plain
    if rng.random() < noise.value_wrong:
        value = rng.choice([v for v in VALUES if v != request.value])
        request = Request(request.noun, value, request.name)
    return _program(task.family, request, Convention(pre, post))


def program_lines(program: str) -> list[str]:
    """A program's lines without their indentation, blank ones left out."""
    return [text for line in program.splitlines() if (text := line.strip())]


def random_convention(family: str, rng: random.Random) -> Convention:
    """Uniform over the topic's pre-steps (none included) and post-steps."""
    topic, _ = FAMILIES[family]
    return Convention(rng.choice((None, *topic.pre_steps)), rng.choice(topic.post_steps))


def conventions(family: str) -> list[Convention]:
    """Every convention that a family's topic offers, the plain post-step too."""
    topic, _ = FAMILIES[family]
    return [
        Convention(pre, post)
        for pre in (None, *topic.pre_steps)
        for post in (*topic.post_steps, topic.plain)
    ]


def statement_of(family: str, template: int, request: Request) -> str:
    """The statement that asks for `request`, in one of the family's templates."""
    return (
        FAMILIES[family][1]
        .templates[template]
        .format(v=request.noun, k=request.value, f=request.name)
    )


def read_statement(task: CodeTask) -> Request:
    """What a tiny statement asks for, from its text alone; `UserError` for another text."""
    if task.family not in FAMILIES:
        raise UserError(f"task {task.task_id!r}: {task.family!r} is not a tiny coding family")
    for template in FAMILIES[task.family][1].templates:
        match = re.fullmatch(_pattern(template), task.statement)
        if match:
            found = match.groupdict()
            return Request(found["v"], int(found["k"]), found.get("f") or "")
    raise UserError(f"task {task.task_id!r}: {task.statement!r} is not a tiny statement")


def run_here(program: str, kind: str, entry_point: str, given: Any) -> Any:
    """Run one of our own programs: what it prints for a line, or what its function returns."""
    printed: list[str] = []

    def print_(*values: object, sep: str = " ") -> None:
        printed.append(sep.join(map(str, values)) + "\n")

    scope: dict[str, Any] = {"input": lambda: given, "print": print_}
    exec(_compiled(program), scope)
    return "".join(printed) if kind == "stdin" else scope[entry_point](given)


@lru_cache(maxsize=4096)
def _compiled(program: str) -> CodeType:
    return compile(program, "<tiny>", "exec")


def _program(family_name: str, request: Request, convention: Convention) -> str:
    topic, family = FAMILIES[family_name]
    steps: Sequence[str | None] = (convention.pre, family.core, convention.post)
    indent = "    " if topic.kind == "function" else ""
    lines = [topic.opening, *(indent + step for step in steps if step)]
    return "\n".join(line.format(v=request.noun, k=request.value, f=request.name) for line in lines)


def _pattern(template: str) -> str:
    """The template as a pattern; a slot that comes twice must hold the same text."""
    pattern = re.escape(template)
    for slot, text in (("v", r"[a-z]+"), ("k", r"\d+"), ("f", r"[a-z]+")):
        mark = re.escape("{" + slot + "}")
        pattern = pattern.replace(mark, f"(?P<{slot}>{text})", 1).replace(mark, f"(?P={slot})")
    return pattern
