"""`lopd-repro skills`: the first skills of Skill-SD, written from rollouts of the base model.

    lopd-repro skills --settings JSON --splits FILE --backbone DIR --out skills.jsonl

Each group of rollouts of a training task gives one skill, failures included. Equal skills of a
task count once; tasks without any skill are counted in the footer.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lopd_repro.commands.wiring import Prompts, add_settings, parts, start, training_tasks
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
from lopd_repro.settings import build
from lopd_repro.training.evaluate import EvaluationPlan, evaluate


@dataclass(frozen=True)
class SkillSettings:
    """groups: skills wanted per task. group_size: rollouts that one is written from."""

    seed: int
    groups: int
    group_size: int
    task_limit: int = 0
    writer: str = "offline"
    endpoint: dict[str, Any] = field(default_factory=dict)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of this command."""
    add_settings(parser)
    parser.add_argument("--splits", required=True)
    parser.add_argument("--backbone", required=True)
    parser.add_argument("--out", type=Path, required=True)


def run(args: argparse.Namespace) -> int:
    """Roll out, write skills."""
    settings = start(args)
    own = build(SkillSettings, settings["skills"], "skills")
    tasks = training_tasks(settings, args.splits, own.task_limit)
    skills: dict[tuple[str, Skill], None] = {}
    with parts(settings, args.backbone) as p:
        writer = _writer(own, p.prompts)
        domain = p.domain(tasks)
        repeats = own.groups * own.group_size
        plan = EvaluationPlan(tuple(tasks.tasks), repeats, own.seed, p.sampling("rollout"))
        trajectories = evaluate(p.engine, p.codec, domain, plan)
        for place, task_id in enumerate(tasks.tasks):
            rollouts = trajectories[place :: len(tasks.tasks)]
            for first in range(0, repeats, own.group_size):
                group = rollouts[first : first + own.group_size]
                skill = writer.write(domain.task_text(task_id), attempts_of(group, domain))
                if skill is not None:
                    skills[task_id, skill] = None
    counts = {
        "tasks": len(tasks.tasks),
        "tasks_without": len(tasks.tasks) - len({task_id for task_id, _ in skills}),
        "rollouts": len(trajectories),
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
