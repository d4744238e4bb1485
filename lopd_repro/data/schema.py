"""Tool-use tasks and their environments, in the fields of the EnvScaler release."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Environment:
    """One simulated world: a Python class whose public methods are the tools.

    `class_code` is dataset-carried code: it runs only in an environment worker.
    `tools` are JSON-schema function descriptions (`{"name", "description", "parameters"}`).
    """

    env_id: str
    class_name: str
    class_code: str
    tools: tuple[dict[str, Any], ...]
    introduction: str
    rules: tuple[str, ...]


@dataclass(frozen=True)
class Check:
    """One item of a checklist; `code` defines `check_func(final_state) -> bool`."""

    description: str
    code: str


@dataclass(frozen=True)
class ToolTask:
    """One scenario of an environment."""

    task_id: str
    env_id: str
    task: str
    init_config: dict[str, Any]
    checklist: tuple[Check, ...]
    domain: str = ""
    family: str = ""


@dataclass(frozen=True)
class TaskSet:
    """Scenarios with the environments they run in, both by id."""

    environments: dict[str, Environment]
    tasks: dict[str, ToolTask]
