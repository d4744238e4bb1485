"""`lopd-repro plan`: what a configuration will cost, before anything runs.

    lopd-repro plan --config config/paper.yaml
    lopd-repro plan --config config/paper.yaml --device h200 --gpus 8 --json
    lopd-repro plan --config config/paper.yaml --target results-paper/table1.csv --remaining
    lopd-repro plan --config config/tiny.yaml --calibrate results

Jobs are those of Snakemake's dry run. Rollouts and tokens follow from the settings; seconds and
disk from the model of cost in lopd_repro/plan (assumptions.yaml names each number's source).
`--calibrate` takes tokens and seconds from a finished run instead, and prints beside what the rates
of its first seed predict for the others.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import yaml

from lopd_repro.errors import UserError
from lopd_repro.plan import bill, calibrate, graph
from lopd_repro.plan.cost import Device, Rates, seconds
from lopd_repro.plan.work import Estimator
from lopd_repro.settings import build
from lopd_repro.workflow import variants
from lopd_repro.workflow.configuration import load

ASSUMPTIONS = Path(graph.__file__).with_name("assumptions.yaml")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of this command."""
    parser.add_argument("--config", nargs="+", type=Path, required=True)
    parser.add_argument(
        "--target", nargs="+", default=["all"], help="rules or files (default: all)"
    )
    parser.add_argument("--remaining", action="store_true", help="only jobs that have not run yet")
    parser.add_argument("--device", help="a name of assumptions.yaml (default: h100, or cpu)")
    parser.add_argument("--gpus", type=int, default=8, help="devices that share the work")
    parser.add_argument("--calibrate", type=Path, metavar="RESULTS", help="a finished run")
    parser.add_argument("--dry-run", type=Path, help="a text of snakemake --dry-run, to be read")
    parser.add_argument("--json", action="store_true")


def run(args: argparse.Namespace) -> int:
    """Count, price, print."""
    known = yaml.safe_load(ASSUMPTIONS.read_text())
    config = load(args.config)
    variants.expand(config)
    name = args.device or ("cpu" if config["engine"].get("device", "cpu") == "cpu" else "h100")
    if name not in known["devices"]:
        raise UserError(f"--device: found {name!r}, allowed: {', '.join(known['devices'])}")
    if args.gpus < 1:
        raise UserError(f"--gpus: found {args.gpus}, allowed: 1 or more")
    device = build(Device, known["devices"][name], f"devices.{name}")
    if args.dry_run:
        if not args.dry_run.is_file():
            raise UserError(f"--dry-run: no file {args.dry_run}")
        jobs = graph.parse(args.dry_run.read_text())
    else:
        jobs = graph.jobs(args.config, args.target, args.remaining)
    estimator, rates, compared = Estimator(config, known), Rates(), ""
    rows: list[dict[str, Any]] = []
    if args.calibrate:
        measured = calibrate.measured_jobs(args.calibrate)
        estimator = Estimator(config, known, calibrate.measured_tokens(args.calibrate))
        rows = _compare(measured, estimator, device)
        rates = calibrate.fit(measured, estimator)
        compared = _compared_text(rows, args.calibrate)
    found = bill.make(jobs, estimator, device, rates)
    if args.json:
        whole = {"device": name, **found.as_json(), "predicted_and_measured": rows}
        print(json.dumps(whole, indent=2, sort_keys=True))
    else:
        print(bill.text(found, known, name, args.gpus, compared))
    return 0


def _compare(
    measured: list[calibrate.Measured], estimator: Estimator, device: Device
) -> list[dict[str, Any]]:
    """By rule, hours of the seeds after the first: measured, and predicted from the first."""
    first = calibrate.first_seed(measured)
    rates = calibrate.fit([m for m in measured if m.seed in ("", first)], estimator)
    sums: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])
    for one in measured:
        if one.seed in ("", first):
            continue
        try:
            work = estimator.work(one.job)
        except (KeyError, UserError):
            continue
        entry = sums[one.job.rule]
        entry[0] += 1
        entry[1] += seconds(work, one.job.rule, device, estimator.known, rates)
        entry[2] += one.seconds
    return [
        {"rule": rule, "jobs": int(n), "predicted_seconds": p, "measured_seconds": m}
        for rule, (n, p, m) in sorted(sums.items(), key=lambda item: -item[1][2])
    ]


def _compared_text(rows: list[dict[str, Any]], results: Path) -> str:
    lines = [
        f"tokens and seconds from {results}. Its first seed predicts for the other seeds:",
        f"  {'rule':26}{'jobs':>6}{'predicted s':>13}{'measured s':>12}{'ratio':>8}",
    ]
    for row in rows:
        ratio = row["predicted_seconds"] / max(row["measured_seconds"], 1e-9)
        lines.append(
            f"  {row['rule'][:25]:26}{row['jobs']:>6}{row['predicted_seconds']:>13.0f}"
            f"{row['measured_seconds']:>12.0f}{ratio:>8.2f}"
        )
    total = [sum(row[key] for row in rows) for key in ("predicted_seconds", "measured_seconds")]
    if total[1]:
        lines.append(
            f"  {'all of them':32}{total[0]:>13.0f}{total[1]:>12.0f}{total[0] / total[1]:>8.2f}"
        )
    return "\n".join(lines)
