"""Several runs of a script in one process: which scripts may, and that no run can tell."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lopd_repro.sandbox._repeat import repeatable
from lopd_repro.sandbox.executor import CaseResult, Executor, Job, ProgramLimits

ORDINARY = {
    "prints": "print(int(input()) + 1)",
    "fast input": "import sys\ninput = sys.stdin.readline\nprint(int(input()) * 2)",
    "reads all": "import sys\nprint(sum(map(int, sys.stdin.read().split())))",
    "reads bytes, writes bytes": (
        "import sys\nd = sys.stdin.buffer.read()\nsys.stdout.buffer.write(d)\nsys.stdout.flush()"
    ),
    "reads some": "print(input())",
    "modules": (
        "from collections import *\nimport heapq, math as m, itertools\n"
        "from functools import lru_cache\n"
        "@lru_cache(None)\ndef f(n): return 1 if n < 2 else n * f(n - 1)\n"
        "print(Counter(input()).most_common(1), m.gcd(6, 4), f(5), heapq.nlargest(1, [1, 2]))"
    ),
    "classes": (
        "class Node:\n"
        "    count = 0\n"
        "    def __init__(self, value): self.value = value; Node.count += 1\n"
        "    def __lt__(self, other): return self.value < other.value\n"
        "a = Node(int(input()))\na.next = Node(3)\na.next.value += 1\n"
        "print(sorted([a, a.next])[0].value, Node.count)"
    ),
    "main guard and exit": (
        "import sys\n"
        "def main():\n    print(len(input()))\n    sys.exit()\n    print('never')\n"
        "if __name__ == '__main__':\n    main()"
    ),
    "exit and quit": "print(input())\nexit() if len('x') else quit()",
    "recursion": (
        "import sys\nprint(sys.getrecursionlimit())\nsys.setrecursionlimit(5000)\n"
        "def f(n): return n and f(n - 1)\nprint(f(3000))"
    ),
    "long integers": (
        "import sys\n"
        "try: print(len(str(10 ** 5000)))\nexcept ValueError: print('too long')\n"
        "sys.set_int_max_str_digits(0)\nprint(len(str(10 ** 5000)))"
    ),
    "chance": "import random\nprint(random.random(), random.choice('abcdef'), {'a', 'b', 'c'})",
    "own print": "def print_all(*a): print(*a)\nlen = print_all\nlen(input())",
    "to standard error": "import sys\nprint('x', file=sys.stderr)\nprint(input())",
    "late output": "def g():\n    yield 1\n    print('no')\nk = g()\nnext(k)\nprint(input())",
    "no line end": "import sys\nsys.stdout.write('a')",
    "nothing": "",
    "much": "for i in range(5000): print(i)",
    "a lot of memory": "x = bytearray(150 << 20)\nprint(len(x))",
}
CURIOUS = {
    "another module": "import os\nprint(os.getpid() > 0)",
    "a module of a module": "import os.path",
    "sys, renamed": "import sys as s\ns.x = 1",
    "the rest of sys": "import sys\nsys.modules.clear()",
    "the rest of sys, by name": "from sys import modules",
    "all of sys": "from sys import *",
    "a module changed": "import math\nmath.pi = 3",
    "a stream changed": "import sys\nsys.stdin = 1",
    "a method changed": "import sys\nsys.stdout.write = 1",
    "a name from a module changed": "from collections import Counter\nCounter.most_common = 1",
    "a module handed on": "import math\nx = math",
    "a module's name used again": "import math\nmath = 3",
    "a file": "open('x', 'w').write('y')",
    "behind the scenes": "print((1).__class__.__mro__)",
    "names as texts": "globals()['x'] = 1",
    "code as text": "exec('x = 1')",
    "an end of its own": "class A:\n    def __del__(self): print('late')\na = A()",
    "clean-up at the end": "def g():\n    try: yield\n    finally: print('x')\nk = g()\nnext(k)",
    "no Python": "print 'x'",
    "too deep": "(" * 1000,
    "relative": "from . import x",
}


@pytest.fixture(scope="module")
def executor() -> Iterator[Executor]:
    limits = ProgramLimits(cpu_seconds=0.5, wall_seconds=10, memory_mb=256, output_kb=64)
    with Executor(limits, workers=2) as one:
        yield one


@pytest.mark.parametrize("name", ORDINARY)
def test_ordinary_scripts_may_and_cannot_tell(executor: Executor, name: str) -> None:
    """Each input alone in a process, and all in one: everything is the same."""
    code, inputs = ORDINARY[name], ["3\n", "12\n7\n", "5", "3\n"]
    assert repeatable(code)
    (together,) = executor.run([Job("stdin", code, inputs)])
    alone = executor.run([Job("stdin", code, [one]) for one in inputs])
    assert list(map(seen, together.cases)) == [seen(one.cases[0]) for one in alone]
    assert together.cases[0].verdict == "ok", together.cases[0]


def seen(case: CaseResult) -> tuple[str, bytes, bytes, str, int | None]:
    return case.verdict, case.stdout, case.stderr, case.detail, case.code


@pytest.mark.parametrize("name", CURIOUS)
def test_scripts_that_could_tell_may_not(name: str) -> None:
    assert not repeatable(CURIOUS[name])


def test_processes_are_shared_or_not(executor: Executor) -> None:
    """Told by the address space: what the first run of two took is still there or is not."""
    used = "x = list(range(3_000_000))\nprint(len(x))"
    shared = executor.run([Job("stdin", used, ["", ""])])[0].cases
    own = executor.run([Job("stdin", "import os\n" + used, ["", ""])])[0].cases
    assert [case.memory_mb > 50 for case in shared] == [False, True]  # noted when a process ends
    assert [case.memory_mb > 50 for case in own] == [True, True]


@pytest.mark.parametrize(
    ("bad", "verdict"),
    [
        ("1 / 0", "crash"),
        ("exit(3)", "crash"),
        ("while True: pass", "timeout"),
        ("x = bytearray(1 << 30)", "memory"),
        ("print('x' * 100_000)", "refused"),
    ],
)
def test_a_bad_end_is_that_of_a_fresh_process_and_spares_the_others(
    executor: Executor, bad: str, verdict: str
) -> None:
    code = f"n = int(input())\nif n == 3:\n    {bad}\nprint(n)"
    assert repeatable(code)
    cases = executor.run([Job("stdin", code, [f"{n}\n" for n in range(6)])])[0].cases
    assert [case.verdict for case in cases] == ["ok"] * 3 + [verdict] + ["ok"] * 2
    assert [case.stdout for case in cases if case.verdict == "ok"] == [
        f"{n}\n".encode() for n in (0, 1, 2, 4, 5)
    ]
    fresh = executor.run([Job("stdin", code, ["3\n"])])[0].cases[0]
    # A flooding program may end by itself before it is killed: its exit code is a race.
    same = slice(None, -1) if verdict == "refused" else slice(None)
    assert seen(cases[3])[same] == seen(fresh)[same]
    stopped = executor.run([Job("stdin", code, ["1\n", "3\n", "5\n"], stop=True)])[0].cases
    assert [case.verdict for case in stopped] == ["ok", verdict, "skipped"]


def test_time_and_output_are_counted_by_case(executor: Executor) -> None:
    """Four times 0.2 s under a limit of 0.5 s, and four times 40 kB under one of 64."""
    code = "for _ in range(20): sum(range(150_000))\nprint('x' * 40_000)"
    cases = executor.run([Job("stdin", code, [""] * 4)])[0].cases
    assert [case.verdict for case in cases] == ["ok"] * 4
    assert all(0.01 < case.cpu_seconds < 0.4 for case in cases)
    assert all(len(case.stdout) == 40_001 for case in cases)


def test_a_script_that_reports_for_itself_gains_nothing(executor: Executor) -> None:
    """It says in the harness's way that its first two cases are done, and goes on."""
    code = (
        "import os\n"
        "print(input(), flush=True)\n"
        "os.write(3, (0).to_bytes(4, 'little') + bytes(4))\n"
        "os.write(3, (1).to_bytes(4, 'little') + bytes(4))\n"
        "import time; time.sleep(0.2)\n"
        "print('end')\n"
    )
    cases = executor.run([Job("stdin", code, ["a\n", "b\n", "c\n"])])[0].cases
    assert [(case.verdict, case.stdout) for case in cases] == [
        ("ok", b"a\n"), ("ok", b""), ("ok", b"end\n"),
    ]  # fmt: skip
    beyond = code.replace("(1).to_bytes", "(2).to_bytes")
    cases = executor.run([Job("stdin", beyond, ["a\n", "b\n"])])[0].cases
    assert cases[0].verdict == "ok" and cases[1].stdout in (b"", b"b\n")
