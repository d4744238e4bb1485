"""The experiences that a method's training tasks are given, read from the workflow's files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lopd_repro.experience.bank import Experience, read_bank
from lopd_repro.experience.pairing import assign_experiences, overlap
from lopd_repro.files import read_json


@dataclass(frozen=True)
class TaskExperiences:
    """The bank by id, and each task's experience ids, best first.

    metrics: with another pairing than retrieval's, `pairing_overlap` (share of the tasks that are
    still given one of their own hits).
    """

    bank: dict[str, Experience]
    assigned: dict[str, list[str]]
    metrics: dict[str, float]


def read_task_experiences(
    files: Mapping[str, str], n_retrieved: int, pairing: str, seed: int
) -> TaskExperiences:
    """Training tasks' experiences from the files `bank` and `retrieved`.

    A bank with an entry of another task than a training task is refused.
    """
    retrieved = read_json(files["retrieved"])
    train = retrieved["train"]
    bank = {e.experience_id: e for e in read_bank(files["bank"], set(train))}
    assigned = assign_experiences(
        sorted(train), train, n_retrieved, pairing, retrieved["groups"], bank, seed
    )
    metrics = {}
    if pairing != "retrieved":
        metrics["pairing_overlap"] = overlap(assigned, train, n_retrieved)
    return TaskExperiences(bank, assigned, metrics)
