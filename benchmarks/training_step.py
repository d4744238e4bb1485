"""Seconds per training step by phase, from finished runs.

    python benchmarks/training_step.py results

Prints, for every method found under `results/runs`, the median over steps of each phase and its
share of the step.
"""

from __future__ import annotations

import statistics
import sys
from collections import defaultdict
from pathlib import Path

from lopd_repro.files import read_jsonl


def main(root: Path) -> None:
    """Print one line per method and backbone."""
    phases: dict[tuple[str, str], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for path in sorted(root.glob("runs/*/*/*/seed*/metrics.jsonl")):
        backbone, method = path.parts[-4], path.parts[-3]
        for row in read_jsonl(path):
            if row["kind"] == "train":
                for phase, seconds in row["seconds"].items():
                    phases[backbone, method][phase].append(seconds)
    if not phases:
        sys.exit(f"{root}: no finished runs")
    for (backbone, method), found in sorted(phases.items()):
        medians = {phase: statistics.median(values) for phase, values in found.items()}
        total = sum(medians.values())
        parts = ", ".join(
            f"{phase} {seconds:.3f} ({seconds / total:.0%})"
            for phase, seconds in sorted(medians.items(), key=lambda item: -item[1])
            if seconds > 0.0005
        )
        print(f"{backbone} {method}: {total:.3f} s/step: {parts}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "results"))
