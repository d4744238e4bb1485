"""The agent's call lists, `[name(key='value', ...), ...]`, read without evaluating anything.

Readings that ACEBench's harness has too: a missing bracket is forgiven, arguments without a name
are dropped, a bare word stands for its own text, dotted names keep their dots. What it evaluates
(sums, lambdas) is refused here.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from typing import Any

MAX_CHARACTERS = 4000
_THOUGHT = re.compile(r"<think>.*?</think>\s*", re.DOTALL)


@dataclass(frozen=True)
class Call:
    """One call with named arguments."""

    name: str
    arguments: dict[str, Any]

    def __str__(self) -> str:
        given = ", ".join(f"{key}={value!r}" for key, value in self.arguments.items())
        return f"{self.name}({given})"


def call_list(*calls: Call) -> str:
    """The text of a call list, as milestones hold it."""
    return f"[{', '.join(map(str, calls))}]"


def strip_thoughts(text: str) -> str:
    """Text without `<think>...</think>`; an unfinished thought swallows the rest."""
    return _THOUGHT.sub("", text).split("<think>", 1)[0].strip()


def looks_like_calls(text: str) -> bool:
    """Whether a line holds a bracket pair, which sends the text to the parser."""
    return re.search(r"\[.*\]", text) is not None


def parse_calls(text: str) -> list[Call]:
    """The calls of an agent text; `ValueError` if it is not a call list."""
    if len(text) > MAX_CHARACTERS:
        raise ValueError("text is too long for a call list")
    try:
        body = ast.parse(text.strip().strip("[]'"), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ValueError("not a call list") from None
    nodes = body.elts if isinstance(body, ast.Tuple | ast.List) else [body]
    return [_call(node) for node in nodes]


def _call(node: ast.expr) -> Call:
    if not isinstance(node, ast.Call):
        raise ValueError("an element is no call")
    arguments = {k.arg: _value(k.value) for k in node.keywords if k.arg is not None}
    return Call(_name(node.func), arguments)


def _name(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return f"{_name(node.value)}.{node.attr}"
    if isinstance(node, ast.Name):
        return node.id
    raise ValueError("a call has no plain name")


def _value(node: ast.expr) -> Any:
    if isinstance(node, ast.Constant):
        return "..." if node.value is Ellipsis else node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = _value(node.operand)
        if isinstance(inner, int | float):
            return -inner
    if isinstance(node, ast.List):
        return [_value(element) for element in node.elts]
    if isinstance(node, ast.Tuple):
        return tuple(_value(element) for element in node.elts)
    if isinstance(node, ast.Dict) and None not in node.keys:
        return {
            _hashable(_value(key)): _value(value)
            for key, value in zip(node.keys, node.values, strict=True)
            if key is not None
        }
    if isinstance(node, ast.Name):
        return node.id
    raise ValueError("an argument is no plain value")


def _hashable(key: Any) -> Any:
    if isinstance(key, list | dict):
        raise ValueError("a key is no plain value")
    return key
