"""Simulators of the mini-suite: a phone with three apps, and their documentation.

`Railway` and `Canteen` work only while the phone is online, `Agenda` only while it is unlocked;
an agent learns this from an app's answer. Records are kept in lists, because ACEBench's scorer
compares lists whole but lets a mapping hold more than the ground truth: a record that should have
been deleted would go unseen.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from lopd_repro.benchmarks.ace.calls import Call

Answer = dict[str, Any]
Records = list[Answer]
DONE: Answer = {"status": True}


class Device:
    """Whether the phone is online and unlocked."""

    saved = ("online", "unlocked")

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.online: bool = config.get("online", True)
        self.unlocked: bool = config.get("unlocked", True)

    def go_online(self) -> Answer:
        self.online = True
        return DONE

    def unlock_phone(self) -> Answer:
        self.unlocked = True
        return DONE


class Railway:
    """Seats on trains: each has an owner, a city and a price."""

    saved = ("seats",)

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.seats: Records = deepcopy(config.get("seats", []))
        self.fares: dict[str, int] = deepcopy(config.get("fares", {}))

    def find_seat(self, owner: str) -> Answer:
        seat = _of(self.seats, "owner", owner)
        if seat is None:
            return _failure("not found")
        return {"seat_id": seat["seat_id"], "price": seat["price"]}

    def book_seat(self, owner: str, city: str) -> Answer:
        if city not in self.fares:
            return _failure("not found")
        seat_id = _next(self.seats, "seat_id")
        price = self.fares[city]
        self.seats.append({"seat_id": seat_id, "owner": owner, "city": city, "price": price})
        return {"seat_id": seat_id, "price": price}

    def move_seat(self, seat_id: int, city: str) -> Answer:
        seat = _of(self.seats, "seat_id", seat_id)
        if seat is None:
            return _failure("not found")
        seat["city"] = city
        return DONE

    def cancel_seat(self, seat_id: int) -> Answer:
        return _remove(self.seats, "seat_id", seat_id)


class Canteen:
    """Meals and the accounts that pay for them."""

    saved = ("accounts", "orders")

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.accounts: dict[str, int] = deepcopy(config.get("accounts", {}))
        self.menu: dict[str, int] = deepcopy(config.get("menu", {}))
        self.orders: list[Answer] = deepcopy(config.get("orders", []))

    def order_meal(self, owner: str, meal: str) -> Answer:
        if owner not in self.accounts or meal not in self.menu:
            return _failure("not found")
        self.accounts[owner] -= self.menu[meal]
        self.orders.append({"owner": owner, "meal": meal})
        return {"price": self.menu[meal]}

    def credit_account(self, owner: str, amount: int) -> Answer:
        if owner not in self.accounts:
            return _failure("not found")
        self.accounts[owner] += int(amount)
        return DONE


class Agenda:
    """Notes, each about one person and one number."""

    saved = ("notes",)

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.notes: Records = deepcopy(config.get("notes", []))

    def find_note(self, owner: str) -> Answer:
        note = _of(self.notes, "owner", owner)
        if note is None:
            return _failure("not found")
        return {"note_id": note["note_id"], "number": note["number"]}

    def add_note(self, owner: str, number: int) -> Answer:
        note_id = _next(self.notes, "note_id")
        self.notes.append({"note_id": note_id, "owner": owner, "number": number})
        return DONE

    def delete_note(self, note_id: int) -> Answer:
        return _remove(self.notes, "note_id", note_id)


@dataclass(frozen=True)
class Function:
    """One function of an app; `needs` is the device attribute without which it fails."""

    app: str
    description: str
    arguments: dict[str, str]
    needs: str = ""


CLASSES: dict[str, Callable[[Mapping[str, Any]], Any]] = {
    "Device": Device,
    "Railway": Railway,
    "Canteen": Canteen,
    "Agenda": Agenda,
}
FAILURES = {"online": "offline", "unlocked": "locked"}
FUNCTIONS: dict[str, Function] = {
    "go_online": Function("Device", "Connect the phone to the network.", {}),
    "unlock_phone": Function("Device", "Unlock the phone.", {}),
    "find_seat": Function("Railway", "Find a person's seat.", {"owner": "string"}, "online"),
    "book_seat": Function(
        "Railway", "Book a new seat.", {"owner": "string", "city": "string"}, "online"
    ),
    "move_seat": Function(
        "Railway", "Change a seat's city.", {"seat_id": "integer", "city": "string"}, "online"
    ),
    "cancel_seat": Function("Railway", "Give a seat back.", {"seat_id": "integer"}, "online"),
    "order_meal": Function(
        "Canteen", "Order a meal.", {"owner": "string", "meal": "string"}, "online"
    ),
    "credit_account": Function(
        "Canteen", "Put money on an account.", {"owner": "string", "amount": "integer"}, "online"
    ),
    "find_note": Function("Agenda", "Find the note on a person.", {"owner": "string"}, "unlocked"),
    "add_note": Function(
        "Agenda", "Write a note.", {"owner": "string", "number": "integer"}, "unlocked"
    ),
    "delete_note": Function("Agenda", "Delete a note.", {"note_id": "integer"}, "unlocked"),
}


def documentation(classes: list[str]) -> list[dict[str, Any]]:
    """Documentation of the functions of these apps, in ACEBench's form."""
    return [
        {
            "name": name,
            "description": function.description,
            "parameters": {
                "type": "dict",
                "required": list(function.arguments),
                "properties": {
                    argument: {"type": kind, "description": f"The {argument.replace('_', ' ')}."}
                    for argument, kind in function.arguments.items()
                },
            },
        }
        for name, function in FUNCTIONS.items()
        if function.app in classes
    ]


class Phone:
    """The apps of one task; runs calls, tells the state."""

    def __init__(self, initial_config: Mapping[str, Any], classes: list[str]) -> None:
        self._apps = {name: CLASSES[name](initial_config.get(name, {})) for name in classes}
        self._device = Device(initial_config.get("Device", {}))
        self._device = self._apps.get("Device", self._device)

    def run(self, call: Call) -> Answer | str:
        """The answer of one call; a call that cannot be made answers with an error text."""
        function = FUNCTIONS.get(call.name)
        if function is None or function.app not in self._apps:
            return "Error: unknown function"
        given = set(call.arguments)
        if given != set(function.arguments) or not all(
            _fits(call.arguments[name], kind) for name, kind in function.arguments.items()
        ):
            return "Error: wrong arguments"
        if function.needs and not getattr(self._device, function.needs):
            return _failure(FAILURES[function.needs])
        answer: Answer = getattr(self._apps[function.app], call.name)(**call.arguments)
        return answer

    def state(self) -> list[dict[str, Any]]:
        """`[{class: {attribute: value}}, ...]` of the attributes that count."""
        return [
            {name: {attribute: deepcopy(getattr(app, attribute)) for attribute in app.saved}}
            for name, app in self._apps.items()
        ]


def _fits(value: Any, kind: str) -> bool:
    wanted = int if kind == "integer" else str
    return isinstance(value, wanted) and not isinstance(value, bool)


def _failure(message: str) -> Answer:
    return {"status": False, "message": message}


def _of(records: Records, key: str, value: Any) -> Answer | None:
    return next((record for record in records if record[key] == value), None)


def _next(records: Records, key: str) -> int:
    return max((record[key] for record in records), default=59) + 1


def _remove(records: Records, key: str, value: int) -> Answer:
    record = _of(records, key, value)
    if record is None:
        return _failure("not found")
    records.remove(record)
    return DONE
