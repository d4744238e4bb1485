"""`lopd-repro bank`: experience bank of a backbone, and what every task retrieves from it.

    lopd-repro bank --settings JSON --splits FILE --backbone DIR --out bank.jsonl \
        --retrieved retrieved.json

Rollouts of the base model on training tasks; successes join the bank. Retrieval is computed once
for training and validation tasks; test tasks never see the bank.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path

from lopd_repro.commands.wiring import (
    add_settings,
    families_of,
    groups_of,
    merged,
    parts,
    start,
    training_tasks,
    validation_tasks,
)
from lopd_repro.experience.bank import build_bank, write_bank
from lopd_repro.experience.embed import make_embedder
from lopd_repro.experience.retrieval import RetrievalSettings, Retriever
from lopd_repro.files import write_json
from lopd_repro.settings import build
from lopd_repro.training.evaluate import EvaluationPlan, evaluate, summary


@dataclass(frozen=True)
class BankSettings:
    """threshold: reward that counts as success. per_task: distinct trajectories kept a task."""

    rollouts_per_task: int
    threshold: float
    per_task: int
    seed: int
    embedder: str
    task_limit: int = 0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of this command."""
    add_settings(parser)
    parser.add_argument("--splits", required=True)
    parser.add_argument("--backbone", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--retrieved", type=Path, required=True)


def run(args: argparse.Namespace) -> int:
    """Roll out, filter, embed, retrieve."""
    settings = start(args)
    bank_settings = build(BankSettings, settings["bank"], "bank")
    retrieval = build(RetrievalSettings, settings["retrieval"], "retrieval")
    train = training_tasks(settings, args.splits, bank_settings.task_limit)
    validation = validation_tasks(settings, args.splits)
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
        retriever = Retriever(bank, make_embedder(bank_settings.embedder, p.backbone), retrieval)
        found = {}
        for name, tasks in (("train", train), ("validation", validation)):
            texts = p.domain(tasks)
            hits = retriever.search([(i, texts.task_text(i)) for i in tasks.tasks])
            found[name] = dict(zip(tasks.tasks, hits, strict=True))
    everything = merged(train, validation)
    families = families_of(everything)
    owner = {entry.experience_id: entry.task_id for entry in bank}
    write_bank(args.out, bank, **counts)
    write_json(
        args.retrieved,
        {
            **{
                name: {task: [hit.experience_id for hit in hits] for task, hits in rows.items()}
                for name, rows in found.items()
            },
            "groups": groups_of(everything),
            "same_family_at_1": {
                name: _share(
                    [
                        families[owner[hits[0].experience_id]] == families[task]
                        for task, hits in rows.items()
                        if hits
                    ]
                )
                for name, rows in found.items()
            },
        },
    )
    return 0


def _share(flags: list[bool]) -> float:
    return sum(flags) / max(1, len(flags))
