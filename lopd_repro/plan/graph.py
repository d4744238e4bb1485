"""The jobs of a configuration, as Snakemake's own dry run lists them."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lopd_repro.errors import UserError
from lopd_repro.workflow.configuration import ROOT

_RULE = re.compile(r"^(?:local)?(?:rule|checkpoint) (\w+):$")
_WILDCARDS = re.compile(r"^    wildcards: (.*)$")
_PAIR = re.compile(r"(\w+)=([^,]+)")


@dataclass(frozen=True)
class Job:
    """One job: its rule and its wildcards."""

    rule: str
    wildcards: tuple[tuple[str, str], ...] = ()

    def get(self, name: str) -> str:
        """A wildcard's value; empty if the rule has none of that name."""
        return dict(self.wildcards).get(name, "")


def jobs(configs: Sequence[Path], targets: Sequence[str], remaining: bool = False) -> list[Job]:
    """Every job that the targets take; with `remaining`, those that have not run yet."""
    command = [sys.executable, "-m", "snakemake", "--dry-run", "--configfile"]
    command += [str(path.resolve()) for path in configs]
    command += [] if remaining else ["--forceall"]
    done = subprocess.run(
        [*command, "--", *targets], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if done.returncode:
        said = [line for line in (done.stdout + done.stderr).splitlines() if "rror" in line]
        raise UserError(f"snakemake --dry-run: {said[0] if said else 'failed'}")
    return parse(done.stdout)


def parse(text: str) -> list[Job]:
    """Jobs of a dry run's text."""
    found: list[Job] = []
    for line in text.splitlines():
        if rule := _RULE.match(line):
            found.append(Job(rule[1]))
        elif found and (wildcards := _WILDCARDS.match(line)):
            pairs = tuple((k, v.strip()) for k, v in _PAIR.findall(wildcards[1]))
            found[-1] = Job(found[-1].rule, pairs)
    return found
