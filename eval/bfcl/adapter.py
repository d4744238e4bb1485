"""BFCL multi-turn for `lopd-repro benchmark`; the work is in lopd_repro/benchmarks/bfcl.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lopd_repro.benchmarks.bfcl import Bfcl, Settings
from lopd_repro.settings import build


def make(settings: dict[str, Any], folder: Path) -> Bfcl:
    """The benchmark from the configuration's mapping; `folder` is this file's."""
    return Bfcl(build(Settings, settings, "benchmark"), folder)
