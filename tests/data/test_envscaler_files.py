"""The loader on hand-written files in the official form, and what it refuses."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from lopd_repro.data.envscaler import load_task_set, write_task_set
from lopd_repro.errors import UserError

ENVIRONMENT: dict[str, Any] = {
    "env_id": "env_1",
    "environment_summary": "a lamp",
    "environment_introduction": "One lamp.",
    "constraints_rules": ["Only one lamp."],
    "state_space_definition": [],
    "env_class_name": "Lamp",
    "env_class_code": "class Lamp:\n    def switch(self, on: bool):\n        self.on = on\n",
    "tools": [
        {
            "type": "function",
            "function": {
                "name": "switch",
                "description": "Switch.",
                "parameters": {
                    "type": "object",
                    "properties": {"on": {"type": "boolean"}},
                    "required": ["on"],
                },
            },
        }
    ],
}
SCENARIO: dict[str, Any] = {
    "env_id": "env_1",
    "env_class_name": "Lamp",
    "task_id": "20250101_001",
    "init_config": {"on": False, "note": "a\u2028b"},
    "task": "Switch the lamp on.",
    "checklist": ["Is the lamp on?"],
    "checklist_with_func": [
        {
            "check_item": "Is the lamp on?",
            "check_func": "def check_func(final_state):\n    return final_state['on'] is True",
        }
    ],
}


def put(path: Path, value: Any, form: str) -> Path:
    """Write a list of records as a JSON list, JSON Lines, or an object keyed by env_id."""
    texts = {
        "list": lambda: json.dumps(value),
        "lines": lambda: "\n".join(json.dumps(r, ensure_ascii=False) for r in value) + "\n",
        "keyed": lambda: json.dumps({record["env_id"]: record for record in value}),
    }
    path.write_text(texts[form](), encoding="utf-8")
    return path


def load(folder: Path, environments: Any, scenarios: Any, form: str = "list") -> Any:
    return load_task_set(
        put(folder / "env.json", environments, form),
        put(folder / "task.json", scenarios, "lines" if form == "keyed" else form),
    )


@pytest.mark.parametrize("form", ["list", "lines", "keyed"])
@pytest.mark.parametrize("strings", [False, True])
def test_every_form_gives_the_same_task_set(tmp_path: Path, form: str, strings: bool) -> None:
    environment, scenario = copy.deepcopy(ENVIRONMENT), copy.deepcopy(SCENARIO)
    if strings:
        environment["tools"] = json.dumps(environment["tools"])
        scenario["init_config"] = json.dumps(scenario["init_config"])
    second = {**environment, "env_id": "env_2"}
    task_set = load(tmp_path, [environment, second], [scenario], form)
    assert list(task_set.environments) == ["env_1", "env_2"]
    lamp = task_set.environments["env_1"]
    assert (lamp.class_name, lamp.introduction, lamp.rules) == (
        "Lamp",
        "One lamp.",
        ("Only one lamp.",),
    )
    assert lamp.tools[0]["name"] == "switch" and "function" not in lamp.tools[0]
    task = task_set.tasks["20250101_001"]
    assert task.init_config == {"on": False, "note": "a\u2028b"}
    assert task.checklist[0].description == "Is the lamp on?"
    assert task.checklist[0].code.startswith("def check_func")
    assert task.domain == task.family == ""


def test_one_record_per_file_in_json_lines(tmp_path: Path) -> None:
    assert list(load(tmp_path, [ENVIRONMENT], [SCENARIO], "lines").tasks) == ["20250101_001"]


def test_writing_and_reading_gives_the_same(tmp_path: Path) -> None:
    task_set = load(tmp_path, [ENVIRONMENT], [SCENARIO])
    files = tmp_path / "out_env.jsonl", tmp_path / "out_task.jsonl"
    write_task_set(task_set, *files)
    assert load_task_set(*files) == task_set
    record = json.loads(files[0].read_text().splitlines()[0])
    assert json.loads(record["tools"])[0]["type"] == "function"


def test_a_cut_file_of_ours_is_refused(tmp_path: Path) -> None:
    task_set = load(tmp_path, [ENVIRONMENT], [SCENARIO])
    files = tmp_path / "out_env.jsonl", tmp_path / "out_task.jsonl"
    write_task_set(task_set, *files)
    files[1].write_text(files[1].read_text().replace("lamp on", "lamp off"))
    with pytest.raises(UserError, match="digest"):
        load_task_set(*files)


BAD_SCENARIOS = {
    "missing task": ({"task": None}, r"task.json: record 1: task: is missing"),
    "number as task": ({"task": 3}, r"record 1: task: is a number, expected a string"),
    "empty task": ({"task": " "}, r"record 1: task: is empty"),
    "missing state": ({"init_config": None}, r"record 1: init_config: is missing"),
    "list as state": ({"init_config": []}, r"record 1: init_config: is a list, expected an object"),
    "text as state": ({"init_config": "{'a'"}, r"record 1: init_config: is a string but not JSON"),
    "list in text": ({"init_config": "[1]"}, r"record 1: init_config: is a list, expected an obj"),
    "no checks": ({"checklist_with_func": None}, r"record 1: checklist_with_func: .*SFT"),
    "empty checks": ({"checklist_with_func": []}, r"record 1: checklist_with_func: is empty"),
    "check as text": (
        {"checklist_with_func": ["x"]},
        r"record 1: checklist_with_func\[0\]: is a string, expected an object",
    ),
    "check without code": (
        {"checklist_with_func": [{"check_item": "x"}]},
        r"record 1: checklist_with_func\[0\]\.check_func: is missing",
    ),
    "unknown environment": ({"env_id": "env_9"}, r"record 1: env_id: 'env_9' is not in"),
    "other class": ({"env_class_name": "Sun"}, r"record 1: env_class_name: 'Sun', but"),
    "same id": ({"task_id": "20250101_001"}, r"record 1: task_id: '20250101_001' is there twice"),
    "boolean as id": ({"task_id": True}, r"record 1: task_id: is a boolean, expected a string"),
}


@pytest.mark.parametrize("name", BAD_SCENARIOS)
def test_bad_scenarios_are_refused_with_index_and_field(tmp_path: Path, name: str) -> None:
    change, message = BAD_SCENARIOS[name]
    bad = {**SCENARIO, "task_id": "second", **change}
    bad = {key: value for key, value in bad.items() if value is not None}
    with pytest.raises(UserError, match=message):
        load(tmp_path, [ENVIRONMENT], [SCENARIO, bad])


BAD_ENVIRONMENTS = {
    "missing code": ({"env_class_code": None}, r"env.json: record 0: env_class_code: is missing"),
    "missing tools": ({"tools": None}, r"record 0: tools: is missing"),
    "object as tools": ({"tools": {}}, r"record 0: tools: is an object, expected a list"),
    "text as tools": ({"tools": "switch"}, r"record 0: tools: is a string but not JSON"),
    "nameless tool": ({"tools": [{"function": {}}]}, r"record 0: tools\[0\]\.name: is missing"),
    "tool as text": ({"tools": ["switch"]}, r"record 0: tools\[0\]: is a string"),
    "bad parameters": (
        {"tools": [{"name": "a", "parameters": []}]},
        r"record 0: tools\[0\]\.parameters: is a list",
    ),
    "rule as number": ({"constraints_rules": [1]}, r"record 0: constraints_rules\[0\]: is a num"),
    "missing rules": ({"constraints_rules": None}, r"record 0: constraints_rules: is missing"),
    "missing class": ({"env_class_name": None}, r"record 0: env_class_name: is missing"),
}


@pytest.mark.parametrize("name", BAD_ENVIRONMENTS)
def test_bad_environments_are_refused_with_index_and_field(tmp_path: Path, name: str) -> None:
    change, message = BAD_ENVIRONMENTS[name]
    bad = {key: value for key, value in {**ENVIRONMENT, **change}.items() if value is not None}
    with pytest.raises(UserError, match=message):
        load(tmp_path, [bad], [SCENARIO])


def test_files_that_hold_no_records_are_refused(tmp_path: Path) -> None:
    good = put(tmp_path / "env.json", [ENVIRONMENT], "list")
    task = tmp_path / "task.json"
    with pytest.raises(UserError, match="cannot be read"):
        load_task_set(good, task)
    task.write_text('{"a": 1}\nnot json\n')
    with pytest.raises(UserError, match="record 1: is not JSON"):
        load_task_set(good, task)
    task.write_text("[1]")
    with pytest.raises(UserError, match="record 0: is a number, expected an object"):
        load_task_set(good, task)
    task.write_text(json.dumps({"a": {**SCENARIO, "task_id": "b"}}))
    with pytest.raises(UserError, match="'b' stands under the key 'a'"):
        load_task_set(good, task)
    put(tmp_path / "env.json", [ENVIRONMENT, ENVIRONMENT], "list")
    with pytest.raises(UserError, match="record 1: env_id: 'env_1' is there twice"):
        load_task_set(good, task)
