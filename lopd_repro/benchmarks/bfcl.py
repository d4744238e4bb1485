"""BFCL multi-turn through its official package: settings in, one row per task out.

The package lives in an environment of its own and runs there, in the sandbox, with the served
model as its only network (launch.py). It asks the model, plays the calls on its simulated backends
and checks the outcome; this file starts it, keeps what has finished, and reads its files.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lopd_repro.benchmarks.bfcl_data import (
    CATEGORIES,
    OFFICIAL_TASKS,
    RELEASES,
    Environment,
    choose,
    copy_tasks,
    default_python,
    find_environment,
    task_ids,
)
from lopd_repro.benchmarks.bfcl_mini import TASKS_PER_CATEGORY
from lopd_repro.benchmarks.bfcl_results import FINISHED, Results
from lopd_repro.errors import UserError
from lopd_repro.files import write_json, write_text
from lopd_repro.sandbox import Limits, run
from lopd_repro.serving.settings import Endpoint

CHOICES = {
    "release": tuple(RELEASES),
    "suite": ("mini", "official"),
    "handler": ("qwen_fc", "olmo3"),
    "history": ("official", "with_calls"),
    "tools_in": ("template", "system"),
    "overflow": ("refuse", "zero"),
}

# What the official code fixes; a cell made with another value says so.
OFFICIAL: dict[str, Any] = {"history": "official", "steps_per_turn": 20, "max_new_tokens": 4096}


@dataclass(frozen=True)
class Settings:
    """How BFCL is run. What the official code fixes has its official value as default.

    release: `v3` (bfcl-eval 2025.7.17, the paper's version) or `v4` (2026.3.23).
    suite: `official`, or `mini`, this project's own small tasks in the same form.
    model: key in the package's table of models. handler: `qwen_fc`, the official one of Qwen3,
    or `olmo3`, ours (the package has none).
    temperature: of every request; top-p and top-k are the server's.
    categories: which of the four. tasks, tasks_per_category: a part of them, for a check; such a
    run is marked `partial`.
    steps_per_turn: replies within one user turn before a task is given up.
    max_new_tokens: of one reply.
    history: `official` is what the release does: v3 leaves the model's own calls out of the prompt
    of the next step (the turn is empty), v4 renders them. `with_calls` renders them under v3 too.
    tools_in: for olmo3, `template` hands tools to the served chat template, `system` writes them
    into a system message, for a template that shows none.
    overflow: a conversation longer than the model's context is an error (`refuse`) or a failed
    task (`zero`), as which the official checker counts it.
    threads: requests at once; the v3 release fixes 100 for qwen_fc.
    python: interpreter of the environment; `.environments/bfcl-RELEASE/bin/python` if empty.
    """

    model: str
    release: str = "v3"
    suite: str = "official"
    handler: str = "qwen_fc"
    temperature: float = 0.7
    categories: tuple[str, ...] = CATEGORIES
    tasks: tuple[str, ...] = ()
    tasks_per_category: int = 0
    steps_per_turn: int = 20
    max_new_tokens: int = 4096
    history: str = "official"
    tools_in: str = "template"
    overflow: str = "refuse"
    threads: int = 100
    python: str = ""
    memory_mb: int = 8192
    cpu_seconds: float = 36000.0
    wall_seconds: float = 86400.0

    def __post_init__(self) -> None:
        for name, allowed in CHOICES.items():
            if getattr(self, name) not in allowed:
                found = getattr(self, name)
                raise UserError(f"benchmark.{name}: found {found!r}, allowed: {', '.join(allowed)}")
        unknown = [category for category in self.categories if category not in CATEGORIES]
        if unknown or not self.categories:
            raise UserError(f"benchmark.categories: allowed are {', '.join(CATEGORIES)}")


@dataclass(frozen=True)
class Asked:
    """The served model, and the folder that holds its configuration and tokenizer."""

    endpoint: Endpoint
    checkpoint: Path


class Bfcl:
    """The benchmark of one group of settings; `folder` holds launch.py and the mini-suite."""

    name = "bfcl"

    def __init__(self, settings: Settings, folder: Path) -> None:
        self.settings = settings
        self.folder = folder.resolve()
        self.release = RELEASES[settings.release]
        mini = settings.suite == "mini"
        self.environment = self._environment()
        self.source = self.folder / "data" / "mini" if mini else self.environment.package / "data"
        self._prefix = "BFCL_v3" if mini else self.release.prefix
        count = TASKS_PER_CATEGORY if mini else OFFICIAL_TASKS
        everything = [
            task
            for category in settings.categories
            for task in task_ids(self.source, self._prefix, category, count)
        ]
        self.ids = choose(everything, settings.tasks, settings.tasks_per_category)
        self.partial = len(self.ids) < len(everything) or set(settings.categories) != set(
            CATEGORIES
        )
        package = f"bfcl-eval {self.release.version}"
        changed = [
            f"{k} {getattr(settings, k)}" for k, v in OFFICIAL.items() if self._differs(k, v)
        ]
        self.scorer = f"{package}, {', '.join(changed)}" if changed else package
        self.data = (
            f"mini-suite (BFCL {self.release.name} form)"
            if mini
            else f"BFCL {self.release.name} ({package})"
        )
        if self.partial:
            self.data = f"partial: {len(self.ids)} tasks of {self.data}"

    def _differs(self, setting: str, official: Any) -> bool:
        found = getattr(self.settings, setting)
        return bool(found != official) and (setting, self.release.name) != ("history", "v4")

    def expected(self) -> list[tuple[str, int]]:
        """Every task once, category by category."""
        return [(task, 0) for task in self.ids]

    def run(self, endpoint: Endpoint, checkpoint: Path, state: Path) -> list[dict[str, Any]]:
        """Ask, check, read. Finished tasks in `state` are not asked again."""
        project = state.resolve() / "project"
        results = Results(
            project, self.release, self.settings.model, overflow=self.settings.overflow
        )
        finished = results.resume(self.ids)
        if len(finished) < len(self.ids):
            _must_answer(endpoint)
        asked = Asked(endpoint, checkpoint.resolve())
        outcome = self._launch(["generate", "evaluate"], state.resolve(), asked)
        results.refuse_failures(self.ids)
        if outcome:
            done = len(results.entries(self.ids))
            raise UserError(
                f"bfcl: the official command stopped ({outcome}); {done} of {len(self.ids)} tasks "
                f"have finished and are kept for the next attempt; see the logs in {project}"
            )
        return results.rows(self.ids)

    def judge(self, answers: Mapping[str, list[list[str]]], state: Path) -> list[dict[str, Any]]:
        """Rows of given answers (task id to replies, turn by turn): the checker without a model."""
        project = state.resolve() / "project"
        results = Results(project, self.release, self.settings.model)
        lines = [json.dumps({"id": task, "result": answers[task]}) + "\n" for task in self.ids]
        write_text(project / FINISHED, "".join(lines))
        results.resume(self.ids)
        outcome = self._launch(["evaluate"], state.resolve(), None)
        if outcome:
            raise UserError(f"bfcl: the official checker stopped ({outcome}); see {project}")
        return results.rows(self.ids)

    def _environment(self) -> Environment:
        root = self.folder.parent.parent
        given = self.settings.python
        python = root / given if given else default_python(root, self.release)
        return find_environment(python, self.release)

    def _launch(self, steps: list[str], state: Path, asked: Asked | None) -> str:
        """Run the launcher in the sandbox; "" or what went wrong."""
        data, readable = self._data(state)
        settings, project = self.settings, state / "project"
        job = {
            "project": str(project),
            "steps": steps,
            "model": settings.model,
            "categories": list(settings.categories),
            "url": asked.endpoint.url if asked else "",
            "served": asked.endpoint.model if asked else "",
            "model_path": _model_path(asked, project) if asked else "",
            "data": str(data) if data else "",
            "handler": settings.handler,
            "temperature": settings.temperature,
            "threads": settings.threads,
            "steps_per_turn": settings.steps_per_turn,
            "max_new_tokens": settings.max_new_tokens,
            "history": settings.history,
            "tools_in": settings.tools_in,
        }
        write_json(project / "job.json", job)
        if asked:
            readable = [*readable, asked.checkpoint]
        scratch = state / "scratch"
        scratch.mkdir(exist_ok=True)
        outcome = run(
            [
                str(self.environment.python),
                str(self.folder / "launch.py"),
                str(project / "job.json"),
            ],
            Limits(
                memory_mb=settings.memory_mb,
                cpu_seconds=settings.cpu_seconds,
                wall_seconds=settings.wall_seconds,
                processes=max(settings.threads, 100) + 100,
                open_files=4096,
                file_mb=4096,
                output_kb=1024,
            ),
            scratch=scratch,
            readable=[self.folder, *readable],
            writable=[project],
            environment={"OMP_NUM_THREADS": "1", "HF_HOME": str(scratch)},
            endpoint=asked.endpoint.url if asked else None,
        )
        write_json(state / "sandbox.json", {"isolation": outcome.isolation})
        if outcome.verdict == "ok" and outcome.code == 0:
            return ""
        said = outcome.stderr.decode(errors="replace").strip().splitlines()
        return f"{outcome.verdict}, status {outcome.code}: {said[-1] if said else 'no message'}"

    def _data(self, state: Path) -> tuple[Path | None, list[Path]]:
        """The folder that takes the place of the package's data, if any, and what to read."""
        whole = not self.partial and self._prefix == self.release.prefix
        if whole and self.settings.suite == "official":
            return None, []
        if whole:
            return self.source, [self.source]
        target = state / "data"
        copy_tasks(self.source, self._prefix, target, self.release, self.ids)
        return target, [target]


def _model_path(asked: Asked, project: Path) -> str:
    """A path to the tokenizer that equals the served name, since the handler sends it as that."""
    served = asked.endpoint.model
    if served != str(asked.checkpoint):
        link = project / served
        link.parent.mkdir(parents=True, exist_ok=True)
        link.unlink(missing_ok=True)
        link.symlink_to(asked.checkpoint)
    return served


def _must_answer(endpoint: Endpoint) -> None:
    """The official command would wait for ever for an endpoint that is not there."""
    try:
        with urllib.request.urlopen(f"{endpoint.url}/models", timeout=30) as answer:
            json.load(answer)
    except (OSError, ValueError) as error:
        raise UserError(f"bfcl: {endpoint.url} does not answer ({error})") from None
