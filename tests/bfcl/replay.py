"""A model that answers BFCL's ground truth, as a script of the stub server.

It reads from the prompt which task, turn and step it is at: tasks by their user texts, turns by
the number of those, steps by the assistant messages after the last one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

from stub_server import Action, Asked, Say

from lopd_repro.benchmarks.bfcl_replay import Truth, as_qwen

_MESSAGE = re.compile(r"<\|im_start\|>(\w+)\n(.*?)(?:<\|im_end\|>\n|\Z)", re.DOTALL)


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
