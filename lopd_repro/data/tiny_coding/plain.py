"""Everyday functions in plain English, for models that were pretrained on such text.

The other tiny tasks have a hidden convention that a pretrained model could only guess. Here the
statement says all that the tests ask for, and the starter code is a signature with the statement as
docstring and examples, the form of HumanEval's prompts. Functions that a HumanEval problem asks for
are left out.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from lopd_repro.data.coding.schema import CodeCase, CodeTask
from lopd_repro.data.splits import normalise_text
from lopd_repro.errors import UserError

N_CASES = 6
N_EXAMPLES = 2
_MAX_DRAWS = 1000
_NUMBERS = ("prices", "scores", "ages", "weights", "sizes", "marks", "costs", "speeds")
_TEXTS = ("title", "label", "line", "phrase", "note", "caption", "message", "motto")
_WORDS = ("words", "cities", "colors", "fruits", "animals", "rivers", "tools", "birds")
_SINGLE = ("n", "number", "x", "value", "amount", "count", "total", "size")
_LETTERS = "abcdefghilmnoprstu"

Arguments = tuple[Any, ...]


@dataclass(frozen=True)
class PlainFamily:
    """One kind of function.

    `name`, `statement` and `body` hold `{v}`, the parameter, and `{k}`, a number or letter out of
    `values`. `more` are further parameters. `draw` makes one case's arguments.
    """

    topic: str
    kind: str
    name: str
    statement: str
    body: str
    nouns: tuple[str, ...]
    draw: Callable[[random.Random, Any], Arguments]
    values: tuple[Any, ...] = (0,)
    more: str = ""


def _number(rng: random.Random, k: Any) -> Arguments:
    return (rng.randint(0, 60),)


def _multiple(rng: random.Random, k: Any) -> Arguments:
    return (k * rng.randint(1, 9) + rng.choice((0, 0, 1)),)


def _long_number(rng: random.Random, k: Any) -> Arguments:
    return (rng.randint(100, 9999),)


def _two(rng: random.Random, k: Any) -> Arguments:
    return rng.randint(0, 40), rng.randint(0, 40)


def _list(rng: random.Random, k: Any) -> Arguments:
    return ([rng.randint(1, 20) for _ in range(rng.randint(5, 7))],)


def _text(rng: random.Random, k: Any) -> Arguments:
    return (" ".join(_word(rng).capitalize() for _ in range(rng.randint(2, 3))),)


def _words(rng: random.Random, k: Any) -> Arguments:
    return ([_word(rng) for _ in range(rng.randint(4, 6))],)


def _word(rng: random.Random) -> str:
    return "".join(rng.choice(_LETTERS) for _ in range(rng.randint(2, 6)))


_SMALL = (2, 3, 4, 5)
_SOME = (5, 8, 10, 12)
_VOWELS = ("a", "e", "i", "o")

PLAIN_FAMILIES: dict[str, PlainFamily] = {
    f"{family.topic}-{family.kind}": family
    for family in (
        PlainFamily("number", "times", "times_{k}", "Return {v} multiplied by {k}.",
                    "return {v} * {k}", _SINGLE, _number, (3, 4, 5, 6, 7, 8)),
        PlainFamily("number", "multiple", "is_multiple_of_{k}",
                    "Return True if {v} is a multiple of {k}, and False otherwise.",
                    "return {v} % {k} == 0", _SINGLE, _multiple, (3, 4, 6, 7)),
        PlainFamily("number", "gap", "gap", "Return the absolute difference between {v} and b.",
                    "return abs({v} - b)", _SINGLE, _two, more=", b"),
        PlainFamily("number", "digits", "sum_of_digits", "Return the sum of the digits of {v}.",
                    "return sum(int(d) for d in str({v}))", _SINGLE, _long_number),
        PlainFamily("number", "square", "square_plus_{k}", "Return the square of {v} plus {k}.",
                    "return {v} ** 2 + {k}", _SINGLE, _number, (1, 2, 5, 10)),
        PlainFamily("list", "total", "total_{v}", "Return the sum of the numbers in the list {v}.",
                    "return sum({v})", _NUMBERS, _list),
        PlainFamily("list", "range", "range_of_{v}",
                    "Return the largest number in the list {v} minus the smallest one.",
                    "return max({v}) - min({v})", _NUMBERS, _list),
        PlainFamily("list", "above", "count_above_{k}",
                    "Return how many numbers in the list {v} are greater than {k}.",
                    "return len([x for x in {v} if x > {k}])", _NUMBERS, _list, _SOME),
        PlainFamily("list", "even", "even_{v}",
                    "Return a list of the even numbers in {v}, in the same order.",
                    "return [x for x in {v} if x % 2 == 0]", _NUMBERS, _list),
        PlainFamily("list", "scale", "scale_by_{k}",
                    "Return a list with every number in {v} multiplied by {k}.",
                    "return [x * {k} for x in {v}]", _NUMBERS, _list, _SMALL),
        PlainFamily("list", "first", "first_{k}", "Return the first {k} items of the list {v}.",
                    "return {v}[:{k}]", _NUMBERS, _list, _SMALL),
        PlainFamily("list", "falling", "sort_falling",
                    "Return the list {v} sorted from the largest number to the smallest.",
                    "return sorted({v}, reverse=True)", _NUMBERS, _list),
        PlainFamily("text", "reverse", "reverse_{v}", "Return the string {v} reversed.",
                    "return {v}[::-1]", _TEXTS, _text),
        PlainFamily("text", "letter", "count_{k}",
                    "Return how many times the letter '{k}' occurs in the string {v}.",
                    'return {v}.count("{k}")', _TEXTS, _text, _VOWELS),
        PlainFamily("text", "loud", "shout_{v}",
                    "Return the string {v} in capital letters, followed by an exclamation mark.",
                    'return {v}.upper() + "!"', _TEXTS, _text),
        PlainFamily("text", "spaces", "remove_spaces", "Return the string {v} without its spaces.",
                    'return {v}.replace(" ", "")', _TEXTS, _text),
        PlainFamily("text", "repeat", "repeat_{v}", "Return the string {v} repeated {k} times.",
                    "return {v} * {k}", _TEXTS, _text, _SMALL),
        PlainFamily("words", "longer", "longer_than_{k}",
                    "Return a list of the strings in {v} that have more than {k} letters.",
                    "return [w for w in {v} if len(w) > {k}]", _WORDS, _words, (3, 4)),
        PlainFamily("words", "dashes", "join_{v}",
                    "Return the strings in {v} joined into one string with dashes between them.",
                    'return "-".join({v})', _WORDS, _words),
        PlainFamily("words", "lengths", "lengths_of_{v}",
                    "Return a list with the length of every string in {v}.",
                    "return [len(w) for w in {v}]", _WORDS, _words),
    )
}  # fmt: skip
"""Every family by `<topic>-<kind>`."""


def plain_tasks(seed: int, count: int) -> dict[str, CodeTask]:
    """`count` tasks by id, spread evenly over the families; no two share a text."""
    if count < 1:
        raise UserError(f"number of plain coding tasks: {count}, must be at least 1")
    rng = random.Random(f"plain-coding-{seed}")
    names = list(PLAIN_FAMILIES)
    tasks: dict[str, CodeTask] = {}
    texts: set[str] = set()
    for index in range(count):
        name = names[index % len(names)]
        task_id = f"{name}-{index // len(names):04d}"
        task = _task(rng, name, task_id, texts)
        texts.add(normalise_text(task.statement))
        tasks[task_id] = task
    return tasks


def plain_solution(task: CodeTask) -> str:
    """The reference program; the task's starter code holds its body's place."""
    return task.starter + "\n    " + _bodies(task.family)[task.statement]


def _bodies(family: str) -> dict[str, str]:
    own = PLAIN_FAMILIES[family]
    return {
        _statement(family, v, k): own.body.format(v=v, k=k) for v in own.nouns for k in own.values
    }


def _statement(family: str, v: str, k: Any) -> str:
    own = PLAIN_FAMILIES[family]
    signature = f"{own.name.format(v=v, k=k)}({v}{own.more})"
    return f"{signature}: {own.statement.format(v=v, k=k)}"


def _task(rng: random.Random, family: str, task_id: str, texts: set[str]) -> CodeTask:
    own = PLAIN_FAMILIES[family]
    for _ in range(_MAX_DRAWS):
        v, k = rng.choice(own.nouns), rng.choice(own.values)
        statement = _statement(family, v, k)
        if normalise_text(statement) in texts:
            continue
        name = own.name.format(v=v, k=k)
        scope: dict[str, Any] = {}
        exec(f"def {name}({v}{own.more}):\n    {own.body.format(v=v, k=k)}", scope)
        drawn = [own.draw(rng, k) for _ in range(N_CASES)]
        cases = tuple(CodeCase(args=a, expected=scope[name](*a)) for a in drawn)
        # A constant must not pass.
        if len({repr(case.expected) for case in cases}) < 2:
            continue
        starter = _starter(
            f"def {name}({v}{own.more}):", own.statement.format(v=v, k=k), name, cases
        )
        return CodeTask(task_id, statement, "function", cases, name, starter, own.topic, family)
    raise UserError(f"plain coding tasks: no {family} statement is left")


def _starter(signature: str, text: str, name: str, cases: tuple[CodeCase, ...]) -> str:
    lines = [signature, f'    """{text}', ""]
    for case in cases[:N_EXAMPLES]:
        lines += [f"    >>> {name}({', '.join(map(repr, case.args))})", f"    {case.expected!r}"]
    return "\n".join([*lines, '    """'])
