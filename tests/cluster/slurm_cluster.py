"""A Slurm cluster of one machine, and Snakemake runs on it with the project's profile."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# The plugin's first look at its jobs comes after 40 seconds, which no option changes.
SNAKEMAKE = """
from snakemake.cli import main
from snakemake_executor_plugin_slurm import common_settings

common_settings.init_seconds_before_status_checks = 1
main()
"""

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]


@dataclass
class Cluster:
    """The stand-in's files are in `folder`; `run` starts Snakemake on it."""

    folder: Path
    memory: float = 1.0
    output: str = ""
    code: int = -1

    def run(self, *words: str) -> None:
        """Snakemake with the profile; only waiting times differ from what a user runs."""
        commands = self.folder / "commands"
        stand_in = str(HERE / "slurm_stand_in.py")
        subprocess.run([sys.executable, stand_in, "install", str(commands)], check=True)
        path = [str(commands), str(Path(sys.executable).parent), os.environ["PATH"]]
        done = subprocess.run(
            [sys.executable, "-c", SNAKEMAKE, "--profile", "profiles/slurm", "--latency-wait",
             "5", "--slurm-init-seconds-before-status-checks", "1", *words],
            cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            env={**os.environ, "PATH": os.pathsep.join(path), "USER": "tester",
                 "STAND_IN": str(self.folder / "state"), "STAND_IN_PATIENCE": "60",
                 "STAND_IN_MEMORY": str(self.memory)},
        )  # fmt: skip
        self.output, self.code = done.stdout, done.returncode

    def jobs(self, comment: str) -> list[dict[str, Any]]:
        """Submissions of a rule or a group in order: `id`, `call`, `words`, `state`, `peak_mb`."""
        paths = sorted((self.folder / "state").glob("*/job.json"), key=lambda p: int(p.parent.name))
        found = [json.loads(path.read_text()) for path in paths]
        return [job for job in found if job["call"]["comment"] == comment]
