"""One reply per task and repeat from a served model, many at once, kept as they come.

For benchmarks of a single turn: the caller brings each task's messages, and judges the replies.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lopd_repro.benchmarks.client import Client, EndpointError, PromptTooLongError, Sampling
from lopd_repro.benchmarks.journal import Journal
from lopd_repro.errors import UserError
from lopd_repro.files import digest_json
from lopd_repro.serving.settings import Endpoint

Messages = Sequence[Mapping[str, str]]
Key = tuple[str, int]

OVERFLOW = ("refuse", "zero")
_MANY_FAILURES = 8


@dataclass(frozen=True)
class Answer:
    """A reply; `overflow` says that the prompt is too long for the model, then `text` is empty."""

    text: str
    prompt_tokens: int = 0
    tokens: int = 0
    overflow: bool = False


@dataclass(frozen=True)
class Asking:
    """How tasks are asked.

    overflow: a prompt beyond the model's context is an error (`refuse`) or an empty answer
    (`zero`). seed: of the draws, with the task and the repeat. in_flight: requests at once.
    """

    sampling: Sampling
    repeats: int = 1
    seed: int = 0
    in_flight: int = 64
    overflow: str = "refuse"

    def __post_init__(self) -> None:
        if self.overflow not in OVERFLOW:
            raise UserError(
                f"benchmark.overflow: found {self.overflow!r}, allowed: {', '.join(OVERFLOW)}"
            )
        for name in ("repeats", "in_flight"):
            if getattr(self, name) < 1:
                raise UserError(
                    f"benchmark.{name}: found {getattr(self, name)}, allowed: 1 or more"
                )


def ask_all(
    name: str, endpoint: Endpoint, tasks: Mapping[str, Messages], asking: Asking, journal: Path
) -> dict[Key, Answer]:
    """Answers by (task id, repeat), repeat by repeat in the order of the tasks.

    What the journal holds for the same messages and sampling is not asked again. If the endpoint
    fails, `UserError` names the tasks; the others are kept in the journal.
    """
    kept = Journal(journal)
    sampling = [asking.sampling.temperature, asking.sampling.top_p, asking.sampling.top_k]
    settings = [*sampling, asking.sampling.max_tokens, asking.seed, endpoint.model]
    marks = {task: digest_json([list(messages), settings]) for task, messages in tasks.items()}
    keys = [(task, repeat) for repeat in range(asking.repeats) for task in tasks]
    client = Client(endpoint.url, endpoint.model, asking.sampling)
    failures: dict[str, str] = {}

    def one(key: Key) -> None:
        if len(failures) >= _MANY_FAILURES:
            return
        task, repeat = key
        row: dict[str, Any] = {"task_id": task, "repeat": repeat, "asked": marks[task]}
        try:
            reply = client.ask([dict(m) for m in tasks[task]], _seed(asking.seed, task, repeat))
            row |= {"text": reply.text, "prompt_tokens": reply.prompt_tokens}
            row |= {"tokens": reply.tokens, "overflow": False}
        except (EndpointError, PromptTooLongError) as error:
            if isinstance(error, EndpointError) or asking.overflow == "refuse":
                failures[f"{task}#{repeat}"] = str(error)
                return
            row |= {"text": "", "prompt_tokens": 0, "tokens": 0, "overflow": True}
        kept.add(row)

    missing = [k for k in keys if k not in kept.rows or kept.rows[k].get("asked") != marks[k[0]]]
    with ThreadPoolExecutor(asking.in_flight) as pool:
        list(pool.map(one, missing))
    if failures:
        names = sorted(failures)
        shown = ", ".join(names[:5]) + (" ..." if len(names) > 5 else "")
        done = len(keys) - sum(key not in kept.rows for key in keys)
        raise UserError(
            f"{name}: {endpoint.url} failed on {len(names)} of {len(keys)} tasks ({shown}), "
            f"{done} are kept: {failures[names[0]]}"
        )
    return {key: _answer(kept.rows[key]) for key in keys}


def _answer(row: dict[str, Any]) -> Answer:
    return Answer(row["text"], row["prompt_tokens"], row["tokens"], row["overflow"])


def _seed(seed: int, task: str, repeat: int) -> int:
    """A request's own seed, so that neither order nor batch decides a draw."""
    text = f"{seed}/{task}/{repeat}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big") >> 1
