"""The mini-suite as a benchmark: many conversations in flight, one row per task and repeat."""

from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from lopd_repro.benchmarks.ace.dialogue import Dialogue, DialogueSettings
from lopd_repro.benchmarks.ace.scorer import Unmatched, check_option, score
from lopd_repro.benchmarks.ace.suite import read_suite
from lopd_repro.benchmarks.ace.tasks import CATEGORIES, Category, Task
from lopd_repro.benchmarks.ace.user import SCRIPTED, ModelUser, ScriptedUser, User
from lopd_repro.benchmarks.client import Client, EndpointError, PromptTooLongError, Sampling
from lopd_repro.benchmarks.journal import Journal
from lopd_repro.errors import UserError
from lopd_repro.experience.endpoint import ChatEndpoint, EndpointSettings
from lopd_repro.files import digest_json
from lopd_repro.serving.settings import Endpoint

DATA = "mini-suite (ACEBench agent form)"
SCORER = "lopd-repro agent scores"
OVERFLOW = ("end", "refuse")
_MANY_FAILURES = 8  # a dead endpoint is not asked for every task


@dataclass(frozen=True)
class MiniSettings:
    """The mini-suite's options.

    limit: first tasks of each category only, 0 for all. in_flight: conversations at once.
    user: endpoint of a language model that plays the user; empty for the scripted user.
    overflow: a conversation that no longer fits the model's context is scored where it stands
    (`end`), or refuses the cell (`refuse`). unmatched: see `scorer`.
    """

    repeats: int = 1
    seed: int = 0
    limit: int = 0
    in_flight: int = 32
    categories: tuple[Category, ...] = CATEGORIES
    sampling: Sampling = field(default_factory=Sampling)
    dialogue: DialogueSettings = field(default_factory=DialogueSettings)
    user: EndpointSettings | None = None
    overflow: str = "end"
    unmatched: Unmatched = "unchecked"

    def __post_init__(self) -> None:
        for name, lowest in (("repeats", 1), ("limit", 0), ("in_flight", 1)):
            if getattr(self, name) < lowest:
                raise UserError(
                    f"acebench.{name}: found {getattr(self, name)}, allowed: {lowest} or more"
                )
        unknown = [name for name in self.categories if name not in CATEGORIES]
        if unknown or not self.categories:
            raise UserError(
                f"acebench.categories: found {list(self.categories)!r}, "
                f"allowed: {', '.join(CATEGORIES)}"
            )
        if self.overflow not in OVERFLOW:
            raise UserError(
                f"acebench.overflow: found {self.overflow!r}, allowed: {', '.join(OVERFLOW)}"
            )
        check_option(self.unmatched)


class MiniSuite:
    """Runs and scores the tasks of a data folder."""

    name = "acebench"
    scorer = SCORER

    def __init__(self, folder: Path, settings: MiniSettings) -> None:
        self.settings = settings
        tasks, self._answers, digest = read_suite(folder)
        self._tasks: dict[str, Task] = {}
        for category in settings.categories:
            chosen = [task for task in tasks if task.category == category]
            self._tasks |= {t.task_id: t for t in chosen[: settings.limit or None]}
        self.partial = len(self._tasks) < len(tasks)
        part = f"partial: {len(self._tasks)} tasks of " if self.partial else ""
        self.data = f"{part}{DATA}, user: {self.user}"
        self._user = ChatEndpoint(settings.user) if settings.user else None
        # What does not change a result may change between two attempts.
        kept = asdict(settings) | {"in_flight": 0, "limit": 0, "repeats": 0, "categories": 0}
        self._digest = digest_json([kept, digest])[:16]

    def expected(self) -> list[tuple[str, int]]:
        """(task_id, repeat) of every row, in order."""
        return [(name, r) for r in range(self.settings.repeats) for name in self._tasks]

    def run(self, endpoint: Endpoint, checkpoint: Path, state: Path) -> list[dict[str, Any]]:
        """Rows in the order of `expected`; finished tasks in `state` are not asked again.

        `UserError` naming the tasks if the endpoint failed on any; the others are kept.
        """
        journal = Journal(state / f"mini-{self._digest}.jsonl")
        open_tasks = [key for key in self.expected() if key not in journal.rows]
        client = Client(endpoint.url, endpoint.model, self.settings.sampling)
        failures: dict[str, str] = {}

        def one(key: tuple[str, int]) -> None:
            if len(failures) >= _MANY_FAILURES:
                return
            try:
                journal.add(self._play(client, *key))
            except (EndpointError, PromptTooLongError, UserError) as error:
                failures[f"{key[0]}#{key[1]}"] = str(error)

        with ThreadPoolExecutor(self.settings.in_flight) as pool:
            list(pool.map(one, open_tasks))
        if failures:
            names = sorted(failures)
            shown = ", ".join(names[:5]) + (" ..." if len(names) > 5 else "")
            raise UserError(
                f"acebench: {endpoint.url} failed on {len(names)} of {len(self.expected())} "
                f"tasks ({shown}), {len(journal.rows)} are kept: {failures[names[0]]}"
            )
        return [journal.rows[key] for key in self.expected()]

    def _play(self, client: Client, task_id: str, repeat: int) -> dict[str, Any]:
        task = self._tasks[task_id]
        user = self._user_of(task, repeat)
        dialogue = Dialogue(task, user, self.settings.dialogue)
        tokens = longest = 0
        while not dialogue.done:
            seed = self._seed(task_id, repeat, dialogue.steps)
            try:
                reply = client.ask(dialogue.messages(), seed)
            except PromptTooLongError:
                if self.settings.overflow == "refuse":
                    raise
                dialogue.done = "context length"
                break
            tokens += reply.tokens
            longest = max(longest, reply.prompt_tokens + reply.tokens)
            dialogue.reply(reply.text)
        verdict = score(
            dialogue.state(), dialogue.texts, self._answers[task_id], self.settings.unmatched
        )
        return {
            "task_id": task_id,
            "repeat": repeat,
            "category": task.category,
            "score": verdict.end_to_end,
            "process": verdict.process,
            "status": "ok",
            "ended": dialogue.done,
            "error_type": verdict.error_type,
            "steps": dialogue.steps,
            "calls": dialogue.calls,
            "tokens": tokens,
            "longest": longest,
            "user": user.name if user else "",
        }

    def _user_of(self, task: Task, repeat: int) -> User | None:
        if task.category == "multi_step":
            return None
        if self._user is None:
            return ScriptedUser(task)
        return ModelUser(task, self._user, self._seed(task.task_id, repeat, -1))

    def _seed(self, task_id: str, repeat: int, step: int) -> int:
        text = f"{self.settings.seed}/{task_id}/{repeat}/{step}"
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big") >> 1

    @property
    def user(self) -> str:
        """Name of the user simulator."""
        if self.settings.user is None:
            return SCRIPTED
        return f"{self.settings.user.model} at temperature {self.settings.user.temperature:g}"
