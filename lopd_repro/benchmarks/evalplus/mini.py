"""A mini-suite in the form of HumanEval+ and MBPP+, and training conversations in that form.

The tasks are this project's tiny programming tasks: held-out statements of the families with a
function, whose tests ask for a convention that the statement does not tell. One half stands in the
form of HumanEval+ (a function's head with the statement as its docstring, to be completed), the
other in that of MBPP+ (the statement alone). A task's tests are split: the first half are base
inputs, the rest plus inputs.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path

from lopd_repro.benchmarks.evalplus.official import Messages, Package, Part, Problem
from lopd_repro.data.coding.schema import CodeTask
from lopd_repro.data.splits import normalise_text
from lopd_repro.data.tiny_coding import (
    FAMILIES,
    CodeNoise,
    noisy_solution,
    sample_task,
    solution,
)
from lopd_repro.files import digest_text, write_json, write_text

SEED = 6
TASKS = 36
FORMS = {"humaneval_plus": "humaneval", "mbpp_plus": "mbpp"}
_PREFIX = {"humaneval": "HumanEval", "mbpp": "Mbpp"}
# Far from the published ids: the package treats some of those in ways of their own.
_FIRST_ID = 10000
_FUNCTIONS = tuple(name for name, (topic, _) in FAMILIES.items() if topic.kind == "function")


def suite(seed: int = SEED, count: int = TASKS) -> dict[str, list[Problem]]:
    """Rows of both datasets; no two tasks share a text."""
    rng = random.Random(f"evalplus-mini-suite-{seed}")
    taken: set[str] = set()
    return {
        name: [problem(task, form, number) for number, task in enumerate(_draw(rng, count, taken))]
        for name, form in FORMS.items()
    }


def suite_texts(seed: int = SEED, count: int = TASKS) -> dict[str, str]:
    """The data files by name; equal seeds and counts give equal texts."""
    return {
        f"{name}.jsonl": "".join(json.dumps(row) + "\n" for row in rows)
        for name, rows in suite(seed, count).items()
    }


def write_suite(folder: Path, seed: int = SEED, count: int = TASKS) -> None:
    """Write the data files, and the manifest that readers check them against."""
    manifest = {}
    for file, text in suite_texts(seed, count).items():
        write_text(folder / file, text)
        name = file.removesuffix(".jsonl")
        manifest[name] = {"file": file, "tasks": count, "sha256": digest_text(text)}
    write_json(folder / "manifest.json", manifest)


def problem(task: CodeTask, form: str, number: int) -> Problem:
    """A task as a row in the official form."""
    program = solution(task) + "\n"
    head, _, body = program.partition("\n")
    humaneval = form == "humaneval"
    half = (len(task.cases) + 1) // 2
    inputs = [list(case.args) for case in task.cases]
    return {
        "task_id": f"{_PREFIX[form]}/{_FIRST_ID + number}",
        "prompt": f'{head}\n    """{task.statement}"""\n' if humaneval else _alone(task),
        "entry_point": task.entry_point,
        "contract": "",
        "canonical_solution": body if humaneval else program,
        "base_input": inputs[:half],
        "plus_input": inputs[half:],
        "atol": 0,
    }


def conversations(package: Package, seed: int, count: int, noise: CodeNoise) -> list[Messages]:
    """Official prompts of training tasks with noisy replies; no task of the mini-suite appears.

    Prompts come from the package, without its system message; every other one is in either form.
    """
    rng = random.Random(f"evalplus-conversations-{seed}")
    tasks = [sample_task(rng, rng.choice(_FUNCTIONS)) for _ in range(count)]
    parts = [
        Part(name, form, [problem(task, form, number) for number, task in enumerate(tasks)][n::2])
        for n, (name, form) in enumerate(FORMS.items())
    ]
    messages, _ = package.prompts([part for part in parts if part.problems])
    asked: dict[int, Messages] = {}
    for part in messages.values():
        for task_id, texts in part.items():
            number = int(task_id.rpartition("/")[2]) - _FIRST_ID
            asked[number] = [text for text in texts if text["role"] != "system"]
    return [
        [
            *asked[number],
            {
                "role": "assistant",
                "content": f"```python\n{noisy_solution(task, rng, noise)}\n```",
            },
        ]
        for number, task in enumerate(tasks)
    ]


def instruction(messages: Messages) -> str:
    """The text that stands word for word before every task, for a vocabulary."""
    return messages[0]["content"].partition("\n```")[0]


def _draw(rng: random.Random, count: int, taken: set[str]) -> Iterator[CodeTask]:
    for number in range(count):
        family = _FUNCTIONS[number % len(_FUNCTIONS)]
        task = sample_task(rng, family, f"{family}-{number}", taken, held_out=True)
        taken.add(digest_text(normalise_text(task.statement)))
        yield task


def _alone(task: CodeTask) -> str:
    return f'"""\n{task.statement}\n"""\n'
