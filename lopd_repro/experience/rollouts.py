"""Base rollouts: finished episodes of the untrained model on training tasks.

They are the costliest thing before training, so they are made once, and the experience bank and
the first skills are both read off the same file. A row holds one episode whole, but for its
log-probabilities: no reader uses them, and they would be most of the file. The footer says what
the rollouts are of, and a reader that expects anything else refuses the file.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lopd_repro.errors import UserError
from lopd_repro.files import read_jsonl_with_footer, write_jsonl
from lopd_repro.rollout.episodes import Trajectory


@dataclass(frozen=True)
class RolloutOrigin:
    """What rollouts are of.

    tasks_sha256: of all that the tasks and their environments say. settings: every setting that
    the episodes depend on.
    """

    task_ids: tuple[str, ...]
    tasks_sha256: str
    per_task: int
    settings: Mapping[str, Any]


def write_rollouts(
    path: Path, origin: RolloutOrigin, trajectories: Sequence[Trajectory], **footer: Any
) -> None:
    """Write trajectories that come in order of repeat, then task; `footer` carries counts."""
    stride = len(origin.task_ids)
    write_jsonl(
        path,
        (_row(t, index // stride) for index, t in enumerate(trajectories)),
        tasks_sha256=origin.tasks_sha256,
        settings=origin.settings,
        **footer,
    )


def read_rollouts(path: Path | str, origin: RolloutOrigin) -> list[Trajectory]:
    """Trajectories in order of repeat, then task, with NaN for the log-probabilities.

    `UserError` if the file was made with other settings, of other tasks, or does not hold
    `per_task` rollouts of every task.
    """
    rows, footer = read_jsonl_with_footer(path)
    _check_settings(path, footer.get("settings"), origin.settings)
    places = {task_id: place for place, task_id in enumerate(origin.task_ids)}
    repeats: dict[str, list[int]] = {task_id: [] for task_id in origin.task_ids}
    found: list[tuple[int, Trajectory]] = []
    for index, row in enumerate(rows):
        if row.get("task_id") not in places:
            raise UserError(
                f"{path}: row {index} is of task {row.get('task_id')}, which is not among the "
                f"{len(places)} training tasks"
            )
        try:
            repeats[row["task_id"]].append(row["repeat"])
            found.append((row["repeat"], _trajectory(row, places[row["task_id"]])))
        except (KeyError, TypeError, ValueError) as error:
            raise UserError(f"{path}: row {index} is not a rollout ({error!r})") from None
    for task_id, own in repeats.items():
        if sorted(own) != list(range(origin.per_task)):
            numbers = ", ".join(map(str, own)) or "none"
            raise UserError(
                f"{path}: found of task {task_id} rollouts {numbers}, allowed: each of 0 to "
                f"{origin.per_task - 1} once (base_rollouts.per_task)"
            )
    if footer.get("tasks_sha256") != origin.tasks_sha256:
        raise UserError(
            f"{path}: the tasks or their environments are not as they were when it was made"
        )
    return [t for _, t in sorted(found, key=lambda pair: (pair[0], pair[1].group))]


def _row(trajectory: Trajectory, repeat: int) -> dict[str, Any]:
    return {
        "task_id": trajectory.task_id,
        "repeat": repeat,
        "head": list(trajectory.head),
        "tail": trajectory.tail,
        "supervised": [int(flag) for flag in trajectory.supervised],
        "reward": None if math.isnan(trajectory.reward) else trajectory.reward,
        "status": trajectory.status,
        # As a text, since a trace shows arguments in the order in which the model wrote them, and
        # a model may write numbers that strict JSON lacks.
        "records": json.dumps(trajectory.records),
    }


def _trajectory(row: Mapping[str, Any], place: int) -> Trajectory:
    supervised = [bool(flag) for flag in row["supervised"]]
    if len(supervised) != len(row["tail"]):
        raise ValueError(f"{len(row['tail'])} ids, {len(supervised)} marks")
    return Trajectory(
        task_id=row["task_id"],
        group=place,
        head=tuple(row["head"]),
        tail=row["tail"],
        supervised=supervised,
        logp=[math.nan if flag else 0.0 for flag in supervised],
        raw_logp=[math.nan if flag else 0.0 for flag in supervised],
        reward=math.nan if row["reward"] is None else float(row["reward"]),
        status=row["status"],
        records=json.loads(row["records"]),
    )


def _check_settings(path: Path | str, made: Any, wanted: Mapping[str, Any]) -> None:
    before, now = dict(_flat(made or {})), dict(_flat(wanted))
    for key in sorted({*before, *now}):
        old, new = before.get(key, "nothing"), now.get(key, "nothing")
        if old != new:
            raise UserError(f"{path}: made with {key} {_short(old)}, found {_short(new)} now")


def _flat(values: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{above}{key}.")
        else:
            yield above + key, value


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "..."
