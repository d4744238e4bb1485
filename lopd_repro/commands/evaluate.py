"""`lopd-repro evaluate`: a run on the held-out test split.

    lopd-repro evaluate --settings JSON --splits FILE --noop FILE --seed 0 --out FILE \
        --checkpoint DIR
    ... --candidates DIR
    ... --checkpoint DIR --composer FILE --bank FILE

With `--checkpoint` the run's selected checkpoint, once: one row per task and repeat, with the
expected count in the footer. With `--candidates` every validated step of a run on the same plan:
rows as before and `step`; they show what choosing on test would have given, and nothing is chosen
by them. With `--composer` the model reads latents of experiences retrieved for the test tasks
('base + composer'): the one use of a bank here, and illustrative only.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lopd_repro.commands.wiring import (
    AnyTaskSet,
    Parts,
    add_settings,
    domain_of,
    open_tasks,
    parts,
    start,
)
from lopd_repro.errors import UserError
from lopd_repro.files import read_json, write_jsonl
from lopd_repro.models.backbone import load_backbone
from lopd_repro.rollout.heads import Context
from lopd_repro.training.candidates import candidate_folders
from lopd_repro.training.evaluate import EvaluationPlan, evaluate, rows, summary

BENCHMARKS = {
    "tool_use": ("envscaler", "lopd_repro.envs"),
    "coding": ("taco", "lopd_repro.sandbox"),
}
"""Name and scorer of a domain's own held-out test."""

PURPOSE = "candidates on test; never used for a choice"

Scored = tuple[list[dict[str, Any]], dict[str, Any]]
"""Rows, and what the footer says beside what every evaluation's says."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of this command."""
    add_settings(parser)
    for name in ("splits", "noop"):
        parser.add_argument(f"--{name}", required=True)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--checkpoint", type=Path, help="a model folder")
    what.add_argument("--candidates", type=Path, help="a run's folder of candidates")
    parser.add_argument(
        "--composer", type=Path, help="with --checkpoint: give the model this composer's latents"
    )
    parser.add_argument("--bank", type=Path, help="with --composer: the experiences to retrieve")
    parser.add_argument("--seed", type=int, required=True, help="training seed of the run")
    parser.add_argument("--out", type=Path, required=True)


def run(args: argparse.Namespace) -> int:
    """Score the test tasks."""
    began = time.perf_counter()
    if (args.composer is None) != (args.bank is None):
        raise UserError("--composer and --bank: found one of them, allowed: both or none")
    if args.composer and args.candidates:
        raise UserError("--composer: found with --candidates, allowed: with --checkpoint")
    settings = start(args)
    tasks = open_tasks(settings, args.splits, "test", "evaluation")
    floor = read_json(args.noop)["noop_reward"]
    benchmark, scorer = BENCHMARKS[domain_of(settings)]
    expected = len(tasks.tasks) * int(settings["evaluation"]["repeats"])
    if args.candidates:
        result, more = _score_candidates(args, settings, tasks)
        benchmark += "_candidates"
        expected *= len(more["steps"])
    else:
        result, more = _score_checkpoint(args, settings, tasks)
    write_jsonl(
        args.out,
        [{**row, "noop_reward": floor[row["task_id"]]} for row in result],
        expected=expected,
        benchmark=benchmark,
        data=settings["data_label"],
        scorer=scorer,
        wall_seconds=round(time.perf_counter() - began, 3),
        **more,
    )
    return 0


def _score_checkpoint(
    args: argparse.Namespace, settings: dict[str, Any], tasks: AnyTaskSet
) -> Scored:
    with parts(settings, args.checkpoint) as p:
        if args.composer is None:
            return _test(args, p, tasks, "test"), {}
        module = importlib.import_module("lopd_repro.commands.composer_contexts")
        contexts, more = module.composer_contexts(p, tasks, args.splits, args.composer, args.bank)
        return _test(args, p, tasks, "test with latents", contexts), more


def _score_candidates(
    args: argparse.Namespace, settings: dict[str, Any], tasks: AnyTaskSet
) -> Scored:
    folders = candidate_folders(args.candidates)
    _check_complete(args.candidates, list(folders))
    result: list[dict[str, Any]] = []
    with parts(settings, next(iter(folders.values()))) as p:
        model = p.backbone.model
        for step, folder in folders.items():
            loaded = load_backbone(folder, str(model.dtype).removeprefix("torch."))
            model.load_state_dict(loaded.model.state_dict())
            p.engine.sync_weights(model)
            scored = _test(args, p, tasks, f"test, candidate of step {step}")
            result += [{**row, "step": step} for row in scored]
    return result, {"purpose": PURPOSE, "steps": list(folders)}


def _check_complete(folder: Path, steps: list[int]) -> None:
    """Against the steps that the run validated, where its `selected.json` is beside the folder."""
    selected = folder.parent / "selected.json"
    if not selected.is_file():
        return
    validated = sorted(int(s) for s in read_json(selected)["validation_scores"] if int(s) > 0)
    if validated != steps:
        raise UserError(
            f"{folder}: found candidates of steps {steps}, but the run validated {validated}"
        )


def _test(
    args: argparse.Namespace,
    p: Parts,
    tasks: AnyTaskSet,
    what: str,
    contexts: Sequence[Context] | None = None,
) -> list[dict[str, Any]]:
    evaluation = p.settings["evaluation"]
    # Every training seed gets draws of its own, so that untrained models vary over seeds too.
    seed = int(evaluation["seed"]) + args.seed
    plan = EvaluationPlan(
        tuple(tasks.tasks), int(evaluation["repeats"]), seed, p.sampling("evaluation")
    )
    trajectories = evaluate(p.engine, p.codec, p.domain(tasks), plan, contexts)
    print(f"{what}: {summary(trajectories)}", file=sys.stderr, flush=True)
    return rows(trajectories, len(tasks.tasks))
