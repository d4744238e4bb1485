"""EvalPlus: the official package's prompts, extraction and scores, and a strict reading beside."""

from lopd_repro.benchmarks.evalplus.benchmark import EvalPlus
from lopd_repro.benchmarks.evalplus.settings import Settings

__all__ = ["EvalPlus", "Settings"]
