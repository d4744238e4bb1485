"""`lopd-repro doctor`: whether a configuration can run here, and what it would take.

    lopd-repro doctor --config config/paper.yaml
    lopd-repro doctor --config config/paper.yaml --json

Looks at Python and packages, devices, disk, fetched data and weights, environments of the official
benchmarks, hosts and keys, and the sandbox. Exit code 1 if something is missing that the
configuration cannot run without and the workflow cannot make; downloads nothing.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path

from lopd_repro.doctor.checks import Finding, examine
from lopd_repro.workflow.configuration import load

_MARKS = {"ok": "ok     ", "todo": "to do  ", "problem": "PROBLEM", "unknown": "?      "}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of this command."""
    parser.add_argument("--config", nargs="+", type=Path, required=True)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--no-network", action="store_true", help="ask no host whether it answers")


def run(args: argparse.Namespace) -> int:
    """Examine and print."""
    config = load(args.config)
    findings = examine(config, network=not args.no_network)
    stopped = [finding for finding in findings if finding.state == "problem"]
    if args.json:
        whole = {"can_run": not stopped, "findings": [asdict(finding) for finding in findings]}
        print(json.dumps(whole, indent=2, sort_keys=True))
    else:
        print(f"scale {config['scale']}, results in {config['results']}/")
        for finding in findings:
            print(_line(finding))
        todo = sum(finding.state == "todo" for finding in findings)
        print(
            f"cannot run: {len(stopped)} problem(s)"
            if stopped
            else f"can run; the workflow itself sees to {todo} thing(s) marked 'to do'"
        )
    return 1 if stopped else 0


def _line(finding: Finding) -> str:
    return f"{_MARKS[finding.state]} {finding.topic:13} {finding.text}"
