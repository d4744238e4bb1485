"""Ground-truth replay of BFCL through this project's adapter, and the releases against each other.

    python benchmarks/bfcl_replay.py [--python-v3 BIN] [--python-v4 BIN]

For each installed release and category: how many of the 200 tasks pass when the ground truth is
the answer (200), and when its last call is left out (0). With both releases installed: how many
questions, initial states and ground truths differ, and how many ground truths of one release the
other one's checker refuses.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

from lopd_repro.benchmarks.bfcl import Bfcl, Settings
from lopd_repro.benchmarks.bfcl_data import CATEGORIES, RELEASES, read_lines
from lopd_repro.benchmarks.bfcl_replay import Truth, answers, truths
from lopd_repro.errors import UserError

FOLDER = Path(__file__).resolve().parents[1] / "eval" / "bfcl"


def passed(bench: Bfcl, given: dict[str, list[list[str]]]) -> dict[str, int]:
    """Passed tasks per category."""
    with tempfile.TemporaryDirectory() as state:
        rows = bench.judge(given, Path(state))
    return {c: sum(int(r["score"]) for r in rows if r["category"] == c) for c in CATEGORIES}


def differing(left: Bfcl, right: Bfcl, category: str) -> dict[str, int]:
    """Number of tasks whose parts differ between two releases."""
    counts = {"question": 0, "initial_config": 0, "question or initial_config": 0, "truth": 0}
    rows = [read_lines(b.source / b.release.data_file(category)) for b in (left, right)]
    truth = [
        read_lines(b.source / "possible_answer" / b.release.data_file(category))
        for b in (left, right)
    ]
    for a, b in zip(*rows, strict=True):
        question, state = (_differ(a, b, part) for part in ("question", "initial_config"))
        counts["question"] += question
        counts["initial_config"] += state
        counts["question or initial_config"] += question or state
    counts["truth"] = sum(_differ(a, b, "ground_truth") for a, b in zip(*truth, strict=True))
    return counts


def _differ(left: dict[str, Any], right: dict[str, Any], part: str) -> bool:
    assert left["id"] == right["id"]
    return json.dumps(left.get(part)) != json.dumps(right.get(part))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    for name in RELEASES:
        parser.add_argument(f"--python-{name}", default="", metavar="BIN")
    arguments = vars(parser.parse_args())
    benches: dict[str, Bfcl] = {}
    replies: dict[str, dict[str, Truth]] = {}
    for name in RELEASES:
        settings = Settings("Qwen/Qwen3-8B-FC", release=name, python=arguments[f"python_{name}"])
        try:
            benches[name] = Bfcl(settings, FOLDER)
        except UserError as error:
            print(f"{name}: left out ({error})")
            continue
        source = benches[name].source
        replies[name] = {k: v for c in CATEGORIES for k, v in truths(source, c).items()}
        for what, drop in (("ground truth", False), ("without its last call", True)):
            began = time.perf_counter()
            given = {task: answers(truth, drop) for task, truth in replies[name].items()}
            counts = passed(benches[name], given)
            print(f"{name}, {what}: {_line(counts)} of 200 ({time.perf_counter() - began:.1f} s)")
    if len(benches) == 2:
        v3, v4 = benches["v3"], benches["v4"]
        for category in CATEGORIES:
            print(f"differing, {category}: {differing(v3, v4, category)}")
        for own, other in (("v3", "v4"), ("v4", "v3")):
            given = {task: answers(truth) for task, truth in replies[own].items()}
            counts = passed(benches[other], given)
            failing = {category: 200 - n for category, n in counts.items()}
            print(f"ground truths of {own} that fail under {other}: {_line(failing)} of 200")


def _line(counts: dict[str, int]) -> str:
    return ", ".join(f"{c.removeprefix('multi_turn_')} {n}" for c, n in counts.items())


if __name__ == "__main__":
    main()
