"""Whether a program's results are the expected ones. Strict, and in full here.

stdin     Both texts are split into lines; white space at a line's ends goes, runs of it inside
          a line count as one space, and empty lines at the end of the text go. What remains
          must be equal. Numbers are text: `1.0` is not `1`.
function  The value must be what JSON can carry, tuples counting as lists, and equal to the
          expected one: same type (true is not 1), same keys, same order in lists. Two numbers
          are equal if they are equal, or if at least one of them is a float and they differ by
          at most 1e-9, or 1e-9 of the larger. Not-a-number equals itself.

Benchmarks that judge in other ways bring their own graders; this is the project's own rule.
"""

from __future__ import annotations

import math
from typing import Any

TOLERANCE = 1e-9
_DEPTH = 200


def same_output(actual: str, expected: str) -> bool:
    """Texts of standard output, white space normalised."""
    return _lines(actual) == _lines(expected)


def _lines(text: str) -> list[str]:
    lines = [" ".join(line.split()) for line in text.splitlines()]
    while lines and not lines[-1]:
        lines.pop()
    return lines


def same_value(actual: Any, expected: Any, depth: int = _DEPTH) -> bool:
    """A decoded return value and a value from JSON."""
    if depth == 0:
        return False
    if isinstance(expected, (list, tuple)):
        return (
            isinstance(actual, (list, tuple))
            and len(actual) == len(expected)
            and all(same_value(a, e, depth - 1) for a, e in zip(actual, expected, strict=True))
        )
    if isinstance(expected, dict):
        if not isinstance(actual, dict) or len(actual) != len(expected):
            return False
        named = {_key(key): value for key, value in actual.items()}
        return len(named) == len(expected) and all(
            key in named and same_value(named[key], value, depth - 1)
            for key, value in expected.items()
        )
    if isinstance(expected, bool) or isinstance(actual, bool):
        return actual is expected
    if isinstance(expected, (int, float)) and isinstance(actual, (int, float)):
        return _same_number(actual, expected)
    return type(actual) is type(expected) and bool(actual == expected)


def _key(key: Any) -> Any:
    """A dictionary's key as JSON would write it."""
    if isinstance(key, bool) or key is None:
        return {True: "true", False: "false", None: "null"}[key]
    return str(key) if isinstance(key, (int, float)) else key


def _same_number(actual: float, expected: float) -> bool:
    if actual == expected:
        return True
    if isinstance(actual, int) and isinstance(expected, int):
        return False
    try:
        one, other = float(actual), float(expected)
    except OverflowError:
        return False
    if math.isnan(one) or math.isnan(other):
        return math.isnan(one) and math.isnan(other)
    return math.isclose(one, other, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
