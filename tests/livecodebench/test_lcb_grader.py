"""The grader: official codes, odd ones included, on programs made here; hostile ones contained."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lopd_repro.benchmarks.lcb import grader
from lopd_repro.benchmarks.lcb.grader import GraderSettings, Problem, Sample, Verdict, grade
from lopd_repro.benchmarks.lcb.inside.judge import same_output
from lopd_repro.errors import UserError
from lopd_repro.sandbox import LAYERS, Outcome, run

DOUBLE = Problem("double", ("3\n", "5\n"), ("6\n", "10\n"))
TWICE = Problem("twice", ("[1, 2]", "[]"), ("[2, 4]", "[]"), "twice")
RIGHT = "print(2 * int(input()))"
FAST = GraderSettings(timeout_seconds=0.4, memory_mb=1024)
PATIENT = GraderSettings(timeout_seconds=10, memory_mb=1024)

# (program, codes, error code): two tests each; the codes stop at the first failure.
STDIN = {
    "right": (RIGHT, [True, True], None),
    "wrong at the second": ("print(6)", [True, -2], -2),
    "raises": ("print(2 * int(input()))\n1 / 0", [-4], -4),
    "syntax": ("print(", [-4], -4),
    "empty": ("", [-4], -4),
    "exits badly after printing": (RIGHT + "\nimport sys\nsys.exit(1)", [True, True], None),
    "exit skips what follows": ("exit()\n" + RIGHT, [-2], -2),
    "quit is gone": (RIGHT + "\nquit()", [-4], -4),
    "dies": (RIGHT + "\nimport os\nos._exit(0)", [-2], -5),
    "is interrupted": (RIGHT + "\nraise KeyboardInterrupt", [-2], -5),
    "reads lines by iteration": (
        "import sys\nfor line in sys.stdin: print(2 * int(line))",
        [-4],
        -4,
    ),
    "reads everything, twice": (
        "import sys\nsys.stdin.read()\nprint(2 * int(sys.stdin.read()))",
        [True, True],
        None,
    ),
    "writes bytes": (
        "import sys\nsys.stdout.buffer.write(str(2 * int(input())).encode())",
        [-4],
        -4,
    ),
    "old stdout": ("from sys import stdout\nstdout.write(str(2 * int(input())))", [-2], -2),
    "a global": ("n = 0\ndef f():\n    global n\n    n += 1\nf()\n" + RIGHT, [-4], -4),
    "main guard, last": (f"if __name__ == '__main__':\n    {RIGHT}", [True, True], None),
    "main guard, not last": (f"if __name__ == '__main__':\n    {RIGHT}\nx = 1", [-2], -2),
    "top-level return": (RIGHT + "\nreturn", [True, True], None),
    "future import": ("from __future__ import annotations\n" + RIGHT, [-4], -4),
    "the words class Solution": ("s = 'class Solution'\n" + RIGHT, [-4], -4),
    "numbers as decimals": ("print(f'{2 * int(input()):.1e}')", [True, True], None),
    "damages builtins": ("import builtins\n" + RIGHT + "\nbuiltins.len = lambda _: 3", [-2], -5),
    "names its error so": ("raise RuntimeError('a TimeoutException')", [-3], -3),
    "floods": ("print('x' * 5_000_000)", [-2], -2),
    "blank lines behind": ("print(2 * int(input()), '\\n' * 2_000_000)", [True, True], None),
}
FUNCTION = {
    "method": (
        "class Solution:\n def twice(self, a: List[int]): return [2 * x for x in a]",
        [True, True],
        None,
    ),
    "bare": ("def twice(a): return tuple(2 * x for x in a)", [True, True], None),
    "wrong": ("def twice(a): return a", [False], -2),
    "raises later": ("def twice(a): return [2 * a[0], 2 * a[1]]", [True, -4], -4),
    "no such name": ("def thrice(a): return a", [-4], -4),
    "exits": ("def twice(a): exit()", [-2], -5),
    "equals everything": (
        "class E:\n def __eq__(self, o): return True\ndef twice(a): return E()",
        [True, True],
        None,
    ),
    "equals by one": (
        "class E:\n def __eq__(self, o): return 1\ndef twice(a): return E()",
        [1, 1],
        None,
    ),
    "cannot be shown": (
        "class E:\n def __repr__(self): 1 / 0\ndef twice(a): return E()",
        [False, -4],
        -4,
    ),
}


def graded(problem: Problem, programs: list[str], settings: GraderSettings = FAST) -> list[Verdict]:
    return grade([Sample(problem, program) for program in programs], settings)


@pytest.mark.parametrize(("problem", "cases"), [(DOUBLE, STDIN), (TWICE, FUNCTION)])
def test_official_codes(
    problem: Problem, cases: dict[str, tuple[str, list[object], object]]
) -> None:
    verdicts = graded(problem, [program for program, _, _ in cases.values()], PATIENT)
    for (name, (_, codes, error)), verdict in zip(cases.items(), verdicts, strict=True):
        assert list(map(repr, verdict.codes)) == list(map(repr, codes)), (name, verdict)
        assert verdict.error_code == error, (name, verdict)
        assert verdict.passed == (error is None), name
        assert not verdict.timed_out, name


def test_no_tests_pass_unless_the_program_is_broken() -> None:
    nothing = Problem("nothing", (), ())
    empty, broken = graded(nothing, ["x = 1", "x ="])
    assert (empty.codes, empty.passed) == ((), True)
    assert (broken.codes, broken.passed) == ((-4,), False)


def test_tests_that_are_no_json_are_an_error_of_the_program() -> None:
    (verdict,) = graded(Problem("t", ("1",), ("abc",), "f"), ["def f(n): return n"])
    assert (verdict.codes, verdict.error_code) == ((-4,), -4)


def test_time_outs_are_told_apart_and_graded_again_alone() -> None:
    loop, swallowed, named, right = graded(
        DOUBLE,
        [
            "while True: pass",
            "try:\n    while True: pass\nexcept Exception: pass\n" + RIGHT,
            "raise RuntimeError('TimeoutException')",
            RIGHT,
        ],
    )
    assert (loop.codes, loop.error_code, loop.timed_out, loop.reruns) == ((-3,), -3, True, 1)
    # The alarm's own line stands in the output of a program that swallows it.
    assert (swallowed.codes, swallowed.timed_out) == ((-2,), True)
    assert (named.codes, named.timed_out, named.reruns) == ((-3,), False, 0)
    assert right.passed and right.reruns == 0


def test_the_global_limit_is_recorded_as_a_death_but_known_as_a_time_out() -> None:
    """(0.1 + 1) * 1 + 5 = 6.1 seconds, with one alarm that the program swallows."""
    stubborn = "while True:\n    try:\n        while True: pass\n    except Exception: pass"
    settings = GraderSettings(timeout_seconds=0.1, rerun_timeouts=False)
    (verdict,) = graded(Problem("one", ("1\n",), ("1\n",)), [stubborn], settings)
    assert (verdict.codes, verdict.error_code) == ((-2,), -5)
    assert verdict.ended == "global_timeout" and verdict.timed_out
    assert 6.0 < verdict.seconds < 9


def test_memory_is_limited() -> None:
    at_once, slowly = graded(
        DOUBLE,
        ["x = [0] * 10 ** 9", "x = []\nwhile True: x.append(' ' * 10 ** 7)"],
        GraderSettings(timeout_seconds=20, memory_mb=300),
    )
    assert at_once.codes == slowly.codes == (-4,)
    assert "MemoryError" in at_once.detail and "MemoryError" in slowly.detail


def test_hostile_programs_harm_only_themselves(tmp_path: Path) -> None:
    """Right programs between hostile ones, all in one sandbox; ours and its files stay."""
    victim = tmp_path / "victim"
    victim.write_text("here")
    spawn = "import os\nos.posix_spawn('/bin/sh', ['sh', '-c', {!r}], {{}})\n"
    hostile = [
        spawn.format("kill -9 -1") + "import time\ntime.sleep(0.3)",
        spawn.format("sleep 0.2; kill -9 -1; sleep 60") + RIGHT,
        spawn.format("while :; do touch left; done") + RIGHT,
        f"import pathlib\npathlib.Path({str(victim)!r}).write_text('gone')",
        "import socket\nsocket.create_connection(('127.0.0.1', 22), 0.1)",
        "while True:\n    import threading\n    threading.Thread(target=lambda: 0).start()",
    ]
    programs = [one for bad in hostile for one in (bad, RIGHT)]
    verdicts = graded(DOUBLE, programs, GraderSettings(timeout_seconds=0.5, workers=1))
    assert all(verdict.passed for verdict in verdicts[1::2])
    assert (verdicts[0].codes, verdicts[0].ended) == ((-2,), "died")
    assert verdicts[2].passed and verdicts[4].passed  # right; what they leave behind is removed
    assert verdicts[6].codes == verdicts[8].codes == (-4,)
    assert victim.read_text() == "here"
    assert not Path("left").exists()


def test_expected_results_cannot_be_read() -> None:
    """Neither in the clerk's memory nor in its own, nor in what the clerk has yet to read."""
    look = """
import gc, os
found = []
for pid in (os.getppid(), 1):
    for name in ('mem', 'fd/0', 'environ'):
        try:
            open(f'/proc/{pid}/{name}', 'rb').read(1)
            found.append((pid, name))
        except OSError:
            pass
secret = 'se' + 'cret-'
found += [o for o in gc.get_objects() if type(o) is list and secret + '7' in map(str, o)]
print(found or 'nothing')
"""
    problem = Problem("secret", ("1\n", "2\n"), ("nothing\n", "secret-7\n"))
    (verdict,) = graded(problem, [look], GraderSettings(timeout_seconds=5))
    assert verdict.codes == (True, -2), verdict


def test_a_program_cannot_report_success_by_itself() -> None:
    """It writes a finished report on every descriptor; a verdict on output needs the output."""
    forge = """
import os, json
data = json.dumps({"codes": [True, True], "alarm": False}).encode()
for number in range(3, 20):
    try:
        os.write(number, len(data).to_bytes(8, 'big') + data)
    except OSError:
        pass
"""
    (verdict,) = graded(DOUBLE, [forge])
    assert not verdict.passed


def test_many_programs_in_small_batches_keep_their_order() -> None:
    programs = [f"print({number})" for number in range(7)]
    problem = Problem("three", ("\n",), ("3\n",))
    verdicts = graded(problem, programs, GraderSettings(batch=3))
    assert [verdict.passed for verdict in verdicts] == [number == 3 for number in range(7)]


def test_without_a_process_namespace_every_program_gets_a_sandbox(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runs = []

    def limited(*given: Any, **named: Any) -> Outcome:
        outcome = run(*given, **named, layers=[one for one in LAYERS if one != "pid-namespace"])
        runs.append(len(outcome.stdout.splitlines()))
        return outcome

    monkeypatch.setattr(grader, "run", limited)
    verdicts = graded(DOUBLE, [RIGHT, "print(6)", RIGHT], GraderSettings(workers=1))
    assert [verdict.codes for verdict in verdicts] == [(True, True), (True, -2), (True, True)]
    assert set(runs) == {1}


@pytest.mark.parametrize(
    ("printed", "expected", "same"),
    [
        ("1 2\n3", "1 2\n3\n", True),
        (" 1  2 \n3\n\n", "1 2\n3", True),  # lines stripped; words compared as numbers
        ("a  b", "a b", False),
        ("1e3", "1000", True),
        ("1.0000000001", "1", False),
        ("1_000", "1000", True),
        ("1\n\n2", "1\n2", False),
        ("nan", "nan", True),
        ("nan 1", "nan  1", False),  # as numbers, and not-a-number equals nothing
        ("", "\n", True),
    ],
)
def test_comparison(printed: str, expected: str, same: bool) -> None:
    assert same_output(printed, expected) is same


def test_settings_and_problems_are_checked() -> None:
    with pytest.raises(UserError, match=r"livecodebench\.grader.workers: allowed: above 0"):
        GraderSettings(workers=0)
    with pytest.raises(UserError, match="p: 1 inputs, 2 outputs"):
        Problem("p", ("a",), ("b", "c"))
