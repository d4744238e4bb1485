"""Demonstration pool: one verified trajectory per training task, shared by SDFT and OPSD.

The base model's own successes come first; where it has none, a stronger model's can be asked for
(`demonstrations_endpoint`), else the task stays without and is counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from lopd_repro.errors import UserError
from lopd_repro.experience.bank import Experience
from lopd_repro.files import read_jsonl, write_jsonl

BASE = "base"


@dataclass(frozen=True)
class Demonstration:
    """A verified trajectory as text. source: `base`, or the name of the model that wrote it."""

    task_id: str
    text: str
    reward: float
    source: str


def from_bank(bank: Iterable[Experience]) -> dict[str, Demonstration]:
    """Each task's first verified trajectory."""
    pool: dict[str, Demonstration] = {}
    for entry in bank:
        if entry.task_id not in pool:
            pool[entry.task_id] = Demonstration(entry.task_id, entry.trace, entry.reward, BASE)
    return pool


def write_pool(path: Path, pool: Sequence[Demonstration], **footer: Any) -> None:
    """Write the pool; `footer` carries its counts."""
    write_jsonl(path, (asdict(entry) for entry in pool), **footer)


def read_pool(path: Path | str) -> dict[str, Demonstration]:
    """Demonstrations by task id; a task named twice is refused."""
    pool: dict[str, Demonstration] = {}
    for row in read_jsonl(path):
        entry = Demonstration(**row)
        if entry.task_id in pool:
            raise UserError(f"{path}: task {entry.task_id} has two demonstrations, allowed: one")
        pool[entry.task_id] = entry
    return pool
