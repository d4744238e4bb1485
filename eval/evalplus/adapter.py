"""EvalPlus for `lopd-repro benchmark`; the work is in lopd_repro/benchmarks/evalplus/."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lopd_repro.benchmarks.evalplus import EvalPlus, Settings
from lopd_repro.settings import build


def make(settings: dict[str, Any], folder: Path) -> EvalPlus:
    """The benchmark from the configuration's mapping; `folder` is this file's."""
    return EvalPlus(build(Settings, settings, "benchmark"), folder)
