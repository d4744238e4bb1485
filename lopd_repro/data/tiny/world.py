"""Writes each tiny domain as an EnvScaler environment: class code, tool descriptions, rules."""

from __future__ import annotations

from functools import cache
from typing import Any

from lopd_repro.data.schema import Environment
from lopd_repro.data.tiny.domains import DOMAINS, Domain

RULES = ("Find the record before any change.",)


@cache
def environment(domain_name: str) -> Environment:
    """The environment of a domain; its `env_id` is `tiny_<domain>`."""
    domain = DOMAINS[domain_name]
    return Environment(
        env_id=env_id(domain_name),
        class_name=domain.class_name,
        class_code=_class_code(domain),
        tools=tuple(_tools(domain)),
        introduction=domain.introduction,
        rules=RULES,
    )


def environments() -> dict[str, Environment]:
    """All tiny environments by id."""
    return {env_id(name): environment(name) for name in DOMAINS}


def env_id(domain_name: str) -> str:
    """Id of a domain's environment."""
    return f"tiny_{domain_name}"


def _class_code(domain: Domain) -> str:
    key, records = domain.id_name, domain.collection
    parts = [
        f'''class {domain.class_name}:
    """{domain.introduction} `events` lists every change as [tool, {key}]."""

    def __init__(self, init_config):
        self.{records} = {{}}
        self.events = []

    def {domain.look_up}(self, {domain.owner}):
        for {key}, record in self.{records}.items():
            if record["{domain.owner}"] == {domain.owner}:
                return {{"success": True, "{key}": {key}, "{domain.number}": record["{domain.number}"]}}
        return {{"success": False, "error": "not found"}}

    def _change(self, tool, {key}, **values):
        if {key} not in self.{records}:
            return {{"success": False, "error": "not found"}}
        self.{records}[{key}].update(values)
        self.events.append([tool, {key}])
        return {{"success": True}}
'''  # noqa: E501
    ]
    for tool in domain.pre_steps + domain.post_steps:
        parts.append(
            f'''
    def {tool}(self, {key}):
        return self._change("{tool}", {key})
'''
        )
    for family in domain.families:
        tool, argument = family.main_tool, family.argument
        parts.append(
            f'''
    def {tool}(self, {key}, {argument}):
        return self._change("{tool}", {key}, {family.name}={argument})
'''
        )
    return "".join(parts)


def _tools(domain: Domain) -> list[dict[str, Any]]:
    key = domain.id_name
    tools = [_tool(domain.look_up, {domain.owner: "string"})]
    tools += [_tool(name, {key: "string"}) for name in domain.pre_steps]
    tools += [
        _tool(
            family.main_tool,
            {key: "string", family.argument: "string" if family.kind == "word" else "integer"},
        )
        for family in domain.families
    ]
    tools += [_tool(name, {key: "string"}) for name in domain.post_steps]
    return tools


def _tool(name: str, arguments: dict[str, str]) -> dict[str, Any]:
    return {
        "name": name,
        "description": name.replace("_", " ").capitalize() + ".",
        "parameters": {
            "type": "object",
            "properties": {argument: {"type": kind} for argument, kind in arguments.items()},
            "required": list(arguments),
        },
    }
