"""The four tiny topics and their twelve families, as data.

A program reads or takes its input, may change it (pre-step), works out `r`, and gives `r` back in
some form (post-step). The statement tells the middle alone: which pre- and post-step a family's
tests ask for is its hidden convention, and only experience can supply it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any, Literal

VALUES = tuple(range(2, 41))
NAMES = (
    "solve", "compute", "find", "measure", "answer", "process", "convert", "check", "build",
    "report", "gather", "select", "update", "finish", "prepare", "collect",
)  # fmt: skip
NUMBERS = (
    "prices", "scores", "ages", "weights", "heights", "sizes", "marks", "points", "costs", "levels",
    "speeds", "bids", "votes", "grades", "loads", "depths",
)  # fmt: skip
TEXTS = (
    "title", "label", "line", "text", "phrase", "note", "tag", "caption", "header", "motto",
    "slogan", "quote", "verse", "message", "heading", "entry",
)  # fmt: skip
WORDS = (
    "words", "cities", "colors", "fruits", "animals", "rivers", "tools", "plants", "birds", "teams",
    "streets", "songs", "stars", "metals", "games", "dishes",
)  # fmt: skip


@dataclass(frozen=True)
class Convention:
    """A pre-step (none where the input stays as it is) and a post-step, as lines of a program.

    `{v}` stands for the input's variable.
    """

    pre: str | None
    post: str


@dataclass(frozen=True)
class Family:
    """One kind of task. `core` computes `r` from `{v}` and the number `{k}`.

    `templates` hold `{v}`, `{k}` and, for functions, `{f}`. `draw` makes one input for a number.
    """

    name: str
    core: str
    templates: tuple[str, ...]
    convention: Convention
    draw: Callable[[Random, int], Any]


@dataclass(frozen=True)
class Topic:
    """Families that share how input comes in and which pre- and post-steps there are.

    `opening` is the program's first line; `plain` is the post-step without a convention.
    """

    name: str
    kind: Literal["stdin", "function"]
    nouns: tuple[str, ...]
    opening: str
    pre_steps: tuple[str, ...]
    post_steps: tuple[str, ...]
    plain: str
    families: tuple[Family, ...]


def _numbers(rng: Random, k: int) -> list[int]:
    """Values around k."""
    return [rng.randint(1, 2 * k + 3) for _ in range(rng.randint(6, 9))]


def _multiples(rng: Random, k: int) -> list[int]:
    """About half of the values are multiples of k."""
    return [k * rng.randint(1, 9) + rng.choice((0, 0, 1)) for _ in range(rng.randint(6, 9))]


def _letters(rng: Random, low: int, high: int) -> str:
    return "".join(rng.choice("abcdefghknoprstu") for _ in range(rng.randint(low, high)))


def _text(rng: Random, k: int) -> str:
    """Two or three capitalised words, so that changes of case, spaces and order all show."""
    words = (_letters(rng, 2, 4).capitalize() for _ in range(rng.randint(2, 3)))
    return " ".join(words)


def _long_text(rng: Random, k: int) -> str:
    """A text that is longer than k."""
    words = [_text(rng, k)]
    while len(" ".join(words)) <= k + 3:
        words.append(_letters(rng, 2, 4).capitalize())
    return " ".join(words)


def _words(rng: Random, k: int) -> list[str]:
    return [_letters(rng, 2, 4) for _ in range(rng.randint(4, 6))]


def _many_words(rng: Random, k: int) -> list[str]:
    return [_letters(rng, 1, 2) for _ in range(k + rng.randint(2, 4))]


def _lengths(rng: Random, k: int) -> list[str]:
    """Words about k letters long."""
    return [_letters(rng, max(1, k - 1), k + 2) for _ in range(rng.randint(6, 8))]


TOPICS: dict[str, Topic] = {
    topic.name: topic
    for topic in (
        Topic(
            name="numbers",
            kind="stdin",
            nouns=NUMBERS,
            opening="{v} = list(map(int, input().split()))",
            pre_steps=("{v} = {v}[1:]", "{v} = {v}[:-1]", "{v} = {v}[::2]"),
            post_steps=("print(r + 1)", "print(r * 2)", "print(-r)", 'print("=", r)'),
            plain="print(r)",
            families=(
                Family(
                    name="above",
                    core="r = sum(x for x in {v} if x > {k})",
                    templates=(
                        "Read {v} from one line. Print the sum of those above {k}.",
                        "Given {v} on a line, add up all that exceed {k} and print it.",
                    ),
                    convention=Convention("{v} = {v}[1:]", "print(r * 2)"),
                    draw=_numbers,
                ),
                Family(
                    name="multiples",
                    core="r = len([x for x in {v} if x % {k} == 0])",
                    templates=(
                        "Read {v} from one line. Print how many are multiples of {k}.",
                        "Given {v} on a line, count those that {k} divides and print it.",
                    ),
                    convention=Convention(None, 'print("=", r)'),
                    draw=_multiples,
                ),
                Family(
                    name="below",
                    core="r = max([x for x in {v} if x < {k}], default=0)",
                    templates=(
                        "Read {v} from one line. Print the largest below {k}, or 0.",
                        "Given {v} on a line, find the greatest under {k} (0 if none) and print it.",  # noqa: E501
                    ),
                    convention=Convention("{v} = {v}[::2]", "print(-r)"),
                    draw=_numbers,
                ),
            ),
        ),
        Topic(
            name="lists",
            kind="function",
            nouns=NUMBERS,
            opening="def {f}({v}):",
            pre_steps=("{v} = {v}[2:]", "{v} = {v}[:3]", "{v} = {v}[1::2]"),
            post_steps=("return r + 2", "return r // 2", "return [r]", "return str(r)"),
            plain="return r",
            families=(
                Family(
                    name="scale",
                    core="r = sum(x * {k} for x in {v})",
                    templates=(
                        "Write {f}({v}): the sum of all {v}, each times {k}.",
                        "Define {f}({v}) that multiplies every item by {k} and adds them up.",
                    ),
                    convention=Convention("{v} = {v}[:3]", "return [r]"),
                    draw=_numbers,
                ),
                Family(
                    name="clip",
                    core="r = sum(min(x, {k}) for x in {v})",
                    templates=(
                        "Write {f}({v}): the sum of all {v}, none counted for more than {k}.",
                        "Define {f}({v}) that caps every item at {k} and adds them up.",
                    ),
                    convention=Convention("{v} = {v}[1::2]", "return r + 2"),
                    draw=_numbers,
                ),
                Family(
                    name="nearest",
                    core="r = min(abs(x - {k}) for x in {v})",
                    templates=(
                        "Write {f}({v}): the smallest distance of any of the {v} to {k}.",
                        "Define {f}({v}) that tells how close the items come to {k}.",
                    ),
                    convention=Convention(None, "return str(r)"),
                    draw=_numbers,
                ),
            ),
        ),
        Topic(
            name="texts",
            kind="function",
            nouns=TEXTS,
            opening="def {f}({v}):",
            pre_steps=("{v} = {v}.lower()", "{v} = {v}[::-1]", '{v} = {v}.replace(" ", "")'),
            post_steps=('return r + "!"', 'return "#" + r', "return [r]", "return r[1:]"),
            plain="return r",
            families=(
                Family(
                    name="repeat",
                    core="r = {v} * {k}",
                    templates=(
                        "Write {f}({v}): the {v} {k} times in a row.",
                        "Define {f}({v}) that repeats the {v} {k} times.",
                    ),
                    convention=Convention('{v} = {v}.replace(" ", "")', 'return r + "!"'),
                    draw=_text,
                ),
                Family(
                    name="pad",
                    core='r = {v}.rjust({k}, "-")',
                    templates=(
                        "Write {f}({v}): the {v} with dashes before it up to length {k}.",
                        "Define {f}({v}) that fills the {v} from the left to {k} signs.",
                    ),
                    convention=Convention("{v} = {v}.lower()", "return [r]"),
                    draw=_text,
                ),
                Family(
                    name="cut",
                    core="r = {v}[:{k}]",
                    templates=(
                        "Write {f}({v}): the first {k} signs of the {v}.",
                        "Define {f}({v}) that keeps only {k} signs of the {v}.",
                    ),
                    convention=Convention("{v} = {v}[::-1]", 'return "#" + r'),
                    draw=_long_text,
                ),
            ),
        ),
        Topic(
            name="words",
            kind="stdin",
            nouns=WORDS,
            opening="{v} = input().split()",
            pre_steps=("{v} = sorted({v})", "{v} = {v}[::-1]", "{v} = {v}[1:]"),
            post_steps=(
                'print("-".join(r))', "print(len(r), *r)", 'print(*r, sep=",")', 'print(*r, "end")'
            ),
            plain="print(*r)",
            families=(
                Family(
                    name="long",
                    core="r = [w for w in {v} if len(w) > {k}]",
                    templates=(
                        "Read {v} from one line. Print those with more than {k} letters.",
                        "Given {v} on a line, print all that are longer than {k}.",
                    ),
                    convention=Convention("{v} = sorted({v})", "print(len(r), *r)"),
                    draw=_lengths,
                ),
                Family(
                    name="first",
                    core="r = {v}[:{k}]",
                    templates=(
                        "Read {v} from one line. Print the first {k} of them.",
                        "Given {v} on a line, print {k} from the start.",
                    ),
                    convention=Convention("{v} = {v}[::-1]", 'print(*r, "end")'),
                    draw=_many_words,
                ),
                Family(
                    name="mark",
                    core='r = [w + "{k}" for w in {v}]',
                    templates=(
                        "Read {v} from one line. Print each with {k} behind it.",
                        "Given {v} on a line, append {k} to every one and print them.",
                    ),
                    convention=Convention(None, 'print("-".join(r))'),
                    draw=_words,
                ),
            ),
        ),
    )
}  # fmt: skip

FAMILIES: dict[str, tuple[Topic, Family]] = {
    f"{topic.name}-{family.name}": (topic, family)
    for topic in TOPICS.values()
    for family in topic.families
}
"""Every family by its full name, `<topic>-<family>`, with its topic."""
