"""Verdicts do not move when the machine is loaded with twice as many busy processes as cores.

Each scorer judges the same programs, some near the limits on either side, on the machine as it is
and beside the load.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lopd_repro.benchmarks.evalplus.environment import default_python, find_environment
from lopd_repro.benchmarks.evalplus.official import Package, Part
from lopd_repro.benchmarks.lcb.grader import GraderSettings, Problem, Sample, grade
from lopd_repro.errors import UserError
from lopd_repro.sandbox.executor import Executor, ProgramLimits
from lopd_repro.sandbox.programs import Program, judge, parse_tests

ROOT = Path(__file__).resolve().parents[2]
LIMIT = 0.2
# Work before the answer, and the verdict. Sleeping is no work, and counts as wall time.
BUSY = "import time; t = time.process_time()\nwhile time.process_time() < t + {}: pass\n"
WORK = {
    "none": ("", "passed"),
    "two thirds of the limit": (BUSY.format(0.66 * LIMIT), "passed"),
    "half of it, again": (BUSY.format(0.5 * LIMIT), "passed"),
    "a third asleep": (f"import time; time.sleep({LIMIT / 3})\n", "passed"),
    "one and a half": (BUSY.format(1.5 * LIMIT), "timeout"),
    "endless": ("while True: pass\n", "timeout"),
    "raises": ("1 / 0\n", "crash"),
}
SPIN = "import os; parent = os.getppid()\nwhile os.getppid() == parent: sum(range(10_000))"
FELT = """
import time
wall, cpu = time.perf_counter(), time.process_time()
while time.process_time() < cpu + 0.1: pass
print((time.perf_counter() - wall) / 0.1)
"""


@contextmanager
def loaded() -> Iterator[None]:
    """Twice as many busy processes as cores, each in a session of its own like the programs."""
    command = [sys.executable, "-S", "-c"]
    busy = [
        subprocess.Popen([*command, SPIN], start_new_session=True)
        for _ in range(2 * len(os.sched_getaffinity(0)))
    ]
    try:
        felt = subprocess.run([*command, FELT], capture_output=True, start_new_session=True)
        assert float(felt.stdout) > 1.3, "the load is not felt"
        yield
    finally:
        for one in busy:
            one.kill()
            one.wait()


def test_executor() -> None:
    tests = parse_tests({"type": "stdin", "cases": [{"input": "7\n", "output": "14\n"}] * 2}, "-")
    call = {"type": "function", "entry_point": "f", "cases": [{"args": [7], "expected": 14}] * 2}
    function = parse_tests(call, "-")
    programs, expected = [Program("print(13)", tests)], ["wrong"]
    for before, verdict in WORK.values():
        body = "".join(f"    {line}\n" for line in before.splitlines())
        programs.append(Program(before + "print(2 * int(input()))", tests))
        programs.append(Program(f"def f(n):\n{body}    return 2 * n", function))
        expected += [verdict] * 2
    with Executor(ProgramLimits(cpu_seconds=LIMIT), workers=2) as executor:
        idle = judge(executor, programs, stop=True)
        with loaded():
            busy = judge(executor, programs, stop=True)
    assert [one.verdict for one in idle] == expected
    assert [(one.verdict, one.cases) for one in busy] == [(one.verdict, one.cases) for one in idle]


def test_grader_under_the_rules_of_livecodebench() -> None:
    problem = Problem("double", ("7\n", "8\n"), ("14\n", "16\n"))
    programs = [before + "print(2 * int(input()))" for before, _ in WORK.values()]
    swallows = "try:\n    while True: pass\nexcept Exception: pass\nprint(2 * int(input()))"
    samples = [Sample(problem, program) for program in [*programs, swallows, "print(14)"]]
    settings = GraderSettings(timeout_seconds=LIMIT, memory_mb=1024)
    idle = grade(samples, settings)
    with loaded():
        busy = grade(samples, settings)
    codes = {"passed": (True, True), "timeout": (-3,), "crash": (-4,)}
    expected = [codes[verdict] for _, verdict in WORK.values()]
    assert [one.codes for one in idle] == [*expected, (-2,), (True, -2)]
    assert [one.codes for one in busy] == [one.codes for one in idle]
    assert [one.timed_out for one in busy] == [one.timed_out for one in idle]


def test_official_evalplus() -> None:
    """Its limits are wall time; programs that run out of it count only after a patient rerun."""
    try:
        environment = find_environment(default_python(ROOT))
    except UserError as error:
        pytest.skip(str(error))
    package = Package(environment, ROOT / "eval" / "evalplus" / "launch.py")
    problem = {
        "task_id": "HumanEval/901", "prompt": "def f(n):\n", "entry_point": "f", "contract": "",
        "canonical_solution": "    return 2 * n\n", "base_input": [[7]], "plus_input": [[8]],
        "atol": 0,
    }  # fmt: skip
    answers, expected = [("HumanEval/901", "def f(n):\n    return 14")], [False]
    for before, verdict in WORK.values():
        body = "".join(f"    {line}\n" for line in before.splitlines())
        answers.append(("HumanEval/901", f"def f(n):\n{body}    return 2 * n"))
        expected.append(verdict == "passed")
    part = Part("p", "humaneval", [problem], min_time_limit=LIMIT)
    idle = package.score([part], {"p": answers})["p"]
    with loaded():
        busy = package.score([part], {"p": answers})["p"]
    assert [one.passed for one in idle] == expected
    assert [one.passed for one in busy] == expected
    assert [one.late for one in busy] == [one.late for one in idle]
