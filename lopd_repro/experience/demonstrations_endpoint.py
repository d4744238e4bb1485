"""Demonstrations of a stronger model: it acts in the task's own environment, verified by reward.

The model gets the task's first messages and tools as the policy does. Calls it returns in the
API's own form are written out as Qwen3 text, of which the environment runs the first, so the
domain must be set to that protocol. Only episodes whose reward reaches the threshold are kept.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from typing import Any

from lopd_repro.experience.demonstrations import Demonstration
from lopd_repro.experience.endpoint import ChatEndpoint
from lopd_repro.rollout.domain import Domain
from lopd_repro.rollout.episodes import derive_seed

PROTOCOL = "qwen3"


def ask(
    endpoint: ChatEndpoint,
    domain: Domain,
    task_ids: Sequence[str],
    attempts: int,
    threshold: float,
    seed: int,
) -> list[Demonstration]:
    """The first verified episode of each task, at most `attempts` tries a task."""
    found = []
    for task_id in task_ids:
        for attempt in range(attempts):
            episode_seed = derive_seed(seed, "endpoint", task_id, attempt) % 2**31
            reward, records = _episode(endpoint, domain, task_id, episode_seed)
            if reward is not None and reward >= threshold:
                text = domain.trace(records)
                found.append(Demonstration(task_id, text, reward, endpoint.settings.model))
                break
    return found


def _episode(
    endpoint: ChatEndpoint, domain: Domain, task_id: str, seed: int
) -> tuple[float | None, list[dict[str, Any]]]:
    """Reward and records of one episode; the environment's step cap ends it at the latest."""
    opening = domain.opening(task_id)
    messages: list[dict[str, Any]] = opening.messages()
    tools = [t if "function" in t else {"type": "function", "function": t} for t in opening.tools]
    (handle,) = domain.begin([(task_id, seed)])
    records: list[dict[str, Any]] = []
    while True:
        message = endpoint.reply(messages, tools, seed)
        calls = (message.get("tool_calls") or [])[:1]
        (outcome,) = domain.turn([(handle, _as_text(message, calls))])
        records.append(outcome.record)
        if outcome.done:
            return outcome.reward, records
        said: dict[str, Any] = {"role": "assistant", "content": message.get("content") or ""}
        if calls:
            answer = {"role": "tool", "tool_call_id": calls[0].get("id", "call")}
            messages += [{**said, "tool_calls": calls}, {**answer, "content": outcome.observation}]
        else:
            messages += [said, {"role": "user", "content": outcome.observation}]


def _as_text(message: dict[str, Any], calls: list[dict[str, Any]]) -> str:
    text = message.get("content") or ""
    if not calls:
        return text
    function = calls[0].get("function", {})
    arguments = function.get("arguments", {})
    if isinstance(arguments, str):
        # What is no JSON is left as it is: the environment answers with its own error.
        with contextlib.suppress(ValueError):
            arguments = json.loads(arguments or "{}")
    call = json.dumps({"name": function.get("name"), "arguments": arguments})
    return f"{text}\n<tool_call>\n{call}\n</tool_call>".strip()
