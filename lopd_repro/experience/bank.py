"""Experience bank: successful trajectories of the base model on training tasks.

An entry holds the task's text, an observation-lite trace (what retrieval and the composer read)
and the exact token ids of the trajectory (what cold start trains on). The released code keeps
whatever passes a reward filter that defaults to 0; here the threshold is the paper's notion of
success and always named.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from lopd_repro.errors import UserError
from lopd_repro.files import read_jsonl_with_footer, write_jsonl
from lopd_repro.rollout.domain import EpisodeTexts
from lopd_repro.rollout.episodes import Trajectory


@dataclass(frozen=True)
class Experience:
    """One verified trajectory. `tail` and `supervised` are as in `Trajectory`."""

    experience_id: str
    task_id: str
    task: str
    trace: str
    reward: float
    tail: tuple[int, ...]
    supervised: tuple[bool, ...]

    @property
    def document(self) -> str:
        """What the document side of retrieval embeds: task and trace (paper eq. 15)."""
        return f"{self.task}\n{self.trace}"


def build_bank(
    trajectories: Sequence[Trajectory], texts: EpisodeTexts, threshold: float, per_task: int
) -> list[Experience]:
    """Trajectories with reward at or above `threshold`, at most `per_task` distinct ones a task.

    Trajectories of one task with the same trace count as one, the first.
    """
    kept: list[Experience] = []
    seen: dict[str, set[str]] = {}
    for trajectory in trajectories:
        if not trajectory.reward >= threshold:
            continue
        trace = texts.trace(trajectory.records)
        traces = seen.setdefault(trajectory.task_id, set())
        if trace in traces or len(traces) >= per_task:
            continue
        traces.add(trace)
        kept.append(
            Experience(
                f"{trajectory.task_id}#{len(traces)}",
                trajectory.task_id,
                texts.task_text(trajectory.task_id),
                trace,
                trajectory.reward,
                tuple(trajectory.tail),
                tuple(trajectory.supervised),
            )
        )
    if not kept:
        raise UserError(
            f"bank: none of {len(trajectories)} rollouts reached a reward of {threshold}; "
            "draw more rollouts (base_rollouts.per_task) or lower bank.threshold"
        )
    return kept


def write_bank(path: Path, bank: Sequence[Experience], **footer: Any) -> None:
    """Write the bank; `footer` carries its counts."""
    write_jsonl(path, (asdict(entry) for entry in bank), **footer)


def read_bank(path: Path | str, allowed_tasks: set[str] | None = None) -> list[Experience]:
    """Read a bank; an entry of a task outside `allowed_tasks` (training split) is refused."""
    rows, _ = read_jsonl_with_footer(path)
    bank = []
    for index, row in enumerate(rows):
        if allowed_tasks is not None and row["task_id"] not in allowed_tasks:
            raise UserError(
                f"{path}: entry {index} is of task {row['task_id']}, which is not in the "
                "training split"
            )
        bank.append(
            Experience(
                **{
                    **row,
                    "tail": tuple(row["tail"]),
                    "supervised": tuple(row["supervised"]),
                }
            )
        )
    return bank
