"""Plays scripted conversations on the official BFCL v3 backend classes and writes what happens.

    .environments/bfcl-v3/bin/python eval/bfcl/record.py --scripts FILE --docs FOLDER \
        --model Qwen/Qwen3-4B-FC --out FILE

Runs in the benchmark's own environment and imports nothing of this project. Prompts come from the
official handler of the model and observations from the official execution helper, so a model
trained on these conversations sees what the official harness will show it.

First output row: `fixed`, texts that stand in prompts word for word (function descriptions). Every
further row: `segments`, pairs of (text, whether the assistant wrote it).
"""

import argparse
import contextlib
import io
import json
from pathlib import Path

from bfcl_eval.constants.category_mapping import MULTI_TURN_FUNC_DOC_FILE_MAPPING
from bfcl_eval.constants.default_prompts import (
    DEFAULT_USER_PROMPT_FOR_ADDITIONAL_FUNCTION_PROMPTING,
)
from bfcl_eval.constants.model_config import MODEL_CONFIG_MAPPING
from bfcl_eval.eval_checker.multi_turn_eval.multi_turn_utils import execute_multi_turn_func_call
from bfcl_eval.model_handler.utils import func_doc_language_specific_pre_processing


def main() -> None:
    """Read scripts, write conversations."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--scripts", type=Path, required=True)
    parser.add_argument("--docs", type=Path, required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    handler = MODEL_CONFIG_MAPPING[args.model].model_handler(args.model, 0.0)
    rows: list[dict] = []
    fixed: dict[str, None] = {}
    with args.scripts.open(encoding="utf-8") as lines, contextlib.redirect_stdout(io.StringIO()):
        for number, line in enumerate(lines):
            rows.append({"segments": play(json.loads(line), handler, args.docs, number, fixed)})
    with args.out.open("w", encoding="utf-8") as file:
        for row in [{"fixed": list(fixed)}, *rows]:
            file.write(json.dumps(row) + "\n")


def play(script: dict, handler: object, docs: Path, number: int, fixed: dict) -> list:
    """One conversation's segments."""
    functions, held_back = functions_of(script, docs)
    functions = func_doc_language_specific_pre_processing(functions, script["category"])
    fixed.update(dict.fromkeys(json.dumps(doc) for doc in functions))
    messages: list[dict] = []
    segments: list[list] = []
    seen = ""
    for index, turn in enumerate(script["turns"]):
        text = turn["text"]
        if str(index) in held_back:
            added = held_back[str(index)]
            fixed.update(dict.fromkeys(str(doc) for doc in added))
            text = DEFAULT_USER_PROMPT_FOR_ADDITIONAL_FUNCTION_PROMPTING.format(functions=added)
        messages.append({"role": "user", "content": text})
        for call in [*turn["calls"], None]:
            prompt = handler._format_prompt(messages, functions)
            if not prompt.startswith(seen):
                raise SystemExit("the handler's prompt is not append-only")
            segments.append([prompt[len(seen) :], False])
            answer = turn["reply"] if call is None else call_text(*call)
            segments.append([answer, True])
            seen = prompt + answer
            messages.append({"role": "assistant", "content": answer})
            if call is None:
                break
            results, _ = execute_multi_turn_func_call(
                [call_code(*call)],
                script["initial_config"],
                script["involved_classes"],
                "recording",
                f"{script['category']}_{number}",
                long_context="long_context" in script["category"],
            )
            messages.append({"role": "tool", "name": call[0], "content": results[0]})
    return segments


def functions_of(script: dict, docs: Path) -> tuple[list, dict]:
    """Functions offered from the start, and those that come with a later turn."""
    functions = []
    for name in script["involved_classes"]:
        file = docs / MULTI_TURN_FUNC_DOC_FILE_MAPPING[name]
        functions += [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    held_back: dict[str, list] = {}
    for turn, names in script["missed_function"].items():
        held_back[turn] = [doc for doc in functions if doc["name"] in names]
        functions = [doc for doc in functions if doc["name"] not in names]
    return functions, held_back


def call_text(name: str, arguments: dict) -> str:
    """A call as the handler reads it."""
    body = json.dumps({"name": name, "arguments": arguments})
    return f"<tool_call>\n{body}\n</tool_call>"


def call_code(name: str, arguments: dict) -> str:
    """A call as the execution helper evaluates it."""
    return f"{name}({', '.join(f'{key}={value!r}' for key, value in arguments.items())})"


if __name__ == "__main__":
    main()
