"""Splits of programming tasks, with the guarantees and the file of `data/splits.py`.

The state of a programming task is its tests: two tasks with the same tests never stand in
different splits, whatever their statements say.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict
from pathlib import Path
from typing import Literal

from lopd_repro.data.coding.files import load_code_tasks
from lopd_repro.data.coding.schema import CodeTask, CodeTaskSet, tests_of
from lopd_repro.data.splits import (
    Item,
    loose_form,
    normalise_text,
    read_split_file,
    split_items,
    verified_ids,
)
from lopd_repro.errors import UserError
from lopd_repro.files import digest_json


def make_code_splits(
    tasks_file: Path | str,
    split_file: Path | str,
    *,
    seed: int,
    validation: int,
    test: int | Collection[str],
    on_collision: Literal["refuse", "drop"] = "refuse",
) -> dict[str, list[str]]:
    """Choose the splits of a task file, write `split_file`, return the ids by split.

    As `data.splits.make_splits`, for one file of programming tasks.
    """
    return split_items(
        list(map(_item, load_code_tasks(tasks_file).tasks.values())),
        split_file,
        {"tasks_file": tasks_file},
        {},
        seed=seed,
        validation=validation,
        test=test,
        on_collision=on_collision,
        source="task file",
    )


def open_code_split(split_file: Path | str, name: str, purpose: str) -> CodeTaskSet:
    """Tasks of one split, checked as `data.splits.open_split` does."""
    document = read_split_file(split_file, name, purpose)
    if "tasks_file" not in document:
        raise UserError(f"{split_file}: is not a split file of programming tasks")
    tasks = load_code_tasks(Path(split_file).parent / document["tasks_file"]).tasks
    ids = verified_ids(split_file, document, list(map(_item, tasks.values())))
    return CodeTaskSet({task_id: tasks[task_id] for task_id in ids[name]})


def _item(task: CodeTask) -> Item:
    tests = tests_of(task)
    return Item(
        task_id=task.task_id,
        text=normalise_text(task.statement),
        state=digest_json(tests),
        loose_state=digest_json(loose_form(tests)),
        stratum=(task.topic, task.family) if task.family else ("", ""),
        sha256=digest_json(asdict(task)),
        state_words="the same tests",
        loose_words="the same tests",
    )
