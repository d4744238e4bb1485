"""The bundled mini-suite: tiny programming tasks of ours in LiveCodeBench's data form.

Statements are held-out draws: no training task, split or corpus has them. Two files, one a window,
with as many tasks of every family; two of a task's tests are public.
"""

from __future__ import annotations

import json
import random
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from lopd_repro.benchmarks.lcb.questions import WINDOWS
from lopd_repro.data.coding.schema import CodeCase, CodeTask
from lopd_repro.data.splits import normalise_text
from lopd_repro.data.tiny_coding import FAMILIES, sample_task, solution
from lopd_repro.files import digest_text, write_text

SEED = 6
TASKS_PER_FAMILY = 3
_PUBLIC = 2


def suite_tasks(seed: int = SEED, per_family: int = TASKS_PER_FAMILY) -> dict[str, list[CodeTask]]:
    """Tasks by window; no two of all have the same text."""
    rng = random.Random(f"lcb-mini-suite-{seed}")
    texts: set[str] = set()
    tasks: dict[str, list[CodeTask]] = {}
    for window in WINDOWS:
        tasks[window] = []
        for index in range(per_family * len(FAMILIES)):
            family = list(FAMILIES)[index % len(FAMILIES)]
            name = f"{window}-{family}-{index // len(FAMILIES)}"
            task = sample_task(rng, family, name, texts, held_out=True)
            texts.add(digest_text(normalise_text(task.statement)))
            tasks[window].append(task)
    return tasks


def suite_texts(seed: int = SEED, per_family: int = TASKS_PER_FAMILY) -> dict[str, str]:
    """The data files by name; equal seeds and counts give equal texts."""
    return {
        f"{window}.jsonl": "".join(
            json.dumps(official_row(task, window, index)) + "\n" for index, task in enumerate(tasks)
        )
        for window, tasks in suite_tasks(seed, per_family).items()
    }


def write_suite(folder: Path) -> None:
    """Write the data files."""
    for name, text in suite_texts().items():
        write_text(folder / name, text)


def official_row(task: CodeTask, window: str, index: int) -> dict[str, Any]:
    """A task in the official form, as a contest held in the window."""
    day = datetime.combine(WINDOWS[window].start, datetime.min.time()) + timedelta(days=index % 28)
    stdin = task.kind == "stdin"
    tests = [_test(case, stdin) for case in task.cases]
    return {
        "question_title": task.task_id,
        "question_content": task.statement,
        "platform": "atcoder" if stdin else "leetcode",
        "question_id": task.task_id,
        "contest_id": f"mini-{window}-{index}",
        "contest_date": day.isoformat(),
        "starter_code": "" if stdin else f"{solution(task).splitlines()[0]}\n    ",
        "difficulty": "easy",
        "public_test_cases": json.dumps(tests[:_PUBLIC]),
        "private_test_cases": json.dumps(tests[_PUBLIC:]),
        "metadata": json.dumps({} if stdin else {"func_name": task.entry_point}),
    }


def _test(case: CodeCase, stdin: bool) -> dict[str, str]:
    if stdin:
        return {"input": case.input, "output": case.output, "testtype": "stdin"}
    return {
        "input": "\n".join(json.dumps(argument) for argument in case.args),
        "output": json.dumps(case.expected),
        "testtype": "functional",
    }
