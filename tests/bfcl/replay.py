"""A model that answers BFCL's ground truth, as a script of the stub server.

It reads from the prompt which task, turn and step it is at: tasks by their user texts, turns by
the number of those, steps by the assistant messages after the last one.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stub_server import Action, Asked, Say

Call = tuple[str, dict[str, Any]]
_MESSAGE = re.compile(r"<\|im_start\|>(\w+)\n(.*?)(?:<\|im_end\|>\n|\Z)", re.DOTALL)


def read_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines() if line.strip()]


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
        doc["name"]: list(doc["parameters"]["properties"]) for path in docs for doc in read_lines(path)
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


def where(prompt: str) -> tuple[list[str], int]:
    """User texts so far, and the step within the turn, of a prompt in Qwen's format."""
    messages = _MESSAGE.findall(prompt)
    users = [
        (index, text)
        for index, (role, text) in enumerate(messages)
        if role == "user" and not text.startswith("<tool_response>")
    ]
    answered = sum(role == "assistant" for role, _ in messages[users[-1][0] :]) - 1
    return [text for _, text in users], answered


def as_qwen(call: Call) -> str:
    name, arguments = call
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


def truthful(
    tasks: dict[str, Truth],
    change: Callable[[str, int, int, Action], Action] | None = None,
) -> Callable[[Asked], Action]:
    """A script that plays the ground truth; `change` may replace an answer.

    `change(task id, turn, step, answer)`. Tasks that begin alike must have the same calls so far.
    """

    def script(asked: Asked) -> Action:
        texts, step = where(asked.text)
        turn = len(texts) - 1
        fitting = [task for task, truth in tasks.items() if truth.begins(texts)]
        assert fitting, texts
        calls = tasks[fitting[0]].calls[turn]
        assert all(tasks[task].calls[turn] == calls for task in fitting), texts
        answer: Action = Say(as_qwen(calls[step])) if step < len(calls) else Say("Done.")
        return change(fitting[0], turn, step, answer) if change else answer

    return script


def write_model(folder: Path, context: int = 40960) -> Path:
    """Configuration and a word-level tokenizer: what the official handler reads of a model."""
    folder.mkdir(parents=True)
    tokenizer = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": {"type": "Whitespace"},
        "post_processor": None,
        "decoder": None,
        "model": {"type": "WordLevel", "vocab": {"?": 0}, "unk_token": "?"},
    }
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    kind = {"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "?"}
    (folder / "tokenizer_config.json").write_text(json.dumps(kind))
    config = {"model_type": "qwen3", "max_position_embeddings": context}
    (folder / "config.json").write_text(json.dumps(config))
    return folder
