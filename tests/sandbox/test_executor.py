"""The executor: raw results, time that a busy machine does not shorten, jobs kept apart."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

from lopd_repro.sandbox._values import Foreign, ValueRefusedError, decode, encode
from lopd_repro.sandbox.executor import Executor, Job, ProgramLimits


@pytest.fixture(scope="module")
def executor() -> Iterator[Executor]:
    with Executor(ProgramLimits(cpu_seconds=0.4, wall_seconds=10, output_kb=64), workers=2) as one:
        yield one


def stdin(executor: Executor, code: str, *inputs: str) -> Any:
    (result,) = executor.run([Job("stdin", code, inputs or ("",))])
    return result.cases[0]


def function(executor: Executor, code: str, *inputs: Any, entry_point: str = "f") -> Any:
    (result,) = executor.run([Job("function", code, inputs, entry_point)])
    return result.cases


def test_a_program_runs_as_a_script(executor: Executor) -> None:
    code = (
        "import sys, threading\n"
        "if __name__ == '__main__':\n"
        "    print(__file__, sys.argv, input())\n"
        "    print('to stderr', file=sys.stderr)\n"
        "    print(sys.stdin.read().split(), sys.stdin.buffer.seek(0), open(0).readline())\n"
        "    threading.Timer(0.05, print, ['late']).start()\n"
        "    exit()\n"
    )
    case = stdin(executor, code, "first\nx y\n")
    assert case.verdict == "ok", case
    assert case.stdout == b"program.py ['program.py'] first\n['x', 'y'] 0 first\n\nlate\n"
    assert case.stderr == b"to stderr\n"


@pytest.mark.parametrize(
    ("code", "verdict", "exit_code"),
    [
        ("raise SystemExit(0)", "ok", 0),
        ("raise SystemExit(3)", "crash", 3),
        ("raise SystemExit('words')", "crash", 1),
        ("1 / 0", "crash", 1),
        ("def", "crash", 1),
        ("import atexit\natexit.register(print, 'end')", "ok", 0),
        ("raise MemoryError", "memory", 1),
        ("import os\nos.kill(os.getpid(), 15)", "crash", -15),
    ],
)
def test_ends(executor: Executor, code: str, verdict: str, exit_code: int) -> None:
    case = stdin(executor, code)
    assert (case.verdict, case.code) == (verdict, exit_code)


def test_a_traceback_shows_the_program_alone(executor: Executor) -> None:
    case = stdin(executor, "def f():\n    return 1 / 0\nf()\n")
    assert case.detail == "ZeroDivisionError: division by zero"
    assert case.stderr.decode().splitlines()[:2] == [
        "Traceback (most recent call last):",
        '  File "program.py", line 3, in <module>',
    ]


def test_functions_methods_and_missing_names(executor: Executor) -> None:
    assert [c.value for c in function(executor, "def f(a, b=1): return a * b", [2], [3, 4])] == [
        2,
        12,
    ]
    method = "class Solution:\n    def f(self, a): return a + 1"
    assert function(executor, method, [1])[0].value == 2
    missing = function(executor, "g = 1", [1])[0]
    assert missing.verdict == "crash" and "defines no 'f'" in missing.detail


def test_a_case_that_ends_the_process_spares_the_others(executor: Executor) -> None:
    code = (
        "import os\n"
        "def f(x):\n"
        "    if x == 1: os._exit(0)\n"
        "    if x == 2: raise KeyError(x)\n"
        "    if x == 3: return [x] * 10 ** 9\n"
        "    if x == 4: os.kill(os.getpid(), 11)\n"
        "    if x == 5: return [[[x]]]\n"
        "    print(x)\n"
        "    return x\n"
    )
    cases = function(executor, code, *([x] for x in range(8)))
    assert [case.verdict for case in cases] == [
        "ok", "crash", "crash", "memory", "crash", "ok", "ok", "ok",
    ]  # fmt: skip
    assert [case.value for case in cases] == [0, None, None, None, None, [[[5]]], 6, 7]
    stopped = executor.run([Job("function", code, [[0], [1], [6]], "f", stop=True)])[0]
    assert [case.verdict for case in stopped.cases] == ["ok", "crash", "skipped"]


def test_jobs_keep_their_order_and_apart(executor: Executor) -> None:
    code = (
        "import os, random\n"
        "print(input(), os.listdir('.'), random.random(), {'a', 'b', 'c'})\n"
        "open('left', 'w').write('x')\n"
    )
    results = executor.run([Job("stdin", code, [f"{i}\n", "again\n"]) for i in range(12)])
    lines = [[case.stdout.decode().split(" ", 1) for case in one.cases] for one in results]
    assert [pair[0][0] for pair in lines] == [str(i) for i in range(12)]
    # No files of others or of the case before, the same randomness, the same order of sets.
    assert len({rest for pair in lines for _, rest in pair}) == 1
    assert lines[0][0][1].startswith("[] ")


def test_a_result_cannot_be_given_for_another_case(executor: Executor) -> None:
    code = (
        "import os\n"
        "def f(x):\n"
        "    os.write(3, (1).to_bytes(4, 'little') + (1).to_bytes(4, 'little') + b'7')\n"
        "    return x\n"
    )
    cases = function(executor, code, [0], [1])
    assert cases[0].verdict == "refused" and cases[0].value is None


def test_inputs_of_others_and_expected_results_are_not_in_memory(executor: Executor) -> None:
    """A program that searches all memory it can reach through the garbage collector."""
    executor.run([Job("stdin", "# other-code-1234", ["other-input-5678\n"])])
    code = (
        "import gc\n"
        "texts = [repr(o) for o in gc.get_objects() if isinstance(o, (dict, list, tuple))]\n"
        "for part in (('other-code', 1234), ('other-input', 5678)):\n"
        "    print(any('%s-%d' % part in text for text in texts))\n"
    )
    code = code.replace("isinstance(o, (dict, list, tuple))", "type(o) in (list, tuple)")
    assert stdin(executor, code).stdout == b"False\nFalse\n"


def test_time_is_the_programs_own(executor: Executor) -> None:
    """0.2 s of work under a limit of 0.4 s, beside twice as many busy processes as cores."""
    code = "import time\nwhile time.process_time() < 0.2: pass\nprint('done')"
    spin = "import time\nend = time.time() + 60\nwhile time.time() < end: pass"
    load = [
        subprocess.Popen([sys.executable, "-S", "-c", spin])
        for _ in range(2 * len(os.sched_getaffinity(0)))
    ]
    try:
        case = stdin(executor, code)
    finally:
        for one in load:
            one.kill()
            one.wait()
    assert case.verdict == "ok", case


def test_a_time_out_is_tried_again_alone(executor: Executor) -> None:
    slow, quick = Job("stdin", "while True: pass", [""]), Job("stdin", "print(1)", [""])
    results = executor.run([slow, quick, quick])
    assert [one.cases[0].verdict for one in results] == ["timeout", "ok", "ok"]
    assert [one.reruns for one in results] == [1, 0, 0]


def test_what_ran_alone_is_not_tried_again(executor: Executor) -> None:
    (one,) = executor.run([Job("stdin", "while True: pass", [""])])
    assert (one.cases[0].verdict, one.reruns) == ("timeout", 0)


def test_a_sleeper_ends_by_the_wall_clock() -> None:
    with Executor(ProgramLimits(cpu_seconds=5, wall_seconds=0.3), workers=1) as one:
        started = time.monotonic()
        assert stdin(one, "import time\ntime.sleep(600)").verdict == "timeout"
        assert time.monotonic() - started < 30


def test_installed_packages_on_request(executor: Executor) -> None:
    code = "import numpy\ndef f(x): return numpy.array(x) * 2, numpy.float64(0.5)"
    assert function(executor, code, [[1, 2]])[0].verdict == "crash"
    limits = ProgramLimits(memory_mb=1024)
    with Executor(limits, workers=1, packages=True, preload=["numpy"]) as one:
        case = function(one, code, [[1, 2]])[0]
    array, number = case.value
    assert array.type_name == "numpy.ndarray" and array.value == [2, 4]
    assert number == 0.5


def test_code_that_cannot_be_tried(executor: Executor) -> None:
    for code in ("a\0b", "\ud800", "#" * (1 << 21)):
        assert stdin(executor, code).verdict == "refused"


@pytest.mark.parametrize(
    "value",
    [
        None, True, 0, -1, 2**53, -(10**400), 0.1, -0.0, math.inf, 1 + 2j, "é\ud800", b"\x00\xff",
        [1, [2.0, (3, "x")]], {"a": {1, 2}, 3: frozenset([None]), (1,): []}, (),
    ],
)  # fmt: skip
def test_values_survive_the_way_out(value: Any) -> None:
    back = decode(encode(value))
    assert back == value and repr(back) == repr(value)


def test_other_types_come_out_as_descriptions() -> None:
    class Point(int):
        def __eq__(self, other: object) -> bool:
            return True

        __hash__ = int.__hash__

    back = decode(encode([Point(3), object, math.nan]))
    assert type(back[0]) is int and back[0] == 3
    assert isinstance(back[1], Foreign) and back[1].type_name == "builtins.type"
    assert math.isnan(back[2])


@pytest.mark.parametrize(
    "text",
    [b"", b"{", b'{"x": 1}', b'{"t": 1}', b'{"i": "z"}', b'{"d": [[[], 1]]}', b'{"f": 3}',
     b"[" * 100_000, b'{"s": [[1]]}', b"1" * 5000, b'{"c": ["0x1p0"]}', b'{"o": [1]}', b"\xff"],
)  # fmt: skip
def test_what_is_no_value_is_refused(text: bytes) -> None:
    with pytest.raises(ValueRefusedError):
        decode(text)
