"""Skills of Skill-SD: what works, what to avoid, a workflow; a bank per task chosen by UCB1.

A skill is written from a task's finished rollouts, failures included. Who writes it is behind
`SkillWriter`: here a deterministic extractor that reads the rollouts' calls and rewards,
elsewhere a model behind an endpoint (`skills_endpoint`), as in the paper.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

from lopd_repro.errors import UserError
from lopd_repro.files import read_jsonl, write_jsonl
from lopd_repro.rollout.domain import EpisodeTexts
from lopd_repro.rollout.episodes import Trajectory
from lopd_repro.stats import ucb1_scores

PARTS = ("works", "avoid", "workflow")


@dataclass(frozen=True)
class Attempt:
    """A finished rollout as a writer reads it: what it did, step by step, trace, reward.

    calls: names of the calls that ran; of a program, its lines.
    """

    calls: tuple[str, ...]
    trace: str
    reward: float


@dataclass(frozen=True)
class Skill:
    """Three texts that the teacher reads."""

    works: str
    avoid: str
    workflow: str

    def text(self, prompts: Mapping[str, str], parts: Sequence[str] = PARTS) -> str:
        """The named parts as the teacher reads them, each after the prompt text `skill_<part>`."""
        shown = "".join(prompts[f"skill_{part}"] + getattr(self, part) for part in parts)
        return shown + prompts["skill_after"]


class SkillWriter(Protocol):
    """Turns one task's rollouts into a skill, or None where nothing can be said."""

    def write(self, task: str, attempts: Sequence[Attempt]) -> Skill | None: ...


class OfflineWriter:
    """Reads the skill off the calls; equal rollouts give equal skills.

    works: calls that all of the best rollouts share; avoid: calls of worse rollouts that none of
    the best made; workflow: the trace of the shortest of the best. Where all failed, the best of
    the failures are the best there are.
    """

    def write(self, task: str, attempts: Sequence[Attempt]) -> Skill | None:
        """A skill from the attempts that have a trace and a reward."""
        valid = [a for a in attempts if a.trace and not math.isnan(a.reward)]
        if not valid:
            return None
        top = max(a.reward for a in valid)
        best = [a for a in valid if a.reward == top]
        model = min(best, key=lambda a: len(a.calls))
        shared = [c for c in dict.fromkeys(model.calls) if all(c in a.calls for a in best)]
        good = {c for a in best for c in a.calls}
        worse = dict.fromkeys(c for a in valid if a.reward < top for c in a.calls)
        avoided = [c for c in worse if c not in good]
        return Skill(", ".join(shared) or "-", ", ".join(avoided) or "-", model.trace)


def attempts_of(trajectories: Iterable[Trajectory], texts: EpisodeTexts) -> list[Attempt]:
    """Rollouts of one task as a writer reads them."""
    return [
        Attempt(
            tuple(str(name) for r in t.records if r.get("executed") for name in _steps(r)),
            texts.trace(t.records),
            t.reward,
        )
        for t in trajectories
    ]


def _steps(record: Mapping[str, Any]) -> Sequence[Any]:
    """A record's own steps (a program's lines), or the one call that it is."""
    if "steps" in record:
        return list(record["steps"])
    return [record["name"]] if "name" in record else []


@dataclass
class Arm:
    """A skill with how often it was used and the sum of the mean rewards then."""

    skill: Skill
    pulls: int = 0
    reward_sum: float = 0.0


class SkillBank:
    """Skills by task, each an arm of that task's UCB1 bandit with exploration weight `c`."""

    def __init__(self, c: float = math.sqrt(2.0)) -> None:
        self._c = c
        self._arms: dict[str, list[Arm]] = {}

    def __len__(self) -> int:
        return sum(len(arms) for arms in self._arms.values())

    def arms(self, task_id: str) -> list[Arm]:
        """The task's skills, oldest first."""
        return self._arms.get(task_id, [])

    def choose(self, task_id: str) -> int | None:
        """Index of the skill to use now: unused ones first, then the highest score, the oldest
        of equals; None for a task without skills."""
        arms = self.arms(task_id)
        if not arms:
            return None
        scores = ucb1_scores([a.reward_sum for a in arms], [a.pulls for a in arms], self._c)
        return max(range(len(arms)), key=lambda i: (scores[i], -i))

    def credit(self, task_id: str, index: int, reward: float) -> None:
        """One use of a skill, with the mean reward of the rollouts it was used for."""
        arm = self._arms[task_id][index]
        arm.pulls += 1
        arm.reward_sum += reward

    def add(self, task_id: str, skill: Skill) -> bool:
        """Add a skill; False if the task has it already."""
        arms = self._arms.setdefault(task_id, [])
        if any(arm.skill == skill for arm in arms):
            return False
        arms.append(Arm(skill))
        return True

    def state_dict(self) -> dict[str, Any]:
        """Skills, counts and rewards as plain values."""
        return {task: [asdict(arm) for arm in arms] for task, arms in self._arms.items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back what `state_dict` gave."""
        self._arms = {
            task: [
                Arm(Skill(**row["skill"]), int(row["pulls"]), float(row["reward_sum"]))
                for row in rows
            ]
            for task, rows in state.items()
        }


def write_skills(path: Path, skills: Iterable[tuple[str, Skill]], **footer: Any) -> None:
    """Write (task id, skill) pairs; `footer` carries their counts."""
    write_jsonl(path, ({"task_id": task, **asdict(skill)} for task, skill in skills), **footer)


def read_skills(path: Path | str) -> list[tuple[str, Skill]]:
    """(task id, skill) pairs of a file."""
    pairs = []
    for index, row in enumerate(read_jsonl(path)):
        try:
            pairs.append((row["task_id"], Skill(row["works"], row["avoid"], row["workflow"])))
        except KeyError as error:
            raise UserError(f"{path}: row {index} has no {error}") from None
    return pairs
