"""A programming task with its tests: a program on standard input, or one function."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True)
class CodeCase:
    """One test. `input` and `output` for a program; `args` and `expected` for a function.

    `args` and `expected` are JSON values.
    """

    input: str = ""
    output: str = ""
    args: tuple[Any, ...] = ()
    expected: Any = None


@dataclass(frozen=True)
class CodeTask:
    """One programming task.

    `entry_point` names the function ("" for a program); `starter` is code that the statement
    gives. `topic` and `family` say what kind of task it is, where known.
    """

    task_id: str
    statement: str
    kind: Literal["stdin", "function"]
    cases: tuple[CodeCase, ...]
    entry_point: str = ""
    starter: str = ""
    topic: str = ""
    family: str = ""


@dataclass(frozen=True)
class CodeTaskSet:
    """Tasks by id; `dropped` are the records of a file that were left out, with the reason."""

    tasks: dict[str, CodeTask]
    dropped: tuple[str, ...] = ()


def tests_of(task: CodeTask) -> dict[str, Any]:
    """A task's tests as the executor reads them (`lopd-repro execute --tests`)."""
    if task.kind == "stdin":
        cases: list[dict[str, Any]] = [{"input": c.input, "output": c.output} for c in task.cases]
        return {"type": "stdin", "cases": cases}
    cases = [{"args": list(c.args), "expected": c.expected} for c in task.cases]
    return {"type": "function", "entry_point": task.entry_point, "cases": cases}
