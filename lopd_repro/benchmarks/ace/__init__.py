"""ACEBench's agent tasks: scores, a mini-suite of the same form, and the official harness."""

from lopd_repro.benchmarks.ace.demonstrate import GOLD, Noise, conversations, vocabulary

__all__ = ["GOLD", "Noise", "conversations", "vocabulary"]
