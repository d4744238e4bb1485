"""Benchmarks of finished checkpoints: what an adapter gives, and the check of its rows."""

from lopd_repro.benchmarks.benchmark import Benchmark, Row, checked_rows, load_benchmark

__all__ = ["Benchmark", "Row", "checked_rows", "load_benchmark"]
