"""Reads and writes tool-use tasks in the file form of the EnvScaler release.

Two files make a task set: environments (`env_id`, `env_class_name`, `env_class_code`, `tools`,
`environment_introduction`, `constraints_rules`) and scenarios (`task_id`, `env_id`, `task`,
`init_config`, `checklist_with_func` with items `{"check_item", "check_func"}`). Each may be a
JSON list, an object keyed by id, or JSON Lines; fields that hold lists or objects may be JSON
strings, as `tools` and `init_config` are on the dataset hub. Further fields are ignored, save
`domain` and `family`, which only the bundled tasks carry.

Nothing here executes dataset code. Tool descriptions wrapped as
`{"type": "function", "function": {...}}` are unwrapped on reading and wrapped on writing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from lopd_repro.data.schema import Check, Environment, TaskSet, ToolTask
from lopd_repro.errors import UserError
from lopd_repro.files import read_jsonl, write_jsonl

_TYPE_NAMES: dict[type, str] = {str: "a string", list: "a list", dict: "an object"}


def load_task_set(environments_file: Path | str, scenarios_file: Path | str) -> TaskSet:
    """Read both files. `UserError` names file, record index and field of what is wrong."""
    environments = load_environments(environments_file)
    tasks: dict[str, ToolTask] = {}
    for index, record in enumerate(_records(Path(scenarios_file), "task_id")):
        at = _At(scenarios_file, index)
        task = _task(record, at)
        environment = environments.get(task.env_id)
        if environment is None:
            raise at.error("env_id", f"{task.env_id!r} is not in {environments_file}")
        class_name = record.get("env_class_name", environment.class_name)
        if class_name != environment.class_name:
            raise at.error(
                "env_class_name",
                f"{class_name!r}, but environment {task.env_id!r} has {environment.class_name!r}",
            )
        if task.task_id in tasks:
            raise at.error("task_id", f"{task.task_id!r} is there twice")
        tasks[task.task_id] = task
    return TaskSet(environments=environments, tasks=tasks)


def load_environments(path: Path | str) -> dict[str, Environment]:
    """Read an environment file, by id."""
    environments: dict[str, Environment] = {}
    for index, record in enumerate(_records(Path(path), "env_id")):
        at = _At(path, index)
        environment = Environment(
            env_id=at.text(record, "env_id"),
            class_name=at.text(record, "env_class_name"),
            class_code=at.text(record, "env_class_code"),
            tools=tuple(
                _tool(item, at, position)
                for position, item in enumerate(at.container(record, "tools", list))
            ),
            introduction=at.text(record, "environment_introduction", empty=True),
            rules=_rules(record, at),
        )
        if environment.env_id in environments:
            raise at.error("env_id", f"{environment.env_id!r} is there twice")
        environments[environment.env_id] = environment
    return environments


def write_task_set(
    task_set: TaskSet, environments_file: Path | str, scenarios_file: Path | str
) -> None:
    """Write both files as JSON Lines in the release's form; equal task sets give equal bytes."""
    write_jsonl(environments_file, map(environment_record, task_set.environments.values()))
    write_jsonl(
        scenarios_file,
        (
            scenario_record(task, task_set.environments[task.env_id])
            for task in task_set.tasks.values()
        ),
    )


def environment_record(environment: Environment) -> dict[str, Any]:
    """One environment as a record of the release."""
    tools = [{"type": "function", "function": tool} for tool in environment.tools]
    return {
        "env_id": environment.env_id,
        "env_class_name": environment.class_name,
        "env_class_code": environment.class_code,
        "tools": json.dumps(tools),
        "environment_introduction": environment.introduction,
        "constraints_rules": list(environment.rules),
    }


def scenario_record(task: ToolTask, environment: Environment) -> dict[str, Any]:
    """One scenario as a record of the release; `domain` and `family` only where set."""
    record: dict[str, Any] = {
        "task_id": task.task_id,
        "env_id": task.env_id,
        "env_class_name": environment.class_name,
        "task": task.task,
        "init_config": json.dumps(task.init_config),
        "checklist_with_func": [
            {"check_item": check.description, "check_func": check.code} for check in task.checklist
        ],
    }
    for field in ("domain", "family"):
        if value := getattr(task, field):
            record[field] = value
    return record


class _At:
    """The place of a record, for messages and typed access to its fields."""

    def __init__(self, path: Path | str, index: int) -> None:
        self.path, self.index = path, index

    def error(self, field: str, problem: str) -> UserError:
        return UserError(f"{self.path}: record {self.index}: {field}: {problem}")

    def text(self, record: dict[str, Any], field: str, *, empty: bool = False) -> str:
        value = self._present(record, field)
        if not isinstance(value, str):
            raise self.error(field, f"is {_kind(value)}, expected a string")
        if not value.strip() and not empty:
            raise self.error(field, "is empty")
        return value

    def optional_text(self, record: dict[str, Any], field: str) -> str:
        return self.text(record, field, empty=True) if field in record else ""

    def container(self, record: dict[str, Any], field: str, kind: type) -> Any:
        """A list or an object, given as such or as the text of one in JSON."""
        value = self._present(record, field)
        if isinstance(value, str):
            try:
                value = json.loads(value)
            except ValueError as error:
                raise self.error(
                    field, f"is a string but not JSON ({error}), expected {_TYPE_NAMES[kind]}"
                ) from None
        if not isinstance(value, kind):
            raise self.error(field, f"is {_kind(value)}, expected {_TYPE_NAMES[kind]}")
        return value

    def _present(self, record: dict[str, Any], field: str) -> Any:
        if field not in record:
            raise self.error(field, f"is missing (fields there: {', '.join(sorted(record))})")
        return record[field]


def _task(record: dict[str, Any], at: _At) -> ToolTask:
    if "checklist_with_func" not in record:
        raise at.error(
            "checklist_with_func", "is missing, so the scenario cannot be scored (an SFT scenario?)"
        )
    checks = []
    for position, item in enumerate(at.container(record, "checklist_with_func", list)):
        field = f"checklist_with_func[{position}]"
        if not isinstance(item, dict):
            raise at.error(field, f"is {_kind(item)}, expected an object")
        code = item.get("check_func")
        if not isinstance(code, str) or not code.strip():
            raise at.error(f"{field}.check_func", "is missing, empty or not a string")
        description = item.get("check_item", "")
        if not isinstance(description, str):
            raise at.error(f"{field}.check_item", f"is {_kind(description)}, expected a string")
        checks.append(Check(description=description, code=code))
    if not checks:
        raise at.error("checklist_with_func", "is empty, so the scenario cannot be scored")
    return ToolTask(
        task_id=at.text(record, "task_id"),
        env_id=at.text(record, "env_id"),
        task=at.text(record, "task"),
        init_config=at.container(record, "init_config", dict),
        checklist=tuple(checks),
        domain=at.optional_text(record, "domain"),
        family=at.optional_text(record, "family"),
    )


def _tool(item: Any, at: _At, position: int) -> dict[str, Any]:
    field = f"tools[{position}]"
    if not isinstance(item, dict):
        raise at.error(field, f"is {_kind(item)}, expected an object")
    function = item.get("function", item)
    if not isinstance(function, dict):
        raise at.error(f"{field}.function", f"is {_kind(function)}, expected an object")
    if not isinstance(function.get("name"), str) or not function["name"]:
        raise at.error(f"{field}.name", "is missing, empty or not a string")
    parameters = function.get("parameters", {})
    if not isinstance(parameters, dict):
        raise at.error(f"{field}.parameters", f"is {_kind(parameters)}, expected an object")
    return dict(function)


def _rules(record: dict[str, Any], at: _At) -> tuple[str, ...]:
    rules = at.container(record, "constraints_rules", list)
    for position, rule in enumerate(rules):
        if not isinstance(rule, str):
            raise at.error(f"constraints_rules[{position}]", f"is {_kind(rule)}, expected a string")
    return tuple(rules)


def _records(path: Path, key: str) -> Iterable[dict[str, Any]]:
    """Records of a JSON list, an object keyed by id, or JSON Lines with or without a footer."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read ({error})") from None
    try:
        value = json.loads(text)
    except ValueError:
        value = _lines(path, text)
    if isinstance(value, dict):
        # A JSON Lines file of one record is an object too: it has the key itself.
        value = [value] if key in value else _keyed(path, value, key)
    if not isinstance(value, list):
        raise UserError(f"{path}: is {_kind(value)}, expected a list of records or JSON Lines")
    for index, record in enumerate(value):
        if not isinstance(record, dict):
            raise UserError(f"{path}: record {index}: is {_kind(record)}, expected an object")
    return value


def _lines(path: Path, text: str) -> list[Any]:
    # Only line feeds end a record: other line separators may stand inside a JSON string.
    lines = [line for line in text.split("\n") if line.strip()]
    rows = []
    for index, line in enumerate(lines):
        try:
            rows.append(json.loads(line))
        except ValueError as error:
            raise UserError(f"{path}: record {index}: is not JSON ({error})") from None
    if rows and isinstance(rows[-1], dict) and rows[-1].get("footer") is True:
        return list(read_jsonl(path))
    return rows


def _keyed(path: Path, value: dict[str, Any], key: str) -> list[Any]:
    records = []
    for index, (name, record) in enumerate(value.items()):
        if not isinstance(record, dict):
            raise UserError(
                f"{path}: record {index} ({name!r}): is {_kind(record)}, expected an object"
            )
        if record.get(key, name) != name:
            raise UserError(
                f"{path}: record {index}: {key}: {record[key]!r} stands under the key {name!r}"
            )
        records.append({key: name, **record})
    return records


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    return _TYPE_NAMES.get(type(value), "a number")
