"""A strict reading beside the official verdict: is the program right by the tests?

Each program runs in the project's own sandbox, apart from the others and from what is expected of
it; what it returns is compared here. It differs from the official rule where that one surprises:

- a float is compared within the tolerance wherever it stands (officially: only a float itself or
  a plain sequence of floats, and once one was expected, for all later inputs of the program);
- `find_zero` can pass (0.3.1 forgets to count its inputs), `are_equivalent` and `sum_div` are
  compared like all others, and where a set of elements counts, a list, tuple or set must hold them;
- objects that only claim to be equal, and leaving the process, count for nothing;
- functions that the official guard takes away (`open`, `exit`, ...) are there;
- the time limit is on processor time, so that a sleeping program is slow, not wrong.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lopd_repro.benchmarks.evalplus.official import Part, Problem
from lopd_repro.errors import UserError
from lopd_repro.sandbox._values import Foreign
from lopd_repro.sandbox.executor import Executor, Job, JobResult, ProgramLimits

_FENCE = re.compile(r"^\s*(```+|~~~+)\s*\w*\s*$")
_AS_SETS = frozenset(
    ("similar_elements", "find_char_long", "common_in_nested_lists", "extract_singly",
     "larg_nnum", "intersection_array", "find_dissimilar", "Diff")
)  # fmt: skip
_NOT_NONE = frozenset(("check_str", "text_match_three", "text_starta_endb"))
_CALL = "call_the_solution"
_REFERENCES = """
import time
_names, _texts, _spaces = {names!r}, {texts!r}, {{}}

def {call}(task, arguments, clock=time.process_time):
    if task not in _spaces:
        _spaces[task] = {{}}
        exec(compile(_texts[task], 'solution.py', 'exec', dont_inherit=True), _spaces[task])
    began = clock()
    value = _spaces[task][_names[task]](*arguments)
    return value, clock() - began
"""
_TOLERANCE, _RELATIVE = 1e-6, 1e-7
_REFERENCE_SECONDS = 120.0
_MOST_TEXT = 1 << 18  # characters of references in one process

_LIMITS = ProgramLimits(
    cpu_seconds=_REFERENCE_SECONDS,
    wall_seconds=4 * _REFERENCE_SECONDS,
    memory_mb=4096,
    processes=16,
    output_kb=1 << 16,
)


@dataclass(frozen=True)
class Reading:
    """Whether a program is right, and if not, how it first went wrong.

    reason: `wrong`, `timeout`, `memory`, `crash` or `refused`, "" if right.
    """

    right: bool
    reason: str = ""


def read_strictly(
    parts: Sequence[Part],
    programs: Mapping[str, Sequence[tuple[str, str]]],
    inputs: Mapping[str, Mapping[str, Sequence[Sequence[Any]]]] | None = None,
    workers: int = 2,
    rerun_timeouts: bool = True,
) -> dict[str, list[Reading]]:
    """Readings by part's name of (task id, program) pairs; base and plus inputs count together.

    A part's prefix and suffix stand around every program. inputs: converted ones by part and task,
    where the package gives the data's values other types. Equal programs run once.
    """
    found: dict[str, list[Reading]] = {}
    with Executor(
        _LIMITS, workers=workers, packages=True, rerun_timeouts=rerun_timeouts
    ) as executor:
        for part in parts:
            problems = {p["task_id"]: p for p in part.problems}
            given = (inputs or {}).get(part.name, {})
            wanted = list(dict.fromkeys(programs[part.name]))
            tasks = list(dict.fromkeys(task for task, _ in wanted))
            arguments = {t: _arguments(problems[t], given.get(t), part.base_only) for t in tasks}
            references = _references(executor, part, [problems[t] for t in tasks], arguments)
            readings: dict[tuple[str, str], Reading] = {}
            for limit, group in _by_limit(part, wanted, references).items():
                executor.limits = replace(_LIMITS, cpu_seconds=limit, wall_seconds=10 * limit)
                jobs = [
                    _job(part.whole(task, program), problems[task], arguments[task], True)
                    for task, program in group
                ]
                for (task, program), result in zip(group, executor.run(jobs), strict=True):
                    readings[task, program] = _read(
                        part.form, problems[task], arguments[task], references[task], result
                    )
            found[part.name] = [readings[pair] for pair in programs[part.name]]
    return found


def readable_program(text: str, entry_point: str, sanitized: str) -> str:
    """The program that a reader would take out of a reply.

    The last fenced block that defines the entry point (a fence without an end reaches to the
    end), else the whole text if it is a program that does, else what the official sanitizer made.
    """
    for block in reversed(_blocks(text)):
        if _defines(block, entry_point):
            return block
    return text if _defines(text, entry_point) else sanitized


def _blocks(text: str) -> list[str]:
    blocks: list[list[str]] = []
    inside = False
    for line in text.split("\n"):
        if _FENCE.match(line):
            inside = not inside
            if inside:
                blocks.append([])
        elif inside:
            blocks[-1].append(line)
    return ["\n".join(block) for block in blocks]


def _defines(code: str, name: str) -> bool:
    try:
        compile(code, "<reply>", "exec", dont_inherit=True)
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return False
    return bool(re.search(rf"^[ \t]*(def +{name}\b|{name}\s*=)", code, re.MULTILINE))


def _arguments(
    problem: Problem, given: Sequence[Sequence[Any]] | None, base_only: bool
) -> list[list[Any]]:
    base, plus = given or (problem["base_input"], problem["plus_input"])
    return [list(one) for one in (base if base_only else [*base, *plus])]


def _job(code: str, problem: Problem, arguments: list[list[Any]], stop: bool = False) -> Job:
    """The program in an empty namespace, as the official scorer loads it."""
    name = problem["entry_point"]
    loader = (
        "_space = {}\n"
        f"exec(compile({code!r}, 'solution.py', 'exec', dont_inherit=True), _space)\n"
        f"_solution = _space[{name!r}]\n"
        f"def {_CALL}(*arguments):\n    return _solution(*arguments)\n"
    )
    return Job("function", loader, arguments, _CALL, stop)


@dataclass(frozen=True)
class _Reference:
    values: tuple[Any, ...]
    cpu_seconds: float


def _references(
    executor: Executor,
    part: Part,
    problems: Sequence[Problem],
    arguments: Mapping[str, list[list[Any]]],
) -> dict[str, _Reference]:
    """Values and seconds of the problems' own solutions, many of them in one process."""
    executor.limits = _LIMITS
    size = sum(len(p["prompt"]) + len(p["canonical_solution"]) for p in problems)
    count = max(executor.workers, size // _MOST_TEXT + 1)
    groups = [problems[start::count] for start in range(min(count, len(problems)))]
    jobs = []
    for group in groups:
        names = {p["task_id"]: p["entry_point"] for p in group}
        texts = {p["task_id"]: p["prompt"] + p["canonical_solution"] for p in group}
        inputs = [[task, given] for task in names for given in arguments[task]]
        loader = _REFERENCES.format(names=names, texts=texts, call=_CALL)
        jobs.append(Job("function", loader, inputs, _CALL))
    found = {}
    for group, result in zip(groups, executor.run(jobs), strict=True):
        cases = iter(result.cases)
        for problem in group:
            own = [next(cases) for _ in arguments[problem["task_id"]]]
            bad = [case for case in own if case.verdict != "ok"]
            if bad:
                raise UserError(
                    f"evalplus: the reference solution of {problem['task_id']} ended with "
                    f"{bad[0].verdict} ({bad[0].detail})"
                )
            values = tuple(case.value[0] for case in own)
            seconds = sum(case.value[1] for case in own)
            found[problem["task_id"]] = _Reference(values, seconds)
    return found


def _by_limit(
    part: Part, wanted: Sequence[tuple[str, str]], references: Mapping[str, _Reference]
) -> dict[float, list[tuple[str, str]]]:
    """Programs by time per input: the part's least, doubled until the reference's time fits.

    The reference's time is that of all its inputs together, so the limit is a generous one.
    """
    groups: dict[float, list[tuple[str, str]]] = {}
    for task, program in wanted:
        limit = part.min_time_limit
        while limit < part.gt_time_limit_factor * references[task].cpu_seconds:
            limit *= 2
        groups.setdefault(limit, []).append((task, program))
    return groups


def _read(
    form: str,
    problem: Problem,
    arguments: Sequence[list[Any]],
    reference: _Reference,
    result: JobResult,
) -> Reading:
    for case, given, expected in zip(result.cases, arguments, reference.values, strict=True):
        if case.verdict != "ok":
            return Reading(False, case.verdict)
        if not same(form, problem["entry_point"], given, case.value, expected, problem["atol"]):
            return Reading(False, "wrong")
    return Reading(True)


def same(
    form: str, name: str, arguments: Sequence[Any], actual: Any, expected: Any, atol: float
) -> bool:
    """Whether a function's value is right, by the problem's own rule where it has one."""
    if form == "humaneval" and name == "find_zero":
        number = isinstance(actual, (int, float)) and math.isfinite(actual)
        return number and abs(_polynomial(arguments[0], actual)) <= (atol or 1e-4)
    if form == "mbpp":
        if name in _NOT_NONE:
            # Officially the reference's value counts as whether there is one.
            there = expected is not None
            return actual == there if isinstance(actual, bool) else there == (actual is not None)
        if name in _AS_SETS:
            return _same_elements(actual, expected)
        if name == "surface_Area" and _number(actual):
            other = _slanted_pyramid(*arguments)
            return same_value(actual, expected, atol) or abs(actual - other) <= atol
        if name == "digit_distance_nums" and _number(actual):
            return bool(actual in (expected, _digit_distance(*arguments)))
    return same_value(actual, expected, atol)


def same_value(actual: Any, expected: Any, atol: float = 0.0) -> bool:
    """Equality of structures, with the tolerance wherever a float is expected.

    atol 0 is 1e-6 for floats, beside 1e-7 of the expected value; not-a-number equals itself. Lists
    are no tuples; other numbers compare by value, as in Python.
    """
    if isinstance(actual, Foreign):
        # numpy's own numbers; arrays and all other objects are not what was asked for.
        if not actual.type_name.startswith("numpy.") or not _number(actual.value):
            return False
        actual = actual.value
    if isinstance(expected, Foreign):
        return False
    if isinstance(expected, float) and _number(actual):
        if math.isnan(expected) or math.isinf(expected):
            return actual == expected or (math.isnan(expected) and actual != actual)
        try:
            gap = abs(actual - expected)
        except OverflowError:
            return False
        return bool(gap <= (atol or _TOLERANCE) + _RELATIVE * abs(expected))
    if _number(expected) and _number(actual) and atol:
        return bool(abs(actual - expected) <= atol)
    if isinstance(expected, (list, tuple)):
        return (
            type(actual) is type(expected)
            and len(actual) == len(expected)
            and all(same_value(a, e, atol) for a, e in zip(actual, expected, strict=True))
        )
    if isinstance(expected, dict):
        return (
            isinstance(actual, dict)
            and actual.keys() == expected.keys()
            and all(same_value(actual[key], expected[key], atol) for key in expected)
        )
    return bool(actual == expected)


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _same_elements(actual: Any, expected: Any) -> bool:
    kinds = (list, tuple, set, frozenset)
    if not isinstance(actual, kinds) or not isinstance(expected, kinds):
        return False
    try:
        return set(actual) == set(expected)
    except TypeError:
        return False


def _polynomial(coefficients: Sequence[float], x: float) -> float:
    """Value at x, constant term first."""
    try:
        return float(sum(c * math.pow(x, i) for i, c in enumerate(coefficients)))
    except OverflowError:
        return math.inf


def _slanted_pyramid(edge: float, height: float) -> int:
    """Surface of a square pyramid where the second number is its height, not a side's."""
    return round(edge**2 + 2 * edge * math.hypot(edge / 2, height))


def _digit_distance(one: int, other: int) -> int:
    """Sum of differences digit by digit, the shorter number filled with zeros on the left."""
    texts = str(one), str(other)
    width = max(map(len, texts))
    pairs = zip(*(text.zfill(width) for text in texts), strict=True)
    return sum(abs(int(a) - int(b)) for a, b in pairs)
