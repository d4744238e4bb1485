"""`lopd-repro base-rollouts`: rollouts of the untrained model on training tasks, made once.

    lopd-repro base-rollouts --settings JSON --splits FILE --backbone DIR --out rollouts.jsonl

The jobs that read the file (`bank`, `skills`) run no episode and load no model.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from lopd_repro.commands.ranks import add_ranks, ranks_of
from lopd_repro.commands.wiring import (
    AnyTaskSet,
    add_settings,
    domain_of,
    parts,
    read_prompts,
    start,
    training_tasks,
)
from lopd_repro.experience.rollouts import RolloutOrigin, read_rollouts, write_rollouts
from lopd_repro.files import digest_json
from lopd_repro.rollout.divided import divided_engine
from lopd_repro.rollout.episodes import Trajectory
from lopd_repro.settings import build
from lopd_repro.training.evaluate import EvaluationPlan, evaluate, summary


@dataclass(frozen=True)
class BaseRolloutSettings:
    """per_task: rollouts of each training task. task_limit: first tasks only; 0 is all."""

    seed: int
    per_task: int
    task_limit: int = 0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of this command."""
    add_settings(parser)
    parser.add_argument("--splits", required=True)
    parser.add_argument("--backbone", required=True)
    parser.add_argument("--out", type=Path, required=True)
    add_ranks(parser)


def run(args: argparse.Namespace) -> int:
    """Roll out, write."""
    settings = start(args)
    own = read_own(settings)
    tasks = training_tasks(settings, args.splits, own.task_limit)
    with ranks_of(args, settings) as ranks, parts(settings, args.backbone) as p:
        plan = EvaluationPlan(tuple(tasks.tasks), own.per_task, own.seed, p.sampling("rollout"))
        engine = divided_engine(p.engine, ranks)
        trajectories = evaluate(engine, p.codec, p.domain(tasks), plan)
    if not ranks.first:
        return 0
    counts = {"rollouts": len(trajectories), "tasks": len(tasks.tasks), **summary(trajectories)}
    print(f"base rollouts: {counts}", file=sys.stderr, flush=True)
    write_rollouts(args.out, _origin(settings, tasks, own), trajectories, **counts)
    return 0


def read_own(settings: dict[str, Any]) -> BaseRolloutSettings:
    """The section `base_rollouts`."""
    return build(BaseRolloutSettings, settings.get("base_rollouts"), "base_rollouts")


def open_rollouts(
    settings: dict[str, Any], splits: str, path: str
) -> tuple[AnyTaskSet, list[Trajectory]]:
    """The training tasks and the file's rollouts of them, in order of repeat, then task."""
    own = read_own(settings)
    tasks = training_tasks(settings, splits, own.task_limit)
    return tasks, read_rollouts(path, _origin(settings, tasks, own))


def _origin(settings: dict[str, Any], tasks: AnyTaskSet, own: BaseRolloutSettings) -> RolloutOrigin:
    prompts = read_prompts(settings["prompts"])
    environment = dict(settings["environment"])
    environment.pop("trace_chars", None)  # how an episode is told, not how it goes
    made_with = {
        "domain": domain_of(settings),
        "prompts": {"system": prompts.system, "user": prompts.user},
        "environment": environment,
        "engine": settings.get("engine", {}),
        "chat": settings.get("chat", {}),
        "sampling": {"rollout": settings["sampling"]["rollout"]},
        "base_rollouts": asdict(own),
    }
    return RolloutOrigin(tuple(tasks.tasks), digest_json(asdict(tasks)), own.per_task, made_with)
