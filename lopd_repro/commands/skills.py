"""`lopd-repro skills`: the first skills of Skill-SD, written from rollouts of the base model.

    lopd-repro skills --settings JSON --splits FILE --rollouts rollouts.jsonl --out skills.jsonl

Each group of a training task's first rollouts (`base-rollouts`) gives one skill, failures
included. Equal skills of a task count once; tasks without any skill are counted in the footer.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lopd_repro.commands.base_rollouts import open_rollouts, read_own
from lopd_repro.commands.wiring import (
    Prompts,
    add_settings,
    episode_texts,
    read_prompts,
    start,
)
from lopd_repro.errors import UserError
from lopd_repro.experience.endpoint import ChatEndpoint, EndpointSettings
from lopd_repro.experience.skills import (
    OfflineWriter,
    Skill,
    SkillWriter,
    attempts_of,
    write_skills,
)
from lopd_repro.experience.skills_endpoint import EndpointWriter
from lopd_repro.settings import at_most, build


@dataclass(frozen=True)
class SkillSettings:
    """groups: skills wanted per task. group_size: rollouts that one is written from."""

    groups: int
    group_size: int
    writer: str = "offline"
    endpoint: dict[str, Any] = field(default_factory=dict)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of this command."""
    add_settings(parser)
    parser.add_argument("--splits", required=True)
    parser.add_argument("--rollouts", required=True)
    parser.add_argument("--out", type=Path, required=True)


def run(args: argparse.Namespace) -> int:
    """Read rollouts, write skills."""
    settings = start(args)
    own = build(SkillSettings, settings["skills"], "skills")
    wanted, per_task = own.groups * own.group_size, read_own(settings).per_task
    at_most(wanted, per_task, "skills.groups * skills.group_size", "base_rollouts.per_task")
    writer = _writer(own, read_prompts(settings["prompts"]))
    tasks, trajectories = open_rollouts(settings, args.splits, args.rollouts)
    texts = episode_texts(settings, tasks)
    skills: dict[tuple[str, Skill], None] = {}
    for place, task_id in enumerate(tasks.tasks):
        rollouts = trajectories[place :: len(tasks.tasks)]
        for first in range(0, wanted, own.group_size):
            group = rollouts[first : first + own.group_size]
            skill = writer.write(texts.task_text(task_id), attempts_of(group, texts))
            if skill is not None:
                skills[task_id, skill] = None
    counts = {
        "tasks": len(tasks.tasks),
        "tasks_without": len(tasks.tasks) - len({task_id for task_id, _ in skills}),
        "rollouts": wanted * len(tasks.tasks),
    }
    print(f"skills: {len(skills)}, {counts}", file=sys.stderr, flush=True)
    write_skills(args.out, skills, **counts)
    return 0


def _writer(own: SkillSettings, prompts: Prompts) -> SkillWriter:
    if own.writer == "offline":
        return OfflineWriter()
    if own.writer != "endpoint":
        raise UserError(f"skills.writer: found {own.writer!r}, allowed: offline, endpoint")
    endpoint = ChatEndpoint(build(EndpointSettings, own.endpoint, "skills.endpoint"))
    return EndpointWriter(endpoint, prompts.skill_request)
