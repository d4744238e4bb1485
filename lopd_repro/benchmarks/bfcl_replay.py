"""BFCL's ground truths as answers of a model: calls by name, in the Qwen3 handler's own text form.

Used to check the path from answers to scores: the ground truth must pass everywhere.
"""

from __future__ import annotations

import ast
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lopd_repro.benchmarks.bfcl_data import read_lines

Call = tuple[str, dict[str, Any]]


@dataclass(frozen=True)
class Truth:
    """A task's user texts ("" where the text is the harness's own) and calls, turn by turn."""

    texts: list[str]
    calls: list[list[Call]]

    def begins(self, texts: list[str]) -> bool:
        return len(texts) <= len(self.texts) and all(
            own in ("", text) for own, text in zip(self.texts, texts, strict=False)
        )


def truths(data: Path, category: str) -> dict[str, Truth]:
    """Task id to user texts and ground-truth calls."""
    (file,) = data.glob(f"BFCL_v*_{category}.json")
    answers = {
        row["id"]: row["ground_truth"] for row in read_lines(data / "possible_answer" / file.name)
    }
    names = _parameter_names(data)
    return {
        row["id"]: Truth(
            [turn[-1]["content"] if turn else "" for turn in row["question"]],
            [[_call(code, names) for code in turn] for turn in answers[row["id"]]],
        )
        for row in read_lines(file)
    }


def _parameter_names(data: Path) -> dict[str, list[str]]:
    docs = (data / "multi_turn_func_doc").glob("*.json")
    return {
        doc["name"]: list(doc["parameters"]["properties"])
        for path in docs
        for doc in read_lines(path)
    }


def _call(code: str, names: dict[str, list[str]]) -> Call:
    call = ast.parse(code.strip(), mode="eval").body
    assert isinstance(call, ast.Call) and isinstance(call.func, ast.Name), code
    arguments = {
        name: ast.literal_eval(value)
        for name, value in zip(names.get(call.func.id, []), call.args, strict=False)
    }
    arguments |= {str(k.arg): ast.literal_eval(k.value) for k in call.keywords}
    return call.func.id, arguments


def as_qwen(call: Call) -> str:
    name, arguments = call
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


def answers(truth: Truth, drop_last: bool = False) -> list[list[str]]:
    """Replies turn by turn: one call each, then a closing word; perhaps without the last call."""
    turns = [[as_qwen(call) for call in calls] for calls in truth.calls]
    if drop_last:
        last = max(index for index, calls in enumerate(turns) if calls)
        turns[last] = turns[last][:-1]
    return [[*calls, "Done."] for calls in turns]
