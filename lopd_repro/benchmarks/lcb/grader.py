"""Grades programs by LiveCodeBench's rules, in the sandbox; verdicts are the official ones.

    grade([Sample(problem, program), ...], GraderSettings()) -> [Verdict, ...]

Programs share a sandbox in small batches, one after the other, which saves most of its cost. A
program that ends its batch is graded again in a sandbox of its own, and so are those after it.
Time-outs are graded again when everything else has finished, alone, and only that verdict counts.

Departures from the official scorer: a limit on memory, which it lacks; its limits of time are wall
time, here less the time in which the machine was busy with others; a time-out of the whole worker
is told from a death (both are [-2], error code -5, there).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lopd_repro.errors import UserError
from lopd_repro.sandbox import Limits, Outcome, run
from lopd_repro.stats.passk import passed_all

INSIDE = Path(__file__).resolve().parent / "inside"
WRONG, DIED = -2, -5
REQUIRED = ("files", "processes")
"""Without these layers no program is run."""
_FEW = 8
_STALL = 8
"""How much longer a sandbox may take on a busy machine; no limit of a program counts such time."""


@dataclass(frozen=True)
class Problem:
    """Tests in the official form: texts, which for a functional problem are JSON line by line.

    fn_name: the method that is called, None for a problem on standard input.
    """

    task_id: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    fn_name: str | None = None

    def __post_init__(self) -> None:
        if len(self.inputs) != len(self.outputs):
            raise UserError(
                f"{self.task_id}: {len(self.inputs)} inputs, {len(self.outputs)} outputs"
            )


@dataclass(frozen=True)
class Sample:
    """One program for one problem; `timeout_seconds`, per test, overrides the settings'."""

    problem: Problem
    program: str
    timeout_seconds: float | None = None


@dataclass(frozen=True)
class GraderSettings:
    """timeout_seconds: of one test (6 in the official scorer). memory_mb: address space of a
    program. workers: sandboxes at once. batch: programs in one sandbox. rerun_timeouts: grade a
    time-out again, alone."""

    timeout_seconds: float = 6.0
    memory_mb: int = 4096
    workers: int = 2
    batch: int = 40
    rerun_timeouts: bool = True

    def __post_init__(self) -> None:
        for name in ("timeout_seconds", "memory_mb", "workers", "batch"):
            if getattr(self, name) <= 0:
                raise UserError(f"livecodebench.grader.{name}: allowed: above 0")


@dataclass(frozen=True)
class Verdict:
    """What the official scorer records, and how it came about.

    codes: one per test up to the first failure: true, false (wrong, functional), -2 (wrong,
    standard input), -3 (time), -4 (error); or [-2] with error code -5 if the worker ended without
    a result. ended: reported | died | global_timeout | memory. timed_out: failed after a real
    time limit. reruns: gradings after the first.
    """

    codes: tuple[bool | int | float, ...]
    error_code: int | None
    detail: str
    ended: str
    timed_out: bool
    seconds: float
    reruns: int = 0

    @property
    def passed(self) -> bool:
        """Every code is positive; so a problem without tests is passed."""
        return passed_all(self.codes)


def grade(samples: Sequence[Sample], settings: GraderSettings) -> list[Verdict]:
    """The verdict of every sample, in order."""
    verdicts: dict[int, Verdict] = {}
    waiting = list(range(len(samples)))
    with ThreadPoolExecutor(settings.workers) as pool:
        while waiting:
            batches = _batches(waiting, settings)
            for found in pool.map(lambda batch: _one_sandbox(samples, batch, settings), batches):
                verdicts.update(found)
            waiting = [index for index in waiting if index not in verdicts]
    if settings.rerun_timeouts:
        for index in sorted(i for i, verdict in verdicts.items() if verdict.timed_out):
            again = _one_sandbox(samples, [index], settings)[index]
            verdicts[index] = replace(again, reruns=1)
    return [verdicts[index] for index in range(len(samples))]


def _batches(waiting: Sequence[int], settings: GraderSettings) -> list[list[int]]:
    """Large batches first, which start few sandboxes, then small ones, which end together."""
    left = list(waiting)
    made: list[list[int]] = []
    while left:
        share = -(-len(left) // settings.workers)
        if share <= _FEW:
            return made + [left[start : start + share] for start in range(0, len(left), share)]
        size = min(settings.batch, max(_FEW, share // 2))
        made.append(left[:size])
        left = left[size:]
    return made


def _one_sandbox(
    samples: Sequence[Sample], batch: Sequence[int], settings: GraderSettings
) -> dict[int, Verdict]:
    """Verdicts of a batch's programs up to the one that ended it, which gets one as well if it
    was alone or first."""
    outcome = _run([(index, samples[index]) for index in batch], settings)
    found: dict[int, Verdict] = {}
    for line in outcome.stdout.splitlines():
        try:
            row = json.loads(line)
            verdict = _verdict(row)
        except (ValueError, KeyError, TypeError):
            break
        found[row["id"]] = verdict
    left = [index for index in batch if index not in found]
    if left and len(batch) > 1:
        found.update(_one_sandbox(samples, left[:1], settings))
    elif left:
        found[left[0]] = _ended(outcome)
    return found


def _run(jobs: Sequence[tuple[int, Sample]], settings: GraderSettings) -> Outcome:
    data, wall, longest = bytearray(), 30.0, 0.0
    modules = set()
    for index, sample in jobs:
        problem = sample.problem
        timeout = sample.timeout_seconds or settings.timeout_seconds
        most = (timeout + 1) * len(problem.inputs) + 5
        wall += most + 1
        longest = max(longest, most)
        tests = list(zip(problem.inputs, problem.outputs, strict=True))
        head = {
            "id": index,
            "code": sample.program,
            "fn_name": problem.fn_name,
            "timeout": timeout,
            "tests": len(tests),
        }
        for message in (head, tests):
            body = json.dumps(message).encode()
            data += len(body).to_bytes(8, "big") + body
        if "numpy" in sample.program:
            modules.add("numpy")
    limits = Limits(
        memory_mb=settings.memory_mb,
        cpu_seconds=longest + 10,
        wall_seconds=_STALL * wall,
        processes=64,
        open_files=256,
        file_mb=64,
        output_kb=4096,
    )
    command = [sys.executable, "-I", "-B", str(INSIDE / "judge.py"), *sorted(modules)]
    return run(command, limits, readable=[INSIDE], stdin=bytes(data), require=REQUIRED)


def _verdict(row: dict[str, Any]) -> Verdict:
    return Verdict(
        codes=tuple(row["codes"]),
        error_code=row["error_code"],
        detail=str(row["detail"]),
        ended=str(row["ended"]),
        timed_out=bool(row["timed_out"]),
        seconds=float(row["seconds"]),
    )


def _ended(outcome: Outcome) -> Verdict:
    """Of a program that took its whole sandbox with it: the official worker's death."""
    ended = {"timeout": "global_timeout", "memory": "memory"}.get(outcome.verdict, "died")
    detail = outcome.stderr[-300:].decode("utf-8", "replace").strip()
    return Verdict((WRONG,), DIED, detail, ended, ended == "global_timeout", outcome.seconds)
