"""`lopd-repro tasks`: task files, splits and the do-nothing floor.

    lopd-repro tasks --settings '{"source": "tiny", ...}' --out results/tasks/tool_use
    lopd-repro tasks --settings '{"domain": "coding", "source": "tiny", ...}' \
        --out results/tasks/coding

Writes the task files (`environments.jsonl` and `scenarios.jsonl` in EnvScaler's form, or
`tasks.jsonl` in the form of DeepCoder's TACO subset), `splits.json` (ids and content hashes) and
`noop.json` (do-nothing reward of every task). For programming tasks from files, `dropped.json`
lists the records that cannot be scored.
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path

from lopd_repro.data.coding.files import load_code_tasks, write_code_tasks
from lopd_repro.data.coding.schema import CodeTask
from lopd_repro.data.coding.splits import make_code_splits
from lopd_repro.data.envscaler import load_task_set
from lopd_repro.data.splits import make_splits
from lopd_repro.data.tiny import make_tiny_tasks
from lopd_repro.data.tiny_coding import plain_tasks, tiny_tasks
from lopd_repro.envs import EnvPool, ToolEpisodes
from lopd_repro.errors import UserError
from lopd_repro.files import read_json, write_json
from lopd_repro.sandbox.compare import same_output
from lopd_repro.settings import build, read_settings


@dataclass(frozen=True)
class TaskSettings:
    """Where tasks come from and how many each split gets.

    source: `tiny` makes them, `plain` makes programming tasks in plain English, `files` reads
    official-form files: `environments` and `scenarios` for tool use, `files` (Parquet or JSON) for
    coding. `test_ids` is a JSON file with the ids of
    the held-out test tasks; without it `sizes.test` tasks are held out by the seed. unscorable:
    `refuse` or `drop` programming tasks that cannot be scored.
    """

    source: str
    seed: int
    domain: str = "tool_use"
    sizes: dict[str, int] = field(default_factory=dict)
    environments: str = ""
    scenarios: str = ""
    files: list[str] = field(default_factory=list)
    unscorable: str = "refuse"
    test_ids: str = ""
    variant: str = "envscaler"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of this command."""
    parser.add_argument("--settings", required=True)
    parser.add_argument("--out", type=Path, required=True)


def run(args: argparse.Namespace) -> int:
    """Make the files."""
    settings = build(TaskSettings, read_settings(args.settings), "tasks")
    out: Path = args.out
    out.mkdir(parents=True, exist_ok=True)
    for name in ("validation", "test"):
        if name not in settings.sizes:
            raise UserError(f"tasks.sizes.{name}: missing")
    if settings.domain not in MAKERS:
        raise UserError(f"domain: found {settings.domain!r}, allowed: {', '.join(MAKERS)}")
    sources = ("files", *(GENERATORS if settings.domain == "coding" else ("tiny",)))
    if settings.source not in sources:
        raise UserError(f"tasks.source: found {settings.source!r}, allowed: {', '.join(sources)}")
    test = read_json(settings.test_ids) if settings.test_ids else settings.sizes["test"]
    (out / "splits.json").unlink(missing_ok=True)
    write_json(out / "noop.json", {"noop_reward": MAKERS[settings.domain](settings, out, test)})
    return 0


def _tool_use(settings: TaskSettings, out: Path, test: int | Collection[str]) -> dict[str, float]:
    """Scenarios and environments; returns each task's reward where nothing is done."""
    environments, scenarios = out / "environments.jsonl", out / "scenarios.jsonl"
    if settings.source == "tiny":
        make_tiny_tasks(out, settings.seed, settings.sizes)
    else:
        for source, path in (
            (settings.environments, environments),
            (settings.scenarios, scenarios),
        ):
            if not Path(source).is_file():
                raise UserError(f"tasks.{path.stem}: no file {source!r}")
            shutil.copyfile(source, path)
    make_splits(
        environments,
        scenarios,
        out / "splits.json",
        seed=settings.seed,
        validation=settings.sizes["validation"],
        test=test,
    )
    tasks = load_task_set(environments, scenarios)
    with EnvPool(1) as pool:
        episodes = ToolEpisodes(pool, variant=settings.variant)  # type: ignore[arg-type]
        pairs = [(task, tasks.environments[task.env_id]) for task in tasks.tasks.values()]
        return dict(zip(tasks.tasks, episodes.noop_rewards(pairs), strict=True))


def _coding(settings: TaskSettings, out: Path, test: int | Collection[str]) -> dict[str, float]:
    """Programming tasks; returns the reward of each task's empty program."""
    path = out / "tasks.jsonl"
    if settings.source in GENERATORS:
        made = GENERATORS[settings.source](settings.seed, sum(settings.sizes.values()))
        write_code_tasks(made.values(), path)
    else:
        if not settings.files:
            raise UserError("tasks.files: missing, a list of Parquet or JSON files")
        if settings.unscorable not in ("refuse", "drop"):
            raise UserError(
                f"tasks.unscorable: found {settings.unscorable!r}, allowed: refuse, drop"
            )
        found = load_code_tasks(settings.files, settings.unscorable)  # type: ignore[arg-type]
        write_code_tasks(found.tasks.values(), path)
        write_json(out / "dropped.json", list(found.dropped))
    make_code_splits(
        path,
        out / "splits.json",
        seed=settings.seed,
        validation=settings.sizes["validation"],
        test=test,
    )
    tasks = load_code_tasks(path).tasks
    # An empty program prints nothing, whatever it reads, and defines no function.
    return {
        task_id: float(task.kind == "stdin" and all(same_output("", c.output) for c in task.cases))
        for task_id, task in tasks.items()
    }


MAKERS = {"tool_use": _tool_use, "coding": _coding}
GENERATORS: dict[str, Callable[[int, int], dict[str, CodeTask]]] = {
    "tiny": tiny_tasks,
    "plain": plain_tasks,
}
