"""Who answers the agent in multi-turn tasks.

`ScriptedUser` is a few rules over a task's script; `ModelUser` asks an OpenAI-compatible
endpoint. Either way `name` goes into every row.
"""

from __future__ import annotations

import re
from typing import Any, Protocol

from lopd_repro.benchmarks.ace.tasks import Task
from lopd_repro.experience.endpoint import ChatEndpoint

FINISH = "finish conversation"
SCRIPTED = "scripted user v1"
_ASKED = {
    "owner": re.compile(r"\b(who|whom|whose|name)\b", re.IGNORECASE),
    "city": re.compile(r"\b(city|where|destination)\b", re.IGNORECASE),
    "meal": re.compile(r"\b(meal|dish|food)\b", re.IGNORECASE),
}
_FINISHED = re.compile(r"\b(completed?|done|finished)\b", re.IGNORECASE)
_UNKNOWN, _GO_ON = "I do not know.", "Please go on."
_INSTRUCTION = (
    "You play a person who asks an assistant for help. Write one short message at a time, in the "
    "person's words, and invent nothing. When everything below is done, write only "
    f"'{FINISH}'.\n\n"
)


class User(Protocol):
    """Answers the agent; ends the conversation with `finish conversation`."""

    name: str

    def first(self) -> str: ...

    def respond(self, text: str) -> str: ...


class ScriptedUser:
    """Says a goal's opening, its details when a question names them, then the next goal."""

    name = SCRIPTED

    def __init__(self, task: Task) -> None:
        self._goals = task.script
        self._at = 0

    def first(self) -> str:
        """The first goal's opening."""
        return str(self._goals[0]["opening"])

    def respond(self, text: str) -> str:
        """The answer to an agent text that is no call."""
        if "?" in text:
            answers = self._goals[self._at]["answers"]
            asked = [slot for slot, pattern in _ASKED.items() if pattern.search(text)]
            told = [str(answers[slot]) for slot in asked if slot in answers]
            return " ".join(told) or _UNKNOWN
        if _FINISHED.search(text):
            if self._at + 1 == len(self._goals):
                return FINISH
            self._at += 1
            return str(self._goals[self._at]["opening"])
        return _GO_ON


class ModelUser:
    """A language model that gets the task's instruction."""

    def __init__(self, task: Task, endpoint: ChatEndpoint, seed: int) -> None:
        settings = endpoint.settings
        self.name = f"{settings.model} at temperature {settings.temperature:g}"
        self._endpoint = endpoint
        self._seed = seed
        self._messages: list[dict[str, Any]] = [
            {"role": "system", "content": _INSTRUCTION + task.question},
            {"role": "user", "content": "How can I help you?"},
        ]

    def first(self) -> str:
        """The model's opening."""
        reply = self._endpoint.reply(self._messages, seed=self._seed)
        text = str(reply.get("content") or "").strip()
        self._messages.append({"role": "assistant", "content": text})
        return text

    def respond(self, text: str) -> str:
        """The model's answer."""
        self._messages.append({"role": "user", "content": text})
        return self.first()
