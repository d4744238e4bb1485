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
    """Number of tasks of which parts differ between two releases."""
    names = [b.release.data_file(category) for b in (left, right)]
    sources = [b.source for b in (left, right)]
    entries = [read_lines(s / n) for s, n in zip(sources, names, strict=True)]
    truth = [read_lines(s / "possible_answer" / n) for s, n in zip(sources, names, strict=True)]
    parts = sorted({part for row in (*entries[0], *entries[1]) for part in row})
    found = [
        {part for part in parts if _text(a, part) != _text(b, part)}
        for a, b in zip(*entries, strict=True)
    ]
    return {
        "question": sum("question" in d for d in found),
        "initial state": sum("initial_config" in d for d in found),
        "either": sum(bool(d & {"question", "initial_config"}) for d in found),
        "any part": sum(map(bool, found)),
        "ground truth": sum(
            _text(a, "ground_truth") != _text(b, "ground_truth")
            for a, b in zip(*truth, strict=True)
        ),
    }


def _text(row: dict[str, Any], part: str) -> str:
    return json.dumps(row.get(part), sort_keys=True)


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
