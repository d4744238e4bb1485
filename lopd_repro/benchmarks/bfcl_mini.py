"""A mini-suite in the form of BFCL v3 multi-turn, and scripts of training conversations for it.

The tasks run on three of the official backend classes (files, tickets, messages) and are judged
by the official checker; texts, states and function descriptions are this project's own. Every
category has its point: `miss_func` holds a function back for one turn, `miss_param` leaves a value
out of the request and gives it a turn later, `long_context` lists a folder that the official class
fills with dozens of files before the second request comes.

Everything here is plain data made from a seed. Playing a script on the official classes, which
gives the observations, is done by `eval/bfcl/record.py` in their own environment.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lopd_repro.data.tiny.domains import CITIES, FIRST_NAMES, ID_NUMBERS, TEAMS, WINGS
from lopd_repro.files import write_text

CATEGORIES = ("base", "miss_func", "miss_param", "long_context")
TASKS_PER_CATEGORY = 24

DONE = "Task Completed"
ASK = "Which one?"
NO_TOOL = "No tool for that."

Arguments = dict[str, Any]
Call = tuple[str, Arguments]


@dataclass(frozen=True)
class Request:
    """One thing a user asks for.

    `slots` names the values in `texts`; `partial` is the request without its `missing` value and
    `answer` the text that supplies it. `calls` gives the right calls for values and the state.
    """

    backend: str
    texts: tuple[str, ...]
    partial: str
    answer: str
    missing: str
    tool: str
    calls: Callable[[Arguments, dict[str, Any]], list[Call]]
    long: bool = False


def _user_id(values: Arguments, state: dict[str, Any]) -> str:
    return str(state["user_map"].get(values["name"], "U-00"))


REQUESTS: dict[str, Request] = {
    "make": Request(
        "GorillaFileSystem",
        ("Make the folder {folder}.", "We need a folder {folder}."),
        "Make one more folder.",
        "The folder {folder}.",
        "folder",
        "mkdir",
        lambda v, s: [("mkdir", {"dir_name": v["folder"]})],
    ),
    "start": Request(
        "GorillaFileSystem",
        ("Start the file {file}.", "We need a file {file}."),
        "Start one more file.",
        "The file {file}.",
        "file",
        "touch",
        lambda v, s: [("touch", {"file_name": v["file"]})],
    ),
    "move": Request(
        "GorillaFileSystem",
        ("Move {file} to {folder}.", "Put {file} into {folder}."),
        "Move {file} to a folder.",
        "The folder {folder}.",
        "folder",
        "mv",
        lambda v, s: [("mv", {"source": v["file"], "destination": v["folder"]})],
    ),
    "remove": Request(
        "GorillaFileSystem",
        ("Remove {file}.", "Throw {file} away."),
        "Remove a file.",
        "The file {file}.",
        "file",
        "rm",
        lambda v, s: [("rm", {"file_name": v["file"]})],
    ),
    "list": Request(
        "GorillaFileSystem",
        ("List what is in {folder}.", "Go to {folder} and list it."),
        "List a folder.",
        "The folder {folder}.",
        "folder",
        "ls",
        lambda v, s: [("cd", {"folder": v["folder"]}), ("ls", {"a": False})],
        long=True,
    ),
    "show": Request(
        "TicketAPI",
        ("Show ticket {number}.", "What is ticket {number}?"),
        "Show a ticket.",
        "Ticket {number}.",
        "number",
        "get_ticket",
        lambda v, s: [("get_ticket", {"ticket_id": v["number"]})],
    ),
    "close": Request(
        "TicketAPI",
        ("Close ticket {number}.", "Ticket {number} can be closed."),
        "Close a ticket.",
        "Ticket {number}.",
        "number",
        "close_ticket",
        lambda v, s: [("close_ticket", {"ticket_id": v["number"]})],
    ),
    "resolve": Request(
        "TicketAPI",
        ("Resolve ticket {number} with {word}.", "{word} resolves ticket {number}."),
        "Resolve a ticket with {word}.",
        "Ticket {number}.",
        "number",
        "resolve_ticket",
        lambda v, s: [("resolve_ticket", {"ticket_id": v["number"], "resolution": v["word"]})],
    ),
    "open": Request(
        "TicketAPI",
        ("Open a ticket on {team}.", "New ticket, on {team}."),
        "Open a ticket.",
        "On {team}.",
        "team",
        "create_ticket",
        lambda v, s: [("create_ticket", {"title": v["team"]})],
    ),
    "tell": Request(
        "MessageAPI",
        ("Tell {name} {word}.", "Send {word} to {name}."),
        "Tell someone {word}.",
        "To {name}.",
        "name",
        "send_message",
        lambda v, s: [
            ("get_user_id", {"user": v["name"]}),
            ("send_message", {"receiver_id": _user_id(v, s), "message": v["word"]}),
        ],
    ),
    "unsend": Request(
        "MessageAPI",
        ("Delete the message to {name}.", "Take back what {name} was sent."),
        "Delete a message.",
        "To {name}.",
        "name",
        "delete_message",
        lambda v, s: [
            ("get_user_id", {"user": v["name"]}),
            ("delete_message", {"receiver_id": _user_id(v, s)}),
        ],
    ),
    "add": Request(
        "MessageAPI",
        ("Add {new} as a contact.", "{new} is a new contact."),
        "Add a contact.",
        "It is {new}.",
        "new",
        "add_contact",
        lambda v, s: [("add_contact", {"user_name": v["new"]})],
    ),
}

BACKENDS = {
    "GorillaFileSystem": "gorilla_file_system.json",
    "TicketAPI": "ticket_api.json",
    "MessageAPI": "message_api.json",
}


def _doc(name: str, description: str, **parameters: str) -> dict[str, Any]:
    properties = {
        key: {"type": kind, "description": f"{key} of {name}"} for key, kind in parameters.items()
    }
    return {
        "name": name,
        "description": description,
        "parameters": {
            "type": "dict",
            "properties": properties,
            "required": list(parameters),
        },
    }


FUNCTION_DOCS: dict[str, list[dict[str, Any]]] = {
    "GorillaFileSystem": [
        _doc("cd", "Enter a folder.", folder="string"),
        _doc("ls", "List the current folder.", a="boolean"),
        _doc("mkdir", "Make a folder here.", dir_name="string"),
        _doc("touch", "Start an empty file here.", file_name="string"),
        _doc("mv", "Move a file.", source="string", destination="string"),
        _doc("rm", "Remove a file.", file_name="string"),
    ],
    "TicketAPI": [
        _doc("get_ticket", "Read a ticket.", ticket_id="integer"),
        _doc("close_ticket", "Close a ticket.", ticket_id="integer"),
        _doc("resolve_ticket", "Resolve a ticket.", ticket_id="integer", resolution="string"),
        _doc("create_ticket", "Open a ticket.", title="string"),
    ],
    "MessageAPI": [
        _doc("get_user_id", "Look a user's id up.", user="string"),
        _doc("send_message", "Send a message.", receiver_id="string", message="string"),
        _doc("delete_message", "Delete the last message to a user.", receiver_id="string"),
        _doc("add_contact", "Add a contact.", user_name="string"),
    ],
}


@dataclass(frozen=True)
class Turn:
    """One user turn: its text, the right calls, and what was asked for.

    `added` are functions that become available with this turn; such a turn has no text.
    """

    text: str
    calls: tuple[Call, ...]
    request: Request
    values: Arguments
    added: tuple[str, ...] = ()
    reply: str = DONE


@dataclass(frozen=True)
class Task:
    """One task of a category."""

    category: str
    turns: tuple[Turn, ...]
    initial_config: dict[str, Any]
    classes: tuple[str, ...]
    missed: dict[str, list[str]] = field(default_factory=dict)

    @property
    def texts(self) -> str:
        """All user texts, to tell tasks apart."""
        return " / ".join(turn.text for turn in self.turns)


@dataclass(frozen=True)
class Noise:
    """Probabilities of a scripted mistake in a user turn; at most one of the first three.

    value: a wrong value in the last call. omit: the last call is left out. tool: another function
    of the same backend. rash: calling in a turn that must be answered with words.
    """

    value: float = 0.0
    omit: float = 0.0
    tool: float = 0.0
    rash: float = 0.0


def sample_task(rng: random.Random, category: str) -> Task:
    """One random task; two requests on two backends, the second request may be split in two."""
    names = list(REQUESTS)
    first_name = "list" if category == "long_context" else rng.choice(names)
    first = REQUESTS[first_name]
    others = [name for name in names if REQUESTS[name].backend != first.backend]
    second = REQUESTS[rng.choice(others)]
    config = {name: _state(rng, name) for name in (first.backend, second.backend)}
    opening = _plain(rng, first, config)
    closing = _plain(rng, second, config)
    turns: tuple[Turn, ...]
    missed: dict[str, list[str]] = {}
    if category == "miss_func":
        blocked = Turn(closing.text, (), second, closing.values, reply=NO_TOOL)
        turns = (
            opening,
            blocked,
            Turn("", closing.calls, second, closing.values, added=(second.tool,)),
        )
        missed = {"2": [second.tool]}
    elif category == "miss_param":
        asking = Turn(
            second.partial.format(**closing.values), (), second, closing.values, reply=ASK
        )
        answer = second.answer.format(**closing.values)
        turns = (opening, asking, Turn(answer, closing.calls, second, closing.values))
    else:
        turns = (opening, closing)
    return Task(category, turns, config, (first.backend, second.backend), missed)


def suite(seed: int = 0, per_category: int = TASKS_PER_CATEGORY) -> dict[str, list[Task]]:
    """The tasks of the mini-suite, by category, each text once."""
    tasks: dict[str, list[Task]] = {}
    for category in CATEGORIES:
        rng = random.Random(f"bfcl-mini-{seed}-{category}")
        seen: set[str] = set()
        found: list[Task] = []
        while len(found) < per_category:
            task = sample_task(rng, category)
            if task.texts not in seen:
                seen.add(task.texts)
                found.append(task)
        tasks[category] = found
    return tasks


def write_suite(folder: Path, seed: int = 0) -> None:
    """Data files in the official form: questions, possible answers, function descriptions."""
    for category, tasks in suite(seed).items():
        name = f"BFCL_v3_multi_turn_{category}.json"
        entries, answers = [], []
        for index, task in enumerate(tasks):
            task_id = f"multi_turn_{category}_{index}"
            entry: dict[str, Any] = {
                "id": task_id,
                "question": [
                    [{"role": "user", "content": turn.text}] if turn.text else []
                    for turn in task.turns
                ],
                "initial_config": task.initial_config,
                "path": [
                    f"{turn.request.backend}.{call[0]}"
                    for turn in task.turns
                    for call in turn.calls
                ],
                "involved_classes": list(task.classes),
            }
            if task.missed:
                entry["missed_function"] = task.missed
            entries.append(entry)
            answers.append(
                {
                    "id": task_id,
                    "ground_truth": [[call_code(c) for c in turn.calls] for turn in task.turns],
                }
            )
        write_text(folder / name, _lines(entries))
        write_text(folder / "possible_answer" / name, _lines(answers))
    for backend, file in BACKENDS.items():
        write_text(folder / "multi_turn_func_doc" / file, _lines(FUNCTION_DOCS[backend]))


def scripts(
    seed: int, count: int, noise: Noise, forbidden: Collection[str]
) -> Iterator[dict[str, Any]]:
    """Training conversations as scripts: per user turn the calls, made one by one, and the reply.

    `forbidden` are `Task.texts` that must not appear: those of the mini-suite.
    """
    rng = random.Random(f"bfcl-scripts-{seed}")
    made = 0
    while made < count:
        task = sample_task(rng, CATEGORIES[made % len(CATEGORIES)])
        if task.texts in forbidden:
            continue
        made += 1
        yield {
            "category": f"multi_turn_{task.category}",
            "initial_config": task.initial_config,
            "involved_classes": list(task.classes),
            "missed_function": task.missed,
            "turns": [
                {
                    "text": turn.text,
                    "calls": _performed(rng, turn, task, noise),
                    "reply": turn.reply,
                }
                for turn in task.turns
            ],
        }


def variables() -> list[str]:
    """The words that vary between tasks; what lies between them is fixed text."""
    tools = [doc["name"] for docs in FUNCTION_DOCS.values() for doc in docs]
    return [
        *tools,
        DONE,
        ASK,
        NO_TOOL,
        *FIRST_NAMES,
        *CITIES,
        *WINGS,
        *TEAMS,
        *(str(number) for number in ID_NUMBERS),
    ]


def call_code(call: Call) -> str:
    """A call as Python text, as the ground truths have it."""
    name, arguments = call
    return f"{name}({', '.join(f'{key}={value!r}' for key, value in arguments.items())})"


def _performed(
    rng: random.Random, turn: Turn, task: Task, noise: Noise
) -> list[tuple[str, Arguments]]:
    if not turn.calls:
        if rng.random() < noise.rash:
            state = task.initial_config[turn.request.backend]
            values = _values(rng, turn.request.backend, state)
            if turn.reply == NO_TOOL:  # the held-back function cannot be called
                return [_other_tool(rng, (turn.request.tool, {}), turn, task)]
            return turn.request.calls({**values, **turn.values}, state)
        return []
    calls = list(turn.calls)
    draw = rng.random()
    if draw < noise.value:
        state = task.initial_config[turn.request.backend]
        other = turn.request.calls(_values(rng, turn.request.backend, state), state)
        calls[-1] = other[-1]
    elif draw < noise.value + noise.omit:
        calls = calls[:-1]
    elif draw < noise.value + noise.omit + noise.tool:
        calls[-1] = _other_tool(rng, calls[-1], turn, task)
    return calls


def _other_tool(rng: random.Random, call: Call, turn: Turn, task: Task) -> Call:
    backend = turn.request.backend
    state = task.initial_config[backend]
    others = [r for r in REQUESTS.values() if r.backend == backend and r.tool != turn.request.tool]
    return rng.choice(others).calls(_values(rng, backend, state), state)[-1]


def _plain(rng: random.Random, request: Request, config: dict[str, Any]) -> Turn:
    state = config[request.backend]
    values = _values(rng, request.backend, state)
    text = rng.choice(request.texts).format(**values)
    return Turn(text, tuple(request.calls(values, state)), request, values)


def _values(rng: random.Random, backend: str, state: dict[str, Any]) -> Arguments:
    """Values that make sense in this state."""
    if backend == "GorillaFileSystem":
        contents = state["root"]["desk"]["contents"]
        files = [name for name, item in contents.items() if item["type"] == "file"]
        folders = [name for name, item in contents.items() if item["type"] == "directory"]
        return {"file": rng.choice(files), "folder": rng.choice(folders)}
    if backend == "TicketAPI":
        return {
            "number": rng.choice(state["ticket_queue"])["id"],
            "word": rng.choice(CITIES),
            "team": rng.choice(TEAMS),
        }
    names = list(state["user_map"])
    strangers = [name for name in FIRST_NAMES if name not in names]
    return {
        "name": rng.choice(names),
        "word": rng.choice(CITIES),
        "new": rng.choice(strangers),
    }


def _state(rng: random.Random, backend: str) -> dict[str, Any]:
    if backend == "GorillaFileSystem":
        contents: dict[str, Any] = {
            name: {"type": "directory", "contents": {}} for name in rng.sample(WINGS, 2)
        }
        for team in rng.sample(TEAMS, 3):
            contents[f"{team}.txt"] = {"type": "file", "content": rng.choice(CITIES)}
        return {"root": {"desk": {"type": "directory", "contents": contents}}}
    if backend == "TicketAPI":
        user = rng.choice(FIRST_NAMES)
        numbers = sorted(rng.sample(ID_NUMBERS, 3))
        return {
            "ticket_queue": [
                {
                    "id": number,
                    "title": rng.choice(TEAMS),
                    "description": "",
                    "status": "Open",
                    "priority": 1,
                    "created_by": user,
                }
                for number in numbers
            ],
            "ticket_counter": 100,
            "current_user": user,
        }
    users = rng.sample(FIRST_NAMES, 4)
    ids = [f"U-{number}" for number in rng.sample(ID_NUMBERS, 4)]
    return {
        "user_count": 4,
        "user_map": dict(zip(users, ids, strict=True)),
        "inbox": [{user: rng.choice(CITIES)} for user in ids],
        "message_count": 4,
        "current_user": ids[0],
    }


def _lines(rows: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)
