"""`lopd-repro train`: one method on one backbone with one seed.

    lopd-repro train --settings JSON --method-file baselines/grpo.py --seed 0 \
        --splits FILE --backbone DIR --out results/runs/tool_use/BACKBONE/grpo/seed0 \
        --state results/state/... [--input bank=FILE --input retrieved=FILE ...]

Writes `metrics.jsonl`, `selected.json`, `manifest.json`, `checkpoint/` and the method's own files
of the selected step (LOPD: its composer) under `--out`. `train.keep_candidates: true` leaves the
weights of every validated step under `candidates/`, `false` an empty folder. An interrupted run
goes on from its last saved step under `--state` and ends with the same bytes.

`--ranks N` (or torchrun) trains with N processes, a GPU each, which hold weights, gradients and
moments in shards: docs/parallel.md. A run goes on with another number of ranks than it began with.
"""

from __future__ import annotations

import argparse
import shutil
import time
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from lopd_repro.commands.ranks import add_ranks, ranks_of
from lopd_repro.commands.wiring import (
    Parts,
    add_settings,
    merged,
    parts,
    start,
    training_tasks,
    validation_tasks,
)
from lopd_repro.errors import UserError
from lopd_repro.files import digest_file, digest_json, write_bytes, write_json, write_jsonl
from lopd_repro.models.backbone import copy_model
from lopd_repro.parallel.ranks import Ranks
from lopd_repro.rollout.divided import CopyEngine
from lopd_repro.rollout.engine import RolloutEngine
from lopd_repro.rollout.episodes import derive_seed
from lopd_repro.settings import build
from lopd_repro.training.candidates import FOLDER as CANDIDATES
from lopd_repro.training.candidates import Candidates
from lopd_repro.training.checkpoint import clear_state, save_model
from lopd_repro.training.evaluate import EvaluationPlan
from lopd_repro.training.hold import hold_models, needs_shards
from lopd_repro.training.lock import exclusive
from lopd_repro.training.loop import LoopSettings, RunSeeds, TrainingRun
from lopd_repro.training.manifest import manifest
from lopd_repro.training.method import Method, Resources, load_method
from lopd_repro.training.step import StepSettings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of this command."""
    add_settings(parser)
    parser.add_argument("--method-file", required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--splits", required=True)
    parser.add_argument("--backbone", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--state", type=Path, required=True)
    parser.add_argument("--source-digest", default="")
    parser.add_argument(
        "--input", action="append", default=[], metavar="NAME=FILE", help="a file the method reads"
    )
    add_ranks(parser)


def run(args: argparse.Namespace) -> int:
    """Train, select, save."""
    began = time.perf_counter()
    settings = start(args)
    step = build(StepSettings, settings.get("optimiser", {}), "optimiser")
    with ranks_of(args, settings, needs_shards(step)) as ranks:
        _train(args, settings, step, ranks, began)
    return 0


def _train(
    args: argparse.Namespace,
    settings: dict[str, Any],
    step: StepSettings,
    ranks: Ranks,
    began: float,
) -> None:
    method_class = load_method(args.method_file)
    inputs = _inputs(args.input)
    lock: AbstractContextManager[None] = exclusive(args.state) if ranks.first else nullcontext()
    with lock, parts(settings, args.backbone) as p:
        method = _method(method_class, p, settings, args, inputs, ranks)
        if method_class.trains:
            training = _training_run(method, p, settings, args, inputs, step, ranks)
            training.run()
            metrics, selected = training.metrics, training.selection.report()
            artifacts, keep = training.artifacts(), training.loop.keep_candidates
        else:
            metrics, selected = [], {"rule": "not trained", "selected_step": 0}
            artifacts, keep = method.artifacts(), False
        checkpoint = args.out / "checkpoint"
        if ranks.first and checkpoint.exists():
            shutil.rmtree(checkpoint)
        save_model(checkpoint, p.backbone.model, p.backbone.tokenizer, ranks)
        if not ranks.first:
            return
        selected["validation_scores"] = selected.get("validation_scores", {})
        candidates = Candidates(args.state)
        if keep or "keep_candidates" in settings.get("train", {}):
            # Where the setting is named, the workflow expects the folder, if only an empty one.
            if not keep:
                candidates.begin()
            candidates.publish(args.out)
        else:
            shutil.rmtree(args.out / CANDIDATES, ignore_errors=True)
        _save(args, metrics, selected, artifacts)
        write_json(
            args.out / "manifest.json",
            manifest(
                settings,
                {"splits": args.splits, "method_file": args.method_file, **inputs},
                args.source_digest,
                _seeds(args.seed),
                time.perf_counter() - began,
                method=method_class.name,
                method_settings=method.settings,
                isolation=p.world.isolation,
                ranks=ranks.size,
            ),
        )
        clear_state(args.state)
        candidates.begin()


def _inputs(given: list[str]) -> dict[str, str]:
    pairs = {}
    for text in given:
        name, equals, path = text.partition("=")
        if not equals or not Path(path).is_file():
            raise UserError(f"--input: found {text!r}, allowed: NAME=FILE with an existing file")
        pairs[name] = path
    return pairs


def _seeds(seed: int) -> dict[str, int]:
    names = ("data", "rollout", "environment", "method")
    return {name: derive_seed("run", seed, name) % 2**31 for name in names}


def _method(
    method_class: type[Method],
    p: Parts,
    settings: dict[str, Any],
    args: argparse.Namespace,
    inputs: dict[str, str],
    ranks: Ranks,
) -> Method:
    tasks = merged(training_tasks(settings, args.splits), validation_tasks(settings, args.splits))
    resources = Resources(
        backbone=p.backbone,
        codec=p.codec,
        domain=p.domain(tasks),
        seed=_seeds(args.seed)["method"],
        base_path=args.backbone,
        files=inputs,
        prompts=vars(p.prompts),
        ranks=ranks,
    )
    return method_class(settings.get("method", {}), resources)


def _training_run(
    method: Method,
    p: Parts,
    settings: dict[str, Any],
    args: argparse.Namespace,
    inputs: dict[str, str],
    step: StepSettings,
    ranks: Ranks,
) -> TrainingRun:
    seeds = _seeds(args.seed)
    train = training_tasks(settings, args.splits, int(settings.get("train_task_limit", 0)))
    loop = build(LoopSettings, settings["train"], "train")
    if loop.rollouts_per_step % loop.group_size:
        raise UserError(
            f"train.rollouts_per_step: found {loop.rollouts_per_step}, allowed: a multiple of "
            f"train.group_size {loop.group_size}"
        )
    validation = settings["validation"]
    plan = EvaluationPlan(
        tuple(validation_tasks(settings, args.splits, int(validation.get("task_limit", 0))).tasks),
        int(validation["repeats"]),
        int(validation["seed"]),
        p.sampling("evaluation"),
    )
    identity = {
        "settings": digest_json(settings),
        "source": args.source_digest,
        "method_file": digest_file(args.method_file),
        "seed": args.seed,
        "backbone": _folder_digest(args.backbone),
        "inputs": {name: digest_file(path) for name, path in inputs.items()},
    }
    engine = _hold(p, method, settings, step, ranks, loop.one_step_off)
    return TrainingRun(
        p.backbone.model,
        method,
        engine,
        list(train.tasks),
        plan,
        loop,
        step,
        p.sampling("rollout"),
        RunSeeds(seeds["data"], seeds["rollout"], seeds["environment"]),
        args.state,
        identity,
        ranks,
    )


def _hold(
    p: Parts,
    method: Method,
    settings: dict[str, Any],
    step: StepSettings,
    ranks: Ranks,
    one_step_off: bool,
) -> RolloutEngine:
    """Hold the models as the settings and the ranks ask; the engine on what it can sample from."""
    policy = p.backbone.model
    sharded = ranks.mesh is not None and settings.get("engine", {}).get("name", "hf") == "hf"
    twin = copy_model(policy) if sharded or one_step_off else None
    hold_models(policy, method, step, ranks)
    return p.engine if twin is None else CopyEngine(p.make_engine(twin), twin)


def _folder_digest(folder: str) -> str:
    files = sorted(Path(folder).glob("*.safetensors")) if Path(folder).is_dir() else []
    return digest_json([digest_file(f) for f in files]) if files else folder


def _save(
    args: argparse.Namespace,
    metrics: list[dict[str, Any]],
    selected: dict[str, Any],
    artifacts: dict[str, bytes],
) -> None:
    for name, data in artifacts.items():
        write_bytes(args.out / name, data)
    write_jsonl(args.out / "metrics.jsonl", metrics)
    write_json(args.out / "selected.json", selected)
