"""The interface between a benchmark's adapter and the command that runs it.

An adapter is a file in `eval/NAME/` that defines `make(settings, folder)`. It asks a served
checkpoint for answers, lets the benchmark's scorer judge them, and returns one row per task and
repeat; it keeps finished tasks in a state folder, so that a second attempt goes on from there.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from lopd_repro.errors import UserError
from lopd_repro.serving.settings import Endpoint

Row = dict[str, Any]

STATUSES = ("ok", "timeout", "error", "refused")


class Benchmark(Protocol):
    """One benchmark with its settings.

    `data` and `scorer` say in words which data and which scorer are used; tables print both.
    `partial`: tasks were left out by a setting, so no table takes the result. A benchmark may
    also have `report`: after a run, what it says beside its rows, ready for JSON.
    """

    name: str
    data: str
    scorer: str
    partial: bool

    def expected(self) -> list[tuple[str, int]]:
        """Every (task id, repeat) that makes the score complete, in a fixed order."""

    def run(self, endpoint: Endpoint, checkpoint: Path, state: Path) -> list[Row]:
        """Rows `{task_id, repeat, category, score, status, ...}`, score within [0, 1].

        A failing endpoint is never a score: `UserError`, with what has finished kept in `state`.
        """


def load_benchmark(file: Path, settings: dict[str, Any]) -> Benchmark:
    """The benchmark that an adapter file makes from its settings."""
    spec = importlib.util.spec_from_file_location(f"lopd_repro_eval_{file.parent.name}", file)
    if spec is None or spec.loader is None or not file.is_file():
        raise UserError(f"--file: {file} is no adapter file")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if not hasattr(module, "make"):
        raise UserError(f"--file: {file} defines no make(settings, folder)")
    benchmark: Benchmark = module.make(settings, file.parent)
    return benchmark


def checked_rows(rows: Sequence[Row], expected: Sequence[tuple[str, int]], name: str) -> list[Row]:
    """The rows in the expected order; `UserError` for a missing, doubled or invalid one."""
    found: dict[tuple[str, int], Row] = {}
    for row in rows:
        key = (str(row["task_id"]), int(row["repeat"]))
        if key in found:
            raise UserError(f"{name}: task {key[0]}, repeat {key[1]}, was scored twice")
        if not isinstance(row["score"], int | float) or not 0 <= row["score"] <= 1:
            raise UserError(f"{name}: task {key[0]} has score {row['score']!r}, allowed: 0 to 1")
        if math.isnan(row["score"]) or row["status"] not in STATUSES:
            raise UserError(f"{name}: task {key[0]} has status {row['status']!r}")
        found[key] = row
    missing = [key for key in expected if key not in found]
    if missing:
        raise UserError(
            f"{name}: {len(missing)} of {len(expected)} results are missing, the first is "
            f"{missing[0][0]}, repeat {missing[0][1]}"
        )
    if len(found) != len(expected):
        extra = next(key for key in found if key not in set(expected))
        raise UserError(f"{name}: a result for task {extra[0]}, which was not asked for")
    return [found[key] for key in expected]
