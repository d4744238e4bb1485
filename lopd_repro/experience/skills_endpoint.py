"""Skills written by a model behind an endpoint, as in Skill-SD's paper."""

from __future__ import annotations

import json
from collections.abc import Sequence

from lopd_repro.errors import UserError
from lopd_repro.experience.endpoint import ChatEndpoint
from lopd_repro.experience.skills import PARTS, Attempt, Skill


class EndpointWriter:
    """Asks for a JSON object with `works`, `avoid` and `workflow`.

    An answer that is no such object is asked for again, `tries` times in all; then there is no
    skill.
    """

    def __init__(self, endpoint: ChatEndpoint, request: str, tries: int = 2) -> None:
        if not request.strip():
            raise UserError("prompts.skill_request: it is empty, but skills come from an endpoint")
        self._endpoint = endpoint
        self._request = request
        self._tries = tries

    def write(self, task: str, attempts: Sequence[Attempt]) -> Skill | None:
        """One skill from one task's rollouts."""
        shown = [
            f"Rollout {number}, reward {attempt.reward:.2f}:\n{attempt.trace or '(no call ran)'}"
            for number, attempt in enumerate(attempts, 1)
        ]
        messages = [
            {"role": "system", "content": self._request},
            {"role": "user", "content": "\n\n".join([f"Task: {task}", *shown])},
        ]
        for _ in range(self._tries):
            skill = parse_skill(self._endpoint.reply(messages).get("content") or "")
            if skill is not None:
                return skill
        return None


def parse_skill(text: str) -> Skill | None:
    """The skill in the outermost braces of an answer; None unless all parts are texts."""
    start, stop = text.find("{"), text.rfind("}")
    try:
        found = json.loads(text[start : stop + 1])
    except ValueError:
        return None
    if not isinstance(found, dict) or not all(isinstance(found.get(p), str) for p in PARTS):
        return None
    return Skill(*(found[part].strip() for part in PARTS))
