"""The strict reading: what is right counts, however it reads and writes; what is not does not."""

from __future__ import annotations

from lopd_repro.benchmarks.lcb.grader import GraderSettings, Problem, Sample
from lopd_repro.benchmarks.lcb.strict import BROKEN_TESTS, NO_TESTS, strict_verdicts

DOUBLE = Problem("double", ("3\n", "5\n"), ("6\n", "10\n"))
PAIRS = Problem("pairs", ("[1, 2]",), ("[[1, 1], [2, 2]]",), "pairs")
TRUTH = Problem("truth", ("1",), ("true",), "truth")
RIGHT = "print(2 * int(input()))"

CASES = [
    (DOUBLE, RIGHT, "passed"),
    (DOUBLE, "print(6)", "wrong"),
    # right, though the official rules fail them
    (DOUBLE, "import sys\nfor line in sys.stdin: print(2 * int(line))", "passed"),
    (DOUBLE, "print(2 * int(open(0).read()))", "passed"),
    (DOUBLE, "from __future__ import annotations\n" + RIGHT, "passed"),
    (DOUBLE, f"if __name__ == '__main__':\n    {RIGHT}\nx = 'class Solution'", "passed"),
    (DOUBLE, RIGHT + "\nquit()", "passed"),
    # not right, though the official rules pass them
    (DOUBLE, RIGHT + "\nimport sys\nsys.exit(1)", "crash"),
    (DOUBLE, RIGHT + "\nreturn", "crash"),
    (DOUBLE, "print(comb(2, 1) * int(input()))", "crash"),  # a name that it never imported
    (DOUBLE, "print('%d_0' % (2 * int(input()) // 10))", "wrong"),
    # numbers
    (DOUBLE, "print(f'{2 * int(input()):.3f}')", "passed"),
    (DOUBLE, "print(2 * int(input()) + 1e-9)", "wrong"),
    # functions
    (
        PAIRS,
        "class Solution:\n def pairs(self, a: List[int]): return [(x, x) for x in a]",
        "passed",
    ),
    (PAIRS, "def pairs(a): return [[x, x] for x in a]", "passed"),
    (PAIRS, "class E:\n def __eq__(self, o): return True\ndef pairs(a): return E()", "wrong"),
    (PAIRS, "def other(a): return a", "crash"),
    (TRUTH, "def truth(n): return n", "wrong"),
    (TRUTH, "def truth(n): return n == 1", "passed"),
    # the names imported before a program are not its own
    (Problem("max", ("[1, 3]",), ("3",), "max"), "x = 1", "crash"),
    (Problem("none", (), ()), RIGHT, NO_TESTS),
    (Problem("bad", ("1",), ("abc",), "f"), "def f(n): return n", BROKEN_TESTS),
]


def test_verdicts() -> None:
    samples = [Sample(problem, program) for problem, program, _ in CASES]
    found = strict_verdicts(samples, GraderSettings(timeout_seconds=10, memory_mb=1024))
    for (_, program, expected), verdict in zip(CASES, found, strict=True):
        # crash stands for every end that is not the program's own good one
        assert verdict == expected or (expected == verdict == "wrong"), (program, verdict)


def test_a_loop_is_a_time_out() -> None:
    samples = [Sample(DOUBLE, "while True: pass"), Sample(DOUBLE, RIGHT)]
    settings = GraderSettings(timeout_seconds=0.3, memory_mb=1024)
    assert strict_verdicts(samples, settings) == ["timeout", "passed"]
