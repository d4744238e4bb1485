"""The strict reading's comparison and extraction, by hand, and its run in the sandbox."""

from __future__ import annotations

import math
from typing import Any

import pytest

from lopd_repro.benchmarks.evalplus.official import Part
from lopd_repro.benchmarks.evalplus.strict import read_strictly, readable_program, same, same_value
from lopd_repro.errors import UserError
from lopd_repro.sandbox._values import Foreign


@pytest.mark.parametrize(
    ("actual", "expected", "atol", "right"),
    [
        (4, 4, 0, True),
        (4.0, 4, 0, True),
        (4.0000001, 4, 0, False),
        # An expected float allows 1e-6, and 1e-7 of itself.
        (0.5 + 9e-7, 0.5, 0, True),
        (0.5 + 2e-6, 0.5, 0, False),
        (1e9 + 50, 1e9, 0, True),
        (1e9 + 150, 1e9, 0, False),
        (1, 1.0, 0, True),
        ([1, [0.5 + 1e-8]], [1, [0.5]], 0, True),
        ({"a": (0.5 + 1e-8,)}, {"a": (0.5,)}, 0, True),
        ({"a": 1}, {"b": 1}, 0, False),
        ((1, 2), [1, 2], 0, False),
        ([1], [1, 2], 0, False),
        ({1, 2}, {2, 1}, 0, True),
        (math.nan, math.nan, 0, True),
        (0.0, math.nan, 0, False),
        (math.inf, math.inf, 0, True),
        (math.inf, 1.0, 0, False),
        (10**400, 1.0, 0, False),
        ("1", 1, 0, False),
        (None, 0, 0, False),
        (1.4, 1.0, 0.5, True),
        (1.6, 1.0, 0.5, False),
        (Foreign("numpy.int64", "3", 3), 3, 0, True),
        (Foreign("numpy.ndarray", "[3]", [3]), [3], 0, False),
        (Foreign("program.Equal", "x", None), None, 0, False),
    ],
)
def test_same_value(actual: Any, expected: Any, atol: float, right: bool) -> None:
    assert same_value(actual, expected, atol) is right


def test_problems_with_rules_of_their_own() -> None:
    # x^2 - 4 at 2; 0.1 is far off.
    assert same("humaneval", "find_zero", [[-4, 0, 1]], 2.0, None, 1e-4)
    assert not same("humaneval", "find_zero", [[-4, 0, 1]], 0.1, None, 1e-4)
    assert same("mbpp", "similar_elements", [], (2, 1, 1), {1, 2}, 0)
    assert not same("mbpp", "similar_elements", [], "ab", {"a", "b"}, 0)
    assert same("mbpp", "check_str", [], True, "match", 0)
    assert same("mbpp", "check_str", [], None, None, 0)
    assert not same("mbpp", "check_str", [], "no", None, 0)
    # 7 and 123: |1-0| + |2-0| + |3-7| = 7.
    assert same("mbpp", "digit_distance_nums", [7, 123], 7, 99, 0)
    # Base 3, slanted sides 5 high: the height reading gives 9 + 6 * hypot(1.5, 4) = 34.6.
    assert same("mbpp", "surface_Area", [3, 4], 35, 33, 0)
    assert not same("mbpp", "are_equivalent", [], True, False, 0)


RIGHT = "def f(x):\n    return x"


@pytest.mark.parametrize(
    ("text", "program"),
    [
        (f"```python\n{RIGHT}\n```", RIGHT),
        (f"So:\n```\n{RIGHT}\n```\nOutput:\n```\n3\n```", RIGHT),
        (f"```python\n{RIGHT}", RIGHT),
        ("```python\nf = abs\n```", "f = abs"),
        (RIGHT, RIGHT),
        ("```python\ndef g(x):\n    return x\n```", "SANITIZED"),
        ("nothing", "SANITIZED"),
        ("```python\ndef f(x:\n```", "SANITIZED"),
    ],
)
def test_the_program_a_reader_would_take(text: str, program: str) -> None:
    assert readable_program(text, "f", "SANITIZED") == program


def test_programs_in_the_sandbox() -> None:
    problem = {
        "task_id": "HumanEval/1", "prompt": "def f(x):\n", "entry_point": "f", "contract": "",
        "canonical_solution": "    return x / 2\n", "base_input": [[1]], "plus_input": [[3]],
        "atol": 0,
    }  # fmt: skip
    programs = {
        "def f(x):\n    return x * 0.5": "",
        "def f(x):\n    return 0.5": "wrong",
        "def f(x):\n    return object() if x < 0 else (1 / 0)": "crash",
        "def f(x):\n    import os\n    os._exit(0)": "crash",
        "def f(x):\n    while True: pass": "timeout",
        # A guard is not run, annotations are.
        "def f(x):\n    return x / 2\nif __name__ == '__main__':\n    f(1, 2)": "",
        "def f(x: List):\n    return x / 2": "crash",
    }
    part = Part("p", "humaneval", [problem], min_time_limit=0.3)
    found = read_strictly([part], {"p": [("HumanEval/1", code) for code in programs]})["p"]
    assert [reading.reason for reading in found] == list(programs.values())
    assert [reading.right for reading in found] == [not reason for reason in programs.values()]


def test_a_reference_that_fails_is_an_error() -> None:
    problem = {
        "task_id": "HumanEval/1", "prompt": "", "entry_point": "f", "contract": "",
        "canonical_solution": "def f():\n    raise ValueError\n", "base_input": [[]],
        "plus_input": [], "atol": 0,
    }  # fmt: skip
    with pytest.raises(UserError, match="reference solution of HumanEval/1"):
        read_strictly([Part("p", "humaneval", [problem])], {"p": [("HumanEval/1", RIGHT)]})
