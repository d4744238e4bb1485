"""The bundled mini-suite: made from a seed, kept as data files in the official form."""

from __future__ import annotations

import json
import random
from functools import cache
from pathlib import Path
from typing import Any

from lopd_repro.benchmarks.ace.demonstrate import play
from lopd_repro.benchmarks.ace.goals import KINDS, Goal
from lopd_repro.benchmarks.ace.tasks import CATEGORIES, Task, read_task, sample_task
from lopd_repro.errors import UserError
from lopd_repro.files import digest_text, write_text

SEED = 5
TASKS_PER_CATEGORY = 30


@cache
def _drawn(seed: int, count: int) -> tuple[tuple[Task, tuple[Goal, ...]], ...]:
    rng = random.Random(f"ace-mini-suite-{seed}")
    kinds = list(KINDS)
    drawn = []
    taken: set[tuple[str, ...]] = set()
    for category in CATEGORIES:
        for index in range(count):
            task, goals = sample_task(
                rng, category, f"agent_{category}_{index}", kinds[index % len(kinds)], taken
            )
            taken.update(goal.key for goal in goals)
            drawn.append((task, tuple(goals)))
    return tuple(drawn)


def suite_keys(seed: int = SEED, count: int = TASKS_PER_CATEGORY) -> frozenset[tuple[str, ...]]:
    """Keys of all goals of the suite, which training conversations keep clear of."""
    return frozenset(goal.key for _, goals in _drawn(seed, count) for goal in goals)


def suite_texts(seed: int = SEED, count: int = TASKS_PER_CATEGORY) -> dict[str, str]:
    """The data files by their relative names; equal seeds and counts give equal texts."""
    texts: dict[str, str] = {}
    for category in CATEGORIES:
        rows, answers = [], []
        for task, goals in _drawn(seed, count):
            if task.category == category:
                rows.append(task.row())
                answers.append(_answer(task, list(goals)))
        texts[f"data_agent_{category}.json"] = _lines(rows)
        texts[f"possible_answer/data_agent_{category}.json"] = _lines(answers)
    return texts


def write_suite(folder: Path, seed: int = SEED, count: int = TASKS_PER_CATEGORY) -> None:
    """Write the data files."""
    for name, text in suite_texts(seed, count).items():
        write_text(folder / name, text)


def read_suite(folder: Path) -> tuple[list[Task], dict[str, dict[str, Any]], str]:
    """Tasks, answers by task id, and a digest of the data files."""
    tasks: list[Task] = []
    answers: dict[str, dict[str, Any]] = {}
    texts = []
    for category in CATEGORIES:
        for place, name in enumerate(("", "possible_answer/")):
            path = folder / f"{name}data_agent_{category}.json"
            try:
                texts.append(path.read_text())
                rows = [json.loads(line) for line in texts[-1].splitlines()]
            except (OSError, ValueError) as error:
                raise UserError(f"{path}: not a readable data file ({error})") from None
            if place == 0:
                tasks += [read_task(row) for row in rows]
            else:
                answers.update({row["id"]: row for row in rows})
    missing = [task.task_id for task in tasks if task.task_id not in answers]
    if missing:
        raise UserError(f"{folder}: no answers for {', '.join(missing)}")
    return tasks, answers, digest_text("".join(texts))


def _answer(task: Task, goals: list[Goal]) -> dict[str, Any]:
    dialogue = play(task, goals, random.Random(0))
    return {
        "id": task.task_id,
        "ground_truth": dialogue.state(),
        "mile_stone": dialogue.milestones(),
    }


def _lines(rows: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)
