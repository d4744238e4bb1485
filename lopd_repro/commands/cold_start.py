"""`lopd-repro cold-start`: train the latent context composer on bank trajectories.

    lopd-repro cold-start --settings JSON --splits FILE --backbone DIR --bank FILE \
        --retrieved FILE --out composer.safetensors --report report.json

The report rolls the latent teacher out on validation tasks, with retrieved experiences, with
shuffled ones and without any.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

import torch

from lopd_repro.commands.ranks import add_ranks, ranks_of
from lopd_repro.commands.wiring import (
    AnyTaskSet,
    Parts,
    add_settings,
    merged,
    parts,
    start,
    training_tasks,
    validation_tasks,
)
from lopd_repro.experience.bank import read_bank
from lopd_repro.experience.pairing import assign_experiences
from lopd_repro.files import read_json, write_json, write_jsonl
from lopd_repro.lopd.cold_start import ColdStartSettings, cold_start
from lopd_repro.lopd.composer import Composer, ComposerSettings
from lopd_repro.lopd.latents import Framing, LatentSource
from lopd_repro.lopd.saved import save_composer
from lopd_repro.models.backbone import copy_model, freeze
from lopd_repro.parallel.ranks import Ranks
from lopd_repro.rollout.divided import divided_engine
from lopd_repro.settings import build
from lopd_repro.training.evaluate import EvaluationPlan, evaluate, summary
from lopd_repro.training.hold import hold_frozen, needs_shards

_TASKS_AT_ONCE = 8


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of this command."""
    add_settings(parser)
    for name in ("splits", "backbone", "bank", "retrieved"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--report", type=Path, required=True)
    parser.add_argument(
        "--no-measure", action="store_true", help="leave the latent teacher's rollouts out"
    )
    add_ranks(parser)


def run(args: argparse.Namespace) -> int:
    """Train the composer and measure the latent teacher."""
    settings = start(args)
    train, validation = (
        training_tasks(settings, args.splits),
        validation_tasks(settings, args.splits),
    )
    bank = {e.experience_id: e for e in read_bank(args.bank, set(train.tasks))}
    retrieved = read_json(args.retrieved)
    seed, n_retrieved = int(settings["seed"]), int(settings["n_retrieved"])
    own = build(ColdStartSettings, settings["cold_start"], "cold_start")
    sharded = needs_shards(own)
    with ranks_of(args, settings, sharded) as ranks, parts(settings, args.backbone) as p:
        shape = build(
            ComposerSettings,
            {
                **settings["composer"],
                "task_prompt": p.prompts.composer_task,
                "trace_prompt": p.prompts.composer_trace,
            },
            "composer",
        )
        frozen = freeze(copy_model(p.backbone.model))
        composer = Composer(frozen, p.backbone.tokenizer, shape, seed, "composer")
        hold_frozen(frozen, [composer.compressor], True, own, ranks)
        domain = p.domain(merged(train, validation))
        framing = Framing(p.prompts.latent_before, p.prompts.latent_after)

        def source(split: str, pairing: str) -> LatentSource:
            tasks = list(retrieved[split])
            assigned = assign_experiences(
                tasks, retrieved[split], n_retrieved, pairing, retrieved["groups"], bank, seed
            )
            return LatentSource(composer, bank, assigned, domain.task_text, framing)

        rows: list[dict[str, float]] = []
        cold_start(
            source("train", own.pairing),
            frozen,
            p.codec,
            domain,
            list(bank.values()),
            own,
            seed,
            rows.append,
            ranks,
        )
        at_once = own.micro_batch * _TASKS_AT_ONCE or len(validation.tasks)
        report = {} if args.no_measure else _measure(p, validation, source, at_once, ranks)
        save_composer(composer, args.out, ranks)
        if not ranks.first:
            return 0
        print(f"latent teacher on validation: {report}", file=sys.stderr, flush=True)
    write_jsonl(args.report.with_suffix(".jsonl"), rows)
    write_json(args.report, report)
    return 0


def _measure(
    p: Parts,
    validation: AnyTaskSet,
    source: Callable[[str, str], LatentSource],
    at_once: int,
    ranks: Ranks,
) -> dict[str, dict[str, float]]:
    domain = p.domain(validation)
    tasks = tuple(validation.tasks)
    plan = EvaluationPlan(tasks, 1, int(p.settings["seed"]), p.sampling("evaluation"))
    engine = divided_engine(p.engine, ranks)
    report = {"none": summary(evaluate(engine, p.codec, domain, plan))}
    for pairing in ("retrieved", "shuffled"):
        found, contexts = source("validation", pairing), []
        with torch.no_grad():
            for start in range(0, len(tasks), at_once):
                contexts += found.contexts(tasks[start : start + at_once])
        report[pairing] = summary(evaluate(engine, p.codec, domain, plan, contexts))
    return report
