"""`lopd-repro demonstrations`: one verified trajectory per training task, for SDFT and OPSD.

    lopd-repro demonstrations --settings JSON --splits FILE --backbone DIR --bank bank.jsonl \
        --out demonstrations.jsonl

The base model's own successes are the bank's. For tasks without one, `demonstrations.missing`
says `none` (they stay without) or `endpoint` (a stronger model acts in their environment). The
footer counts both and what is missing.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lopd_repro.commands.wiring import AnyTaskSet, add_settings, parts, start, training_tasks
from lopd_repro.errors import UserError
from lopd_repro.experience.bank import read_bank
from lopd_repro.experience.demonstrations import Demonstration, from_bank, write_pool
from lopd_repro.experience.demonstrations_endpoint import PROTOCOL, ask
from lopd_repro.experience.endpoint import ChatEndpoint, EndpointSettings
from lopd_repro.settings import build


@dataclass(frozen=True)
class PoolSettings:
    """threshold: reward that counts as verified. attempts: episodes asked for per task."""

    missing: str
    threshold: float
    attempts: int = 4
    seed: int = 0
    endpoint: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.missing not in ("none", "endpoint"):
            raise UserError(
                f"demonstrations.missing: found {self.missing!r}, allowed: none, endpoint"
            )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of this command."""
    add_settings(parser)
    for name in ("splits", "backbone", "bank"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--out", type=Path, required=True)


def run(args: argparse.Namespace) -> int:
    """Read the bank, ask for the rest, write the pool."""
    settings = start(args)
    own = build(PoolSettings, settings["demonstrations"], "demonstrations")
    tasks = training_tasks(settings, args.splits)
    pool = from_bank(read_bank(args.bank, set(tasks.tasks)))
    from_base = len(pool)
    missing = [task_id for task_id in tasks.tasks if task_id not in pool]
    if own.missing == "endpoint" and missing:
        found = _ask(settings, args.backbone, tasks, own, missing)
        pool.update({entry.task_id: entry for entry in found})
    counts = {
        "tasks": len(tasks.tasks),
        "from_base": from_base,
        "from_endpoint": len(pool) - from_base,
        "missing": len(tasks.tasks) - len(pool),
    }
    print(f"demonstrations: {counts}", file=sys.stderr, flush=True)
    write_pool(args.out, [pool[t] for t in tasks.tasks if t in pool], **counts)
    return 0


def _ask(
    settings: dict[str, Any],
    backbone: str,
    tasks: AnyTaskSet,
    own: PoolSettings,
    missing: list[str],
) -> list[Demonstration]:
    endpoint = ChatEndpoint(build(EndpointSettings, own.endpoint, "demonstrations.endpoint"))
    with parts(settings, backbone) as p:
        domain = p.world.endpoint_domain(tasks, PROTOCOL)
        return ask(endpoint, domain, missing, own.attempts, own.threshold, own.seed)
