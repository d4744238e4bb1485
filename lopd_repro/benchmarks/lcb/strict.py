"""A strict reading beside the official verdicts: does the program do what the problem asks?

    strict_verdicts([Sample(problem, program), ...], settings) -> ["passed", "wrong", ...]

A standard-input program runs as a script, once a test, with true streams; it passes a test if it
ends by itself with status 0 and prints the expected lines, where ordinary decimal numbers of equal
value are equal. A functional program is loaded as it is, with the usual names imported before it;
its own `Solution` method, or its own function of that name, must return the expected value
(`lopd_repro.sandbox.compare.same_value`: tuples count as lists, true is not 1, floats within 1e-9).
A problem without tests passes nobody.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from lopd_repro.benchmarks.lcb.grader import GraderSettings, Problem, Sample
from lopd_repro.benchmarks.lcb.inside.program import PREAMBLE
from lopd_repro.sandbox.compare import same_value
from lopd_repro.sandbox.executor import CaseResult, Executor, Job, ProgramLimits

NO_TESTS, BROKEN_TESTS = "no tests", "broken tests"
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,4})?", re.ASCII)
_ENTRY = "call_the_solution"
_LOADER = """
_space = {{"__name__": "solution"}}
exec({preamble!r}, _space)
_before = dict(_space)
exec(compile({program!r}, "solution.py", "exec"), _space)
_kind = _space.get("Solution")
if isinstance(_kind, type) and hasattr(_kind, {name!r}):
    _make = lambda: getattr(_kind(), {name!r})
elif {name!r} in _space and _space[{name!r}] is not _before.get({name!r}, _space):
    _make = lambda: _space[{name!r}]
else:
    raise NameError("no solution called " + {name!r})

def {entry}(*arguments):
    return _make()(*arguments)
"""


def strict_verdicts(samples: Sequence[Sample], settings: GraderSettings) -> list[str]:
    """passed, wrong, timeout, memory, crash, refused, `no tests` or `broken tests`, in order."""
    verdicts = [_without_running(sample.problem) for sample in samples]
    by_limit: dict[float, list[int]] = {}
    for index, sample in enumerate(samples):
        if not verdicts[index]:
            limit = sample.timeout_seconds or settings.timeout_seconds
            by_limit.setdefault(limit, []).append(index)
    for limit, indices in sorted(by_limit.items()):
        limits = ProgramLimits(
            cpu_seconds=limit,
            wall_seconds=4 * limit + 2,  # on a busy machine much of it is waiting
            memory_mb=settings.memory_mb,
            processes=16,
            output_kb=16384,
        )
        packages = any("numpy" in samples[index].program for index in indices)
        with Executor(
            limits,
            workers=settings.workers,
            packages=packages,
            rerun_timeouts=settings.rerun_timeouts,
        ) as executor:
            results = executor.run([_job(samples[index]) for index in indices])
        for index, result in zip(indices, results, strict=True):
            problem = samples[index].problem
            found = [
                _case(problem, case, expected)
                for case, expected in zip(result.cases, problem.outputs, strict=True)
            ]
            verdicts[index] = next((one for one in found if one != "passed"), "passed")
    return verdicts


def _without_running(problem: Problem) -> str:
    if not problem.inputs:
        return NO_TESTS
    try:
        if problem.fn_name is not None:
            for text, expected in zip(problem.inputs, problem.outputs, strict=True):
                _arguments(text)
                json.loads(expected)
    except ValueError:
        return BROKEN_TESTS
    return ""


def _arguments(text: str) -> list[Any]:
    return [json.loads(line) for line in text.split("\n")]


def _job(sample: Sample) -> Job:
    problem = sample.problem
    if problem.fn_name is None:
        return Job("stdin", sample.program, problem.inputs, stop=True)
    code = _LOADER.format(
        preamble=PREAMBLE, program=sample.program, name=problem.fn_name, entry=_ENTRY
    )
    inputs = [_arguments(text) for text in problem.inputs]
    return Job("function", code, inputs, entry_point=_ENTRY, stop=True)


def _case(problem: Problem, case: CaseResult, expected: str) -> str:
    if case.verdict != "ok":
        return case.verdict
    if problem.fn_name is not None:
        return "passed" if same_value(case.value, json.loads(expected)) else "wrong"
    printed = case.stdout.decode("utf-8", "replace")
    return "passed" if _same_text(printed, expected) else "wrong"


def _same_text(printed: str, expected: str) -> bool:
    ours, theirs = (
        [line.split() for line in text.strip().splitlines()] for text in (printed, expected)
    )
    return len(ours) == len(theirs) and all(
        len(left) == len(right) and all(map(_same_word, left, right))
        for left, right in zip(ours, theirs, strict=True)
    )


def _same_word(left: str, right: str) -> bool:
    if left == right:
        return True
    if not (_NUMBER.fullmatch(left) and _NUMBER.fullmatch(right)):
        return False
    return Decimal(left) == Decimal(right)
