"""`lopd-repro execute`: judge one Python program by a tests file, confined.

    lopd-repro execute --code FILE --tests FILE

Prints one JSON object: `verdict` (passed, wrong, timeout, memory, crash or refused), `cases`
(verdict, processor seconds and what is known about the end, for each) and `isolation` (what
kept the program in). The exit code is 0 whenever there is a verdict.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import fields
from pathlib import Path

from lopd_repro.errors import UserError
from lopd_repro.sandbox.executor import Executor, ProgramLimits
from lopd_repro.sandbox.programs import Judgement, Program, judge, read_tests

_SHOWN = 400


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of this command."""
    parser.add_argument("--code", type=Path, required=True, help="the program, a Python file")
    parser.add_argument("--tests", type=Path, required=True, help="the tests, a JSON file")
    parser.add_argument(
        "--stop", action="store_true", help="skip the cases after one that ends badly"
    )
    for field in fields(ProgramLimits):
        parser.add_argument(
            f"--{field.name.replace('_', '-')}",
            type=type(field.default),
            default=field.default,
            help="a limit for each case (default: %(default)s)",
        )


def run(args: argparse.Namespace) -> int:
    """Judge and print."""
    tests = read_tests(args.tests)
    try:
        code = args.code.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{args.code}: cannot be read as a program ({error})") from None
    values = {field.name: getattr(args, field.name) for field in fields(ProgramLimits)}
    for name, value in values.items():
        if value <= 0:
            option = name.replace("_", "-")
            raise UserError(f"--{option}: found {value}, allowed: more than 0")
    with Executor(ProgramLimits(**values), workers=1) as executor:
        (judgement,) = judge(executor, [Program(code, tests)], stop=args.stop)
    print(json.dumps(as_json(judgement)))
    return 0


def as_json(judgement: Judgement) -> dict[str, object]:
    """The printed object."""
    cases = []
    for verdict, result in zip(judgement.cases, judgement.results, strict=True):
        case: dict[str, object] = {
            "verdict": verdict,
            "cpu_seconds": round(result.cpu_seconds, 4),
        }
        if result.detail:
            case["detail"] = result.detail[:_SHOWN]
        if result.stderr:
            case["stderr"] = result.stderr[-_SHOWN:].decode("utf-8", "replace")
        cases.append(case)
    return {"verdict": judgement.verdict, "cases": cases, "isolation": judgement.isolation}
