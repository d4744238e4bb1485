"""Reads and writes programming tasks in the form of DeepCoder's TACO subset.

The release is `agentica-org/DeepCoder-Preview-Dataset`, config `taco`: Parquet files whose records
hold `problem` (the statement) and `tests`, a JSON string `{"inputs": [...], "outputs": [...]}`,
with `"fn_name"` where a function is called and standard input and output otherwise. Read are local
Parquet files, JSON lists, and JSON Lines with or without a footer. This project's own fields
`task_id`, `topic` and `family` are optional; a record without an id gets one from its statement.

Rules of the form, as its own harness reads it:
- a function's input is the list of its arguments, or a text with one JSON argument per line;
- expected results that are all lists of one element are wrapped: the element is the result.
  `write_code_tasks` always wraps, so reading its files is exact;
- an input or output of standard streams is a text, or the list of its lines.

A record that cannot be scored (no tests, unequal counts of inputs and outputs, a test that is not
of the form) is refused, or dropped and counted with its reason with `on_bad="drop"`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Literal

from lopd_repro.data.coding.schema import CodeCase, CodeTask, CodeTaskSet
from lopd_repro.errors import UserError
from lopd_repro.files import digest_text, read_jsonl, write_jsonl


class _BadRecordError(Exception):
    """Why a record cannot be scored."""


def load_code_tasks(
    paths: Path | str | Iterable[Path | str], on_bad: Literal["refuse", "drop"] = "refuse"
) -> CodeTaskSet:
    """Read one or several files, in order; `UserError` names file, record and field."""
    several = [paths] if isinstance(paths, Path | str) else list(paths)
    tasks: dict[str, CodeTask] = {}
    dropped: list[str] = []
    for path in several:
        for index, record in enumerate(_records(Path(path))):
            try:
                task = _task(record)
                if task.task_id in tasks:
                    raise _BadRecordError(f"task_id: {task.task_id!r} is there twice")
            except _BadRecordError as error:
                if on_bad == "refuse":
                    raise UserError(f"{path}: record {index}: {error}") from None
                dropped.append(f"{Path(path).name}: record {index}: {error}")
                continue
            tasks[task.task_id] = task
    if not tasks:
        raise UserError(f"{', '.join(map(str, several))}: no task that can be scored")
    return CodeTaskSet(tasks, tuple(dropped))


def write_code_tasks(tasks: Iterable[CodeTask], path: Path | str) -> None:
    """Write JSON Lines of that form, with a footer; equal tasks give equal bytes."""
    write_jsonl(path, map(code_record, tasks))


def code_record(task: CodeTask) -> dict[str, Any]:
    """One task as a record of the release, with this project's own fields."""
    if task.kind == "stdin":
        tests: dict[str, Any] = {
            "inputs": [case.input for case in task.cases],
            "outputs": [case.output for case in task.cases],
        }
    else:
        tests = {
            "fn_name": task.entry_point,
            "inputs": [list(case.args) for case in task.cases],
            "outputs": [[case.expected] for case in task.cases],
        }
    record: dict[str, Any] = {
        "task_id": task.task_id,
        "problem": task.statement,
        "tests": json.dumps(tests),
    }
    for name, value in (
        ("starter_code", task.starter),
        ("topic", task.topic),
        ("family", task.family),
    ):
        if value:
            record[name] = value
    return record


def _task(record: dict[str, Any]) -> CodeTask:
    statement = _text(record, "problem")
    if not statement.strip():
        raise _BadRecordError("problem: is missing or empty")
    tests = record.get("tests")
    if isinstance(tests, str):
        try:
            tests = json.loads(tests)
        except ValueError as error:
            raise _BadRecordError(f"tests: is no JSON ({error})") from None
    if not isinstance(tests, dict):
        raise _BadRecordError("tests: is missing, or no object with inputs and outputs")
    inputs, outputs = tests.get("inputs"), tests.get("outputs")
    if not isinstance(inputs, list) or not isinstance(outputs, list) or not inputs:
        raise _BadRecordError("tests: inputs and outputs must be lists with at least one test")
    if len(inputs) != len(outputs):
        raise _BadRecordError(f"tests: {len(inputs)} inputs and {len(outputs)} outputs")
    name = tests.get("fn_name") or ""
    if not isinstance(name, str) or (name and not name.isidentifier()):
        raise _BadRecordError(f"tests.fn_name: found {name!r}, allowed: a function's name")
    cases = _calls(inputs, outputs) if name else _streams(inputs, outputs)
    return CodeTask(
        task_id=_text(record, "task_id") or f"taco-{digest_text(statement)[:16]}",
        statement=statement,
        kind="function" if name else "stdin",
        cases=cases,
        entry_point=name,
        starter=_text(record, "starter_code"),
        topic=_text(record, "topic"),
        family=_text(record, "family"),
    )


def _text(record: dict[str, Any], name: str) -> str:
    value = record.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise _BadRecordError(f"{name}: is no string")
    return value


def _streams(inputs: list[Any], outputs: list[Any]) -> tuple[CodeCase, ...]:
    return tuple(
        CodeCase(input=_stream(i, "input"), output=_stream(o, "output"))
        for i, o in zip(inputs, outputs, strict=True)
    )


def _stream(value: Any, what: str) -> str:
    if isinstance(value, list) and all(isinstance(line, str) for line in value):
        return "\n".join(value)
    if not isinstance(value, str):
        raise _BadRecordError(f"tests: an {what} is neither a text nor a list of lines")
    return value


def _calls(inputs: list[Any], outputs: list[Any]) -> tuple[CodeCase, ...]:
    wrapped = all(isinstance(o, list) and len(o) == 1 for o in outputs)
    return tuple(
        CodeCase(args=_arguments(i), expected=o[0] if wrapped else o)
        for i, o in zip(inputs, outputs, strict=True)
    )


def _arguments(value: Any) -> tuple[Any, ...]:
    if isinstance(value, list):
        return tuple(value)
    if not isinstance(value, str):
        raise _BadRecordError("tests: a function's input is no list of arguments")
    try:
        return tuple(json.loads(line) for line in value.splitlines() if line.strip())
    except ValueError as error:
        raise _BadRecordError(f"tests: an argument is no JSON ({error})") from None


def _records(path: Path) -> Iterator[dict[str, Any]]:
    if not path.is_file():
        raise UserError(f"{path}: no such file")
    if path.suffix == ".parquet":
        return _parquet(path)
    return iter(_json(path))


def _parquet(path: Path) -> Iterator[dict[str, Any]]:
    """Records one by one: a file of the release holds hundreds of megabytes of tests."""
    try:
        from pyarrow import ArrowInvalid
        from pyarrow.parquet import ParquetFile
    except ImportError:
        raise UserError(f"{path}: reading Parquet needs pyarrow: pip install '.[paper]'") from None
    try:
        file = ParquetFile(path)
    except ArrowInvalid as error:
        raise UserError(f"{path}: is no Parquet file ({error})") from None
    names = ("task_id", "problem", "tests", "starter_code", "topic", "family")
    present = [name for name in names if name in file.schema_arrow.names]
    for batch in file.iter_batches(batch_size=64, columns=present):
        yield from batch.to_pylist()


def _json(path: Path) -> list[dict[str, Any]]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read ({error})") from None
    try:
        rows = json.loads(text)
        rows = [rows] if isinstance(rows, dict) else rows
    except ValueError:
        rows = _lines(path, text)
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise UserError(f"{path}: is no list of records and no JSON Lines")
    return rows


def _lines(path: Path, text: str) -> list[Any]:
    rows: list[Any] = []
    # Only line feeds end a record: other line separators may stand inside a JSON string.
    for index, line in enumerate(line for line in text.split("\n") if line.strip()):
        try:
            rows.append(json.loads(line))
        except ValueError as error:
            raise UserError(f"{path}: record {index}: is not JSON ({error})") from None
    if rows and isinstance(rows[-1], dict) and rows[-1].get("footer") is True:
        return list(read_jsonl(path))
    return rows
