"""`lopd-repro bank`: experience bank of a backbone.

    lopd-repro bank --settings JSON --splits FILE --rollouts rollouts.jsonl --out bank.jsonl

Successes among the base model's rollouts on training tasks (`base-rollouts`) join the bank.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path

from lopd_repro.commands.base_rollouts import open_rollouts
from lopd_repro.commands.wiring import add_settings, episode_texts, start
from lopd_repro.experience.bank import build_bank, write_bank
from lopd_repro.settings import build
from lopd_repro.training.evaluate import summary


@dataclass(frozen=True)
class BankSettings:
    """threshold: reward that counts as success. per_task: distinct trajectories kept a task."""

    threshold: float
    per_task: int


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of this command."""
    add_settings(parser)
    parser.add_argument("--splits", required=True)
    parser.add_argument("--rollouts", required=True)
    parser.add_argument("--out", type=Path, required=True)


def run(args: argparse.Namespace) -> int:
    """Read, filter, write."""
    settings = start(args)
    own = build(BankSettings, settings["bank"], "bank")
    train, trajectories = open_rollouts(settings, args.splits, args.rollouts)
    bank = build_bank(trajectories, episode_texts(settings, train), own.threshold, own.per_task)
    counts = {
        "rollouts": len(trajectories),
        "tasks": len(train.tasks),
        "tasks_with_success": len({entry.task_id for entry in bank}),
        **{f"base_{name}": value for name, value in summary(trajectories).items()},
    }
    print(f"bank: {len(bank)} experiences, {counts}", file=sys.stderr, flush=True)
    write_bank(args.out, bank, **counts)
    return 0
