"""`lopd-repro retrieve`: what every training and validation task retrieves from a bank.

    lopd-repro retrieve --settings JSON --splits FILE --backbone DIR --bank bank.jsonl \
        --out retrieved.json

Computed once for all runs of a backbone. Test tasks are not among the queries: nothing that
trains may see them.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
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
from lopd_repro.errors import UserError
from lopd_repro.experience.bank import Experience, read_bank
from lopd_repro.experience.embed import make_embedder
from lopd_repro.experience.retrieval import RetrievalSettings, Retriever
from lopd_repro.files import write_json
from lopd_repro.settings import build


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of this command."""
    add_settings(parser)
    for name in ("splits", "backbone", "bank"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--out", type=Path, required=True)


def run(args: argparse.Namespace) -> int:
    """Embed the bank, search for every task."""
    settings = start(args)
    retrieval = build(RetrievalSettings, settings["retrieval"], "retrieval")
    if "embedder" not in settings:
        raise UserError("embedder: missing")
    train = training_tasks(settings, args.splits, int(settings.get("task_limit", 0)))
    validation = validation_tasks(settings, args.splits)
    bank = read_bank(args.bank, set(train.tasks))
    with parts(settings, args.backbone) as p:
        retriever = Retriever(bank, make_embedder(settings["embedder"], p.backbone), retrieval)
        found = {}
        for name, tasks in (("train", train), ("validation", validation)):
            domain = p.domain(tasks)
            found[name] = retriever.find({task: domain.task_text(task) for task in tasks.tasks})
    everything = merged(train, validation)
    families = families_of(everything)
    agreement = {name: same_family_at_1(rows, bank, families) for name, rows in found.items()}
    print(f"retrieve: first hit of the task's own family: {agreement}", file=sys.stderr, flush=True)
    groups = groups_of(everything)
    write_json(args.out, {**found, "groups": groups, "same_family_at_1": agreement})
    return 0


def same_family_at_1(
    found: Mapping[str, Sequence[str]], bank: Sequence[Experience], families: Mapping[str, str]
) -> float:
    """Share of the tasks with hits whose best one is of their own family."""
    owner = {entry.experience_id: entry.task_id for entry in bank}
    flags = [families[owner[hits[0]]] == families[task] for task, hits in found.items() if hits]
    return sum(flags) / max(1, len(flags))
