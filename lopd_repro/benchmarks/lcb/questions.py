"""Problems in the official data form: one JSON object a line, tests as text inside it.

Fields: question_title, question_content, platform, question_id, contest_id, contest_date,
starter_code, difficulty, public_test_cases, private_test_cases, metadata. Test cases are a JSON
text of `{input, output, testtype}`; private ones may instead be base64 of zlib of a pickled JSON
text. `metadata` is a JSON text with `func_name` for functional problems.
"""

from __future__ import annotations

import base64
import binascii
import io
import json
import pickle
import zlib
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path
from typing import Any

from lopd_repro.benchmarks.lcb.grader import Problem
from lopd_repro.errors import UserError

FIELDS = (
    "question_title", "question_content", "platform", "question_id", "contest_id", "contest_date",
    "starter_code", "difficulty", "public_test_cases", "private_test_cases", "metadata",
)  # fmt: skip


@dataclass(frozen=True)
class Window:
    """Problems of a release whose contest was held from `start` to `end`, both included."""

    name: str
    start: date
    end: date
    count: int

    def holds(self, day: date) -> bool:
        """Whether a contest of that day belongs to the window."""
        return self.start <= day <= self.end


WINDOWS = {
    "v5": Window("v5", date(2024, 8, 1), date(2025, 2, 28), 279),
    "v6": Window("v6", date(2025, 2, 1), date(2025, 5, 31), 131),
}
"""v5 is drawn from release v5, which ends in January 2025; v6 from release v6."""


@dataclass(frozen=True)
class Question:
    """What a model is asked; `row` holds the tests, which are large and unpacked on demand."""

    task_id: str
    window: str
    content: str
    starter_code: str
    day: date
    row: dict[str, Any]

    @property
    def problem(self) -> Problem:
        """The tests that judge a program, unpacked anew each time; `UserError` if unreadable."""
        return problem_of(self.row)


def read_questions(path: Path, window: str) -> list[Question]:
    """The problems of one window's file, in its order; `UserError` for whatever is not right."""
    questions = []
    try:
        with path.open(encoding="utf-8", newline="\n") as lines:
            for number, line in enumerate(lines, 1):
                if line.strip():
                    questions.append(parse_question(_row(line, f"{path}:{number}"), window))
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from None
    ids = {question.task_id for question in questions}
    if len(ids) != len(questions):
        raise UserError(f"{path}: a question_id comes twice")
    for question in questions:
        if not WINDOWS[window].holds(question.day):
            raise UserError(
                f"{path}: {question.task_id} is of {question.day}, outside the window {window}"
            )
    return questions


def contest_day(row: dict[str, Any]) -> date:
    """The day of a row's contest."""
    try:
        return datetime.fromisoformat(str(row["contest_date"])).date()
    except (KeyError, ValueError) as error:
        raise UserError(f"{row.get('question_id')}: contest_date: {error}") from None


def parse_question(row: dict[str, Any], window: str) -> Question:
    """One row."""
    return Question(
        str(row["question_id"]),
        window,
        str(row["question_content"]),
        str(row["starter_code"]),
        contest_day(row),
        row,
    )


def problem_of(row: dict[str, Any]) -> Problem:
    """A row's tests; public ones come before private ones, as in the official scorer."""
    task_id = str(row["question_id"])
    try:
        tests = [
            *json.loads(row["public_test_cases"]),
            *private_tests(row["private_test_cases"]),
        ]
        inputs = tuple(str(test["input"]) for test in tests)
        outputs = tuple(str(test["output"]) for test in tests)
        name = json.loads(row["metadata"]).get("func_name")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{task_id}: its tests cannot be read ({error})") from None
    return Problem(task_id, inputs, outputs, name)


def private_tests(text: str) -> list[dict[str, str]]:
    """Private tests from either of their forms. Of a pickle only a plain text is accepted."""
    try:
        plain: list[dict[str, str]] = json.loads(text)
    except ValueError:
        try:
            data = zlib.decompress(base64.b64decode(text.encode(), validate=True))
            plain = json.loads(_TextOnly(io.BytesIO(data)).load())
        except (binascii.Error, zlib.error, pickle.UnpicklingError, TypeError, EOFError) as error:
            raise ValueError(f"private tests: {error}") from None
    return plain


class _TextOnly(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"names {module}.{name}, allowed: text alone")


def _row(line: str, where: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except ValueError as error:
        raise UserError(f"{where}: not JSON ({error})") from None
    missing = [name for name in FIELDS if name not in row] if isinstance(row, dict) else FIELDS
    if missing:
        raise UserError(f"{where}: no {missing[0]}")
    found: dict[str, Any] = row
    return found
