"""Tasks of the mini-suite: drawn at random, in the official form.

A task's data row has `id`, `question`, `initial_config`, `path`, `involved_classes`, `function`
and, beyond the official keys, `script`: what the scripted user says. Its answer row has `id`,
`ground_truth` and `mile_stone`. In multi-turn tasks `question` instructs a language model that
plays the user.
"""

from __future__ import annotations

import random
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Literal

from lopd_repro.benchmarks.ace.goals import KINDS, MEALS, Goal, draw_goal, draw_name
from lopd_repro.benchmarks.ace.worlds import documentation
from lopd_repro.data.tiny.domains import CITIES, ID_NUMBERS, VALUES
from lopd_repro.errors import UserError

Category = Literal["multi_step", "multi_turn"]
CATEGORIES: tuple[Category, ...] = ("multi_step", "multi_turn")
_NEEDS_SEAT, _NEEDS_NOTE = ("move", "refund"), ("forget", "pay")
_MAX_DRAWS = 1000


@dataclass(frozen=True)
class Task:
    """One task; `script` holds one `{opening, answers}` per goal of a multi-turn task."""

    task_id: str
    category: Category
    question: str
    initial_config: dict[str, Any]
    classes: list[str]
    script: list[dict[str, Any]]

    def row(self) -> dict[str, Any]:
        """The data row in the official form."""
        row = {
            "id": self.task_id,
            "question": self.question,
            "initial_config": self.initial_config,
            "path": [],
            "involved_classes": self.classes,
            "function": documentation(self.classes),
        }
        return {**row, "script": self.script} if self.script else row


def read_task(row: dict[str, Any]) -> Task:
    """The task of a data row."""
    category: Category = "multi_turn" if "multi_turn" in row["id"] else "multi_step"
    return Task(
        row["id"],
        category,
        row["question"],
        row["initial_config"],
        row["involved_classes"],
        row.get("script", []),
    )


def sample_task(
    rng: random.Random,
    category: Category,
    task_id: str = "sampled",
    kind: str | None = None,
    forbidden: Collection[tuple[str, ...]] = (),
) -> tuple[Task, list[Goal]]:
    """A random task and its goals: one in multi-step, one or two in multi-turn.

    `forbidden` are `Goal.key`s: a task with such a goal is not returned.
    """
    for _ in range(_MAX_DRAWS):
        goals = [draw_goal(rng, kind or rng.choice(list(KINDS)), category == "multi_turn")]
        if category == "multi_turn" and rng.random() < 0.4:
            others = [name for name in KINDS if name != goals[0].kind]
            goals.append(draw_goal(rng, rng.choice(others), withheld=False))
        owners = {goal.slots["owner"] for goal in goals}
        if len(owners) == len(goals) and not any(goal.key in forbidden for goal in goals):
            return _task(rng, category, task_id, goals), goals
    raise UserError("ACEBench mini-suite: no task left that is not forbidden")


def _task(rng: random.Random, category: Category, task_id: str, goals: list[Goal]) -> Task:
    apps = {app for goal in goals for app in KINDS[goal.kind].apps}
    classes = ["Device", *(name for name in ("Railway", "Canteen", "Agenda") if name in apps)]
    config = {"Device": {"online": rng.random() < 0.7, "unlocked": rng.random() < 0.7}}
    for name in classes[1:]:
        config[name] = _STATES[name](rng, goals)
    script: list[dict[str, Any]] = []
    if category == "multi_turn":
        script = [{"opening": goal.opening, "answers": goal.slots} for goal in goals]
    question = goals[0].opening if category == "multi_step" else _instruction(goals)
    return Task(task_id, category, question, config, classes, script)


def _instruction(goals: list[Goal]) -> str:
    lines = [f"{n}. {KINDS[g.kind].text.format(**g.slots)}" for n, g in enumerate(goals, 1)]
    return "\n".join(
        [
            "Ask for these things, one after the other:",
            *lines,
            f"Begin with: {goals[0].opening}",
            "Tell what is missing only when you are asked for it.",
        ]
    )


def _seats(rng: random.Random, goals: list[Goal]) -> dict[str, Any]:
    fares = {city: rng.choice(VALUES) for city in CITIES}
    seats = []
    for seat_id, owner in _records(rng, goals, _NEEDS_SEAT):
        wanted = {g.slots.get("city") for g in goals if g.slots["owner"] == owner}
        city = rng.choice([city for city in CITIES if city not in wanted])
        price = rng.choice(VALUES)
        seats.append({"seat_id": seat_id, "owner": owner, "city": city, "price": price})
    return {"seats": seats, "fares": fares}


def _notes(rng: random.Random, goals: list[Goal]) -> dict[str, Any]:
    records = _records(rng, goals, _NEEDS_NOTE)
    return {
        "notes": [
            {"note_id": note_id, "owner": owner, "number": rng.choice(VALUES)}
            for note_id, owner in records
        ]
    }


def _accounts(rng: random.Random, goals: list[Goal]) -> dict[str, Any]:
    owners = [*(goal.slots["owner"] for goal in goals), draw_name(rng)]
    rng.shuffle(owners)
    return {
        "accounts": {owner: 100 + rng.choice(VALUES) for owner in owners},
        "menu": {meal: rng.choice(VALUES) for meal in MEALS},
        "orders": [],
    }


_STATES = {"Railway": _seats, "Canteen": _accounts, "Agenda": _notes}


def _records(
    rng: random.Random, goals: list[Goal], needing: tuple[str, ...]
) -> list[tuple[int, str]]:
    """Ids and owners: those that goals need and two others, the ids rising in a random order."""
    owners = [goal.slots["owner"] for goal in goals if goal.kind in needing]
    taken = {goal.slots["owner"] for goal in goals}
    while len(owners) < 3:
        name = draw_name(rng)
        if name not in taken:
            taken.add(name)
            owners.append(name)
    rng.shuffle(owners)
    # Room for new ids within ID_NUMBERS, which tiny vocabularies hold as single tokens.
    ids = sorted(rng.sample(ID_NUMBERS[:-2], len(owners)))
    return list(zip(ids, owners, strict=True))
