"""What a user of the mini-suite can want: texts, the call plan, and what may be withheld.

A plan's argument is a slot of the goal (`owner`, `city`, `meal`) or, with a dollar sign, a field
of an earlier answer (`$price`).
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from lopd_repro.data.tiny.domains import CITIES, FIRST_NAMES, LAST_NAMES

MEALS = ("soup", "salad", "pasta", "curry", "pizza", "rice")
QUESTIONS = {"owner": "For whom?", "city": "Which city?", "meal": "Which meal?"}
"""The question that asks for a slot."""


@dataclass(frozen=True)
class Step:
    """One call of a plan: argument name to slot or `$field`."""

    function: str
    arguments: dict[str, str]


@dataclass(frozen=True)
class Kind:
    """One kind of goal; `short` is the opening without the slot `withheld`."""

    apps: tuple[str, ...]
    text: str
    withheld: str
    short: str
    plan: tuple[Step, ...]


@dataclass(frozen=True)
class Goal:
    """A kind with its slots filled; `withheld` if its opening leaves one out."""

    kind: str
    slots: dict[str, str]
    withheld: bool = False

    @property
    def opening(self) -> str:
        """What the user says first."""
        kind = KINDS[self.kind]
        return (kind.short if self.withheld else kind.text).format(**self.slots)

    @property
    def key(self) -> tuple[str, ...]:
        """What the goal asks for, however it is said."""
        return (self.kind, *(value for _, value in sorted(self.slots.items())))


KINDS: dict[str, Kind] = {
    "move": Kind(
        ("Railway",),
        "Move the seat of {owner} to {city}.",
        "city",
        "Move the seat of {owner}.",
        (
            Step("find_seat", {"owner": "owner"}),
            Step("move_seat", {"seat_id": "$seat_id", "city": "city"}),
        ),
    ),
    "refund": Kind(
        ("Railway", "Canteen"),
        "Cancel the seat of {owner} and credit the price.",
        "owner",
        "Cancel a seat and credit the price.",
        (
            Step("find_seat", {"owner": "owner"}),
            Step("cancel_seat", {"seat_id": "$seat_id"}),
            Step("credit_account", {"owner": "owner", "amount": "$price"}),
        ),
    ),
    "book": Kind(
        ("Railway", "Agenda"),
        "Book a seat to {city} for {owner} and note the price.",
        "city",
        "Book a seat for {owner} and note the price.",
        (
            Step("book_seat", {"owner": "owner", "city": "city"}),
            Step("add_note", {"owner": "owner", "number": "$price"}),
        ),
    ),
    "eat": Kind(
        ("Canteen", "Agenda"),
        "Order {meal} for {owner} and note the price.",
        "meal",
        "Order a meal for {owner} and note the price.",
        (
            Step("order_meal", {"owner": "owner", "meal": "meal"}),
            Step("add_note", {"owner": "owner", "number": "$price"}),
        ),
    ),
    "trip": Kind(
        ("Railway", "Canteen"),
        "Order {meal} for {owner} and book a seat to {city}.",
        "city",
        "Order {meal} for {owner} and book a seat.",
        (
            Step("order_meal", {"owner": "owner", "meal": "meal"}),
            Step("book_seat", {"owner": "owner", "city": "city"}),
        ),
    ),
    "forget": Kind(
        ("Agenda",),
        "Delete the note on {owner}.",
        "owner",
        "Delete a note.",
        (
            Step("find_note", {"owner": "owner"}),
            Step("delete_note", {"note_id": "$note_id"}),
        ),
    ),
    "pay": Kind(
        ("Agenda", "Canteen"),
        "Credit {owner} what the note says and delete the note.",
        "owner",
        "Credit what a note says and delete the note.",
        (
            Step("find_note", {"owner": "owner"}),
            Step("credit_account", {"owner": "owner", "amount": "$number"}),
            Step("delete_note", {"note_id": "$note_id"}),
        ),
    ),
}


def draw_goal(rng: random.Random, kind: str, withheld: bool) -> Goal:
    """A goal of that kind with random slots."""
    needed = {a for step in KINDS[kind].plan for a in step.arguments.values() if a[0] != "$"}
    slots = {"owner": draw_name(rng)}
    if "city" in needed:
        slots["city"] = rng.choice(CITIES)
    if "meal" in needed:
        slots["meal"] = rng.choice(MEALS)
    return Goal(kind, slots, withheld)


def draw_name(rng: random.Random) -> str:
    """A first and a last name."""
    return f"{rng.choice(FIRST_NAMES)} {rng.choice(LAST_NAMES)}"
