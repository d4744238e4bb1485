"""LiveCodeBench for `lopd-repro benchmark`; the work is in lopd_repro/benchmarks/lcb/."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lopd_repro.benchmarks.client import Sampling
from lopd_repro.benchmarks.lcb.grader import GraderSettings
from lopd_repro.benchmarks.lcb.suite import LiveCodeBench, Settings
from lopd_repro.settings import build


def make(settings: dict[str, Any], folder: Path) -> LiveCodeBench:
    """The benchmark from the configuration's mapping; `folder` is this file's."""
    given = dict(settings)
    given["sampling"] = build(Sampling, given.get("sampling", {}), "benchmark.sampling")
    given["grader"] = build(GraderSettings, given.get("grader", {}), "benchmark.grader")
    return LiveCodeBench(build(Settings, given, "benchmark"), folder)
