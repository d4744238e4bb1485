"""`lopd-repro evaluate`: a run's selected checkpoint on the held-out test split, once.

    lopd-repro evaluate --settings JSON --splits FILE --checkpoint DIR --noop FILE --out FILE

One row per task and repeat, with the expected count in the footer.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from lopd_repro.commands.wiring import add_settings, domain_of, open_tasks, parts, start
from lopd_repro.files import read_json, write_jsonl
from lopd_repro.training.evaluate import EvaluationPlan, evaluate, rows, summary

BENCHMARKS = {
    "tool_use": ("envscaler", "lopd_repro.envs"),
    "coding": ("taco", "lopd_repro.sandbox"),
}
"""Name and scorer of a domain's own held-out test."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of this command."""
    add_settings(parser)
    for name in ("splits", "checkpoint", "noop"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--seed", type=int, required=True, help="training seed of the run")
    parser.add_argument("--out", type=Path, required=True)


def run(args: argparse.Namespace) -> int:
    """Score the test tasks."""
    began = time.perf_counter()
    settings = start(args)
    tasks = open_tasks(settings, args.splits, "test", "evaluation")
    floor = read_json(args.noop)["noop_reward"]
    evaluation = settings["evaluation"]
    repeats = int(evaluation["repeats"])
    # Every training seed gets draws of its own, so that untrained models vary over seeds too.
    seed = int(evaluation["seed"]) + args.seed
    with parts(settings, args.checkpoint) as p:
        plan = EvaluationPlan(tuple(tasks.tasks), repeats, seed, p.sampling("evaluation"))
        trajectories = evaluate(p.engine, p.codec, p.domain(tasks), plan)
    result = [
        {**row, "noop_reward": floor[row["task_id"]]}
        for row in rows(trajectories, len(tasks.tasks))
    ]
    scores = summary(trajectories)
    print(f"test: {scores}", file=sys.stderr, flush=True)
    benchmark, scorer = BENCHMARKS[domain_of(settings)]
    write_jsonl(
        args.out,
        result,
        expected=len(tasks.tasks) * repeats,
        benchmark=benchmark,
        data=settings["data_label"],
        scorer=scorer,
        wall_seconds=round(time.perf_counter() - began, 3),
    )
    return 0
