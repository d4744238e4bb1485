"""One conversation of agent, user and apps, with the official loop's rules.

Multi-step: the agent's text is run as calls until it says a finishing text; text that is no call
list is answered with an error. Multi-turn: a call list is run, any other text goes to the user,
who ends the conversation. Both end after `max_dialog_turns` messages (40, as in the official
harness) or `max_steps` agent texts (20, as in the paper).

Departures: a conversation may end at its first message already; the apps' state is snapshotted
once, at the end; a call that fails in one list does not hide the answers of the others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from lopd_repro.benchmarks.ace.calls import looks_like_calls, parse_calls, strip_thoughts
from lopd_repro.benchmarks.ace.tasks import Task
from lopd_repro.benchmarks.ace.user import FINISH, User
from lopd_repro.benchmarks.ace.worlds import Phone, documentation
from lopd_repro.errors import UserError

Message = dict[str, Any]
RESULT = "execution result:"
MALFORMED = "Error: Invalid action"
TASK_COMPLETED = "Task Completed"
DEFAULT_SYSTEM = "tools:\n{names}"
LAYOUTS = ("chat", "transcript")


@dataclass(frozen=True)
class DialogueSettings:
    """How tasks are shown and when they end.

    system: text of the system message with `{names}` (function names, one a line) or
    `{functions}` (their documentation). layout: `chat` sends past messages as chat messages,
    `transcript` sends them as text in one user message, which is the official form. finish: what
    ends a multi-step task. strip_think: take reasoning out of agent texts.
    """

    system: str = DEFAULT_SYSTEM
    layout: Literal["chat", "transcript"] = "chat"
    finish: tuple[str, ...] = (TASK_COMPLETED, FINISH)
    strip_think: bool = True
    max_dialog_turns: int = 40
    max_steps: int = 20

    def __post_init__(self) -> None:
        if self.layout not in LAYOUTS:
            raise UserError(
                f"acebench.dialogue.layout: found {self.layout!r}, allowed: {', '.join(LAYOUTS)}"
            )
        for name in ("max_dialog_turns", "max_steps"):
            if getattr(self, name) < 1:
                raise UserError(f"acebench.dialogue.{name}: allowed: 1 or more")


class Dialogue:
    """A running conversation; `done` says why it ended, empty while it goes on."""

    def __init__(self, task: Task, user: User | None, settings: DialogueSettings) -> None:
        self.task, self.user, self.settings = task, user, settings
        self.done = ""
        self.steps = 0
        self.calls = 0
        self.texts: list[str] = []
        """The agent's texts that went to the apps: what milestones are matched with."""
        self._milestones: list[str] = []
        self._phone = Phone(task.initial_config, task.classes)
        self._ran = False
        self._turns = 0
        first = task.question if user is None else user.first()
        self._history: list[tuple[str, str]] = [("user", first)]

    def messages(self) -> list[Message]:
        """The request's messages."""
        functions = documentation(self.task.classes)
        system = self.settings.system.replace(
            "{names}", "\n".join(function["name"] for function in functions)
        ).replace("{functions}", str(functions))
        start = [{"role": "system", "content": system}] if system else []
        if self.settings.layout == "transcript":
            lines = (f"{who}:{text}" for who, text in self._history)
            return [*start, {"role": "user", "content": "\n".join(lines)}]
        return start + [_message(who, text) for who, text in self._history]

    def reply(self, raw: str) -> None:
        """Take the agent's next text; the apps or the user answer it."""
        text = strip_thoughts(raw) if self.settings.strip_think else raw
        self.steps += 1
        self._say("agent", text)
        if FINISH in text or (self.user is None and text.strip() in self.settings.finish):
            self.done = "finished"
        if not self.done:
            self._answer(text)
        if not self.done and self.steps >= self.settings.max_steps:
            self.done = "step limit"

    def state(self) -> list[dict[str, Any]]:
        """The apps' state; empty if nothing ever reached them, as in the official harness."""
        return self._phone.state() if self._ran else []

    def milestones(self) -> list[str]:
        """The agent's texts whose calls all worked."""
        return list(self._milestones)

    def _answer(self, text: str) -> None:
        try:
            calls = parse_calls(text)
        except ValueError:
            calls = None
        if self.user is not None and (calls is None or not looks_like_calls(text)):
            answer = self.user.respond(text)
            self._say("user", answer)
            if FINISH in answer:
                self.done = "finished"
            return
        self.texts.append(text)
        if calls is None:
            self._say("execution result", MALFORMED)
            return
        self._ran = True
        self.calls += len(calls)
        answers = [self._phone.run(call) for call in calls]
        if not any(isinstance(a, str) or a.get("status") is False for a in answers):
            self._milestones.append(text)
        self._say("execution result", str(answers))

    def _say(self, who: str, text: str) -> None:
        self._history.append((who, text))
        self._turns += 1
        if self._turns >= self.settings.max_dialog_turns and not self.done:
            self.done = "turn limit"


def _message(who: str, text: str) -> Message:
    if who == "agent":
        return {"role": "assistant", "content": text}
    return {"role": "user", "content": text if who == "user" else f"{RESULT}{text}"}
