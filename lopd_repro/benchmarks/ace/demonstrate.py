"""A scripted agent for the mini-suite, training conversations, and their vocabulary.

Noise makes the agent only partly competent: base models are trained on such conversations.
"""

from __future__ import annotations

import ast
import random
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

from lopd_repro.benchmarks.ace.calls import Call, call_list
from lopd_repro.benchmarks.ace.dialogue import (
    MALFORMED,
    RESULT,
    TASK_COMPLETED,
    Dialogue,
    DialogueSettings,
    Message,
)
from lopd_repro.benchmarks.ace.goals import KINDS, MEALS, QUESTIONS, Goal, Step, draw_name
from lopd_repro.benchmarks.ace.tasks import CATEGORIES, Task, sample_task
from lopd_repro.benchmarks.ace.user import FINISH, ScriptedUser
from lopd_repro.benchmarks.ace.worlds import FAILURES, FUNCTIONS
from lopd_repro.data.tiny.domains import (
    CITIES,
    FIRST_NAMES,
    ID_NUMBERS,
    LAST_NAMES,
    VALUES,
)

_MENDS = {"offline": "go_online", "locked": "unlock_phone"}


@dataclass(frozen=True)
class Noise:
    """Probabilities of the agent's mistakes, each drawn once per goal.

    order: the first two calls change places. value: an argument of the last call is wrong. omit:
    one call is left out. no_ask: a withheld detail is guessed. give_up: the goal is called
    finished when an app is offline or locked.
    """

    order: float = 0.0
    value: float = 0.0
    omit: float = 0.0
    no_ask: float = 0.0
    give_up: float = 0.0


GOLD = Noise()


class Demonstrator:
    """Follows the goals' plans, with mistakes drawn from `noise`."""

    def __init__(self, goals: list[Goal], rng: random.Random, noise: Noise = GOLD) -> None:
        self._goals = list(goals)
        self._rng = rng
        self._noise = noise
        self._finished = False
        self._sent: Step | None = None
        self._known: dict[str, Any] = {}
        self._pending: list[Step] = []
        self._wrong: Step | None = None
        self._question = ""
        self._gives_up = False
        self._start()

    def next_text(self, answer: str | None) -> str:
        """The agent's next text; `answer` is what the last one was answered with."""
        if self._sent is not None:
            result = ast.literal_eval(str(answer).removeprefix(RESULT))[0]
            self._learn(result if isinstance(result, dict) else {})
        elif self._finished:
            self._goals.pop(0)
            self._start()
        if self._question:
            question, self._question = self._question, ""
            return question
        self._sent = next(iter(self._pending), None)
        if self._sent is None:
            self._finished = True
            return TASK_COMPLETED
        return call_list(self._call(self._sent))

    def _start(self) -> None:
        goal, rng, noise = self._goals[0], self._rng, self._noise
        kind = KINDS[goal.kind]
        self._finished = False
        self._sent = None
        self._known = dict(goal.slots)
        self._pending = list(kind.plan)
        if rng.random() < noise.order:
            self._pending[:2] = reversed(self._pending[:2])
        if rng.random() < noise.omit:
            self._pending.pop(rng.randrange(len(self._pending)))
        self._wrong = kind.plan[-1] if rng.random() < noise.value else None
        self._question = QUESTIONS[kind.withheld] if goal.withheld else ""
        if self._question and rng.random() < noise.no_ask:
            self._question = ""
            self._known[kind.withheld] = _other(rng, kind.withheld, goal.slots[kind.withheld])
        self._gives_up = rng.random() < noise.give_up

    def _call(self, step: Step) -> Call:
        if step.function in _MENDS.values():
            return Call(step.function, {})
        given = {
            name: self._known.get(source.removeprefix("$"), None)
            for name, source in step.arguments.items()
        }
        for name, value in given.items():
            if value is None:
                given[name] = _other(self._rng, name, None)
        if step is self._wrong:
            last = list(given)[-1]
            given[last] = _other(self._rng, last, given[last])
        return Call(step.function, given)

    def _learn(self, result: dict[str, Any]) -> None:
        mend = _MENDS.get(str(result.get("message", "")))
        if mend is None:
            self._known.update(result)
            self._pending.pop(0)
        elif self._gives_up:
            self._pending = []
        else:
            self._pending.insert(0, Step(mend, {}))


def play(task: Task, goals: list[Goal], rng: random.Random, noise: Noise = GOLD) -> Dialogue:
    """The demonstrator's whole conversation with the scripted user."""
    user = ScriptedUser(task) if task.category == "multi_turn" else None
    dialogue = Dialogue(task, user, DialogueSettings())
    agent = Demonstrator(goals, rng, noise)
    answer: str | None = None
    while not dialogue.done:
        dialogue.reply(agent.next_text(answer))
        answer = dialogue.messages()[-1]["content"]
    return dialogue


def conversations(
    rng_seed: int,
    count: int,
    noise: Noise = GOLD,
    forbidden: Collection[tuple[str, ...]] | None = None,
) -> Iterator[list[Message]]:
    """Training conversations, as messages `{role, content}`; all assistant messages are
    supervised.

    They are what the mini-suite sends at its default settings, the last message being the
    agent's or, in multi-turn tasks, the user's `finish conversation`. `forbidden` are keys of
    goals that must not appear; by default those of the bundled suite.
    """
    from lopd_repro.benchmarks.ace.suite import suite_keys

    closed = suite_keys() if forbidden is None else forbidden
    rng = random.Random(f"ace-conversations-{rng_seed}")
    for index in range(count):
        category = CATEGORIES[index % len(CATEGORIES)]
        task, goals = sample_task(rng, category, forbidden=closed)
        yield play(task, goals, rng, noise).messages()


def vocabulary() -> list[str]:
    """Tokens in a fixed order, each once, that make the mini-suite's texts short."""
    glue = [
        TASK_COMPLETED, MALFORMED, RESULT, FINISH, "tools:", "\n", ")]", "')]", "}]",
        "[{'status': True}]", "['Error: unknown function']", "['Error: wrong arguments']",
    ]  # fmt: skip
    glue += [f"[{{'status': False, 'message': '{m}'}}]" for m in (*FAILURES.values(), "not found")]
    glue += ["[{'seat_id': ", "[{'note_id': ", "[{'price': ", ", 'price': ", ", 'number': "]
    for name, function in FUNCTIONS.items():
        glue += [name] if function.arguments else [name, f"[{name}()]"]
        before = f"[{name}("
        for argument, kind in function.arguments.items():
            quote = "'" if kind == "string" else ""
            glue.append(f"{before}{argument}={quote}")
            before = f"{quote}, "
    words: list[str] = []
    for text in (
        *(kind.text for kind in KINDS.values()),
        *(kind.short for kind in KINDS.values()),
        *QUESTIONS.values(),
        "I do not know.",
        "Please go on.",
    ):
        for literal in _literals(text):
            words += re.findall(r" ?[A-Za-z]+|[^A-Za-z]", literal)
    values = [*FIRST_NAMES, *(f" {name}" for name in LAST_NAMES), *CITIES, *MEALS]
    values += [str(number) for number in (*VALUES, *ID_NUMBERS)]
    return list(dict.fromkeys([*glue, *words, *values]))


def _literals(text: str) -> list[str]:
    for slot in ("{owner}", "{city}", "{meal}"):
        text = text.replace(slot, "\0")
    return text.split("\0")


def _other(rng: random.Random, argument: str, right: Any) -> Any:
    if argument == "owner":
        return draw_name(rng)
    if argument.endswith("_id"):
        values: tuple[Any, ...] = ID_NUMBERS
    elif argument in ("city", "meal"):
        values = CITIES if argument == "city" else MEALS
    else:
        values = VALUES
    return rng.choice([value for value in values if value != right])
