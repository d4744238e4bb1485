"""`lopd-repro bank`: experience bank of a backbone.

    lopd-repro bank --settings JSON --splits FILE --backbone DIR --out bank.jsonl

Rollouts of the base model on training tasks; successes join the bank.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path

from lopd_repro.commands.wiring import add_settings, parts, start, training_tasks
from lopd_repro.experience.bank import build_bank, write_bank
from lopd_repro.settings import build
from lopd_repro.training.evaluate import EvaluationPlan, evaluate, summary


@dataclass(frozen=True)
class BankSettings:
    """threshold: reward that counts as success. per_task: distinct trajectories kept a task."""

    rollouts_per_task: int
    threshold: float
    per_task: int
    seed: int
    task_limit: int = 0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of this command."""
    add_settings(parser)
    parser.add_argument("--splits", required=True)
    parser.add_argument("--backbone", required=True)
    parser.add_argument("--out", type=Path, required=True)


def run(args: argparse.Namespace) -> int:
    """Roll out, filter, write."""
    settings = start(args)
    bank_settings = build(BankSettings, settings["bank"], "bank")
    train = training_tasks(settings, args.splits, bank_settings.task_limit)
    with parts(settings, args.backbone) as p:
        domain = p.domain(train)
        plan = EvaluationPlan(
            tuple(train.tasks),
            bank_settings.rollouts_per_task,
            bank_settings.seed,
            p.sampling("rollout"),
        )
        trajectories = evaluate(p.engine, p.codec, domain, plan)
        bank = build_bank(trajectories, domain, bank_settings.threshold, bank_settings.per_task)
        covered = len({entry.task_id for entry in bank})
        counts = {
            "rollouts": len(trajectories),
            "tasks": len(train.tasks),
            "tasks_with_success": covered,
            **{f"base_{name}": value for name, value in summary(trajectories).items()},
        }
    print(f"bank: {len(bank)} experiences, {counts}", file=sys.stderr, flush=True)
    write_bank(args.out, bank, **counts)
    return 0
