"""`lopd-repro tasks`: task files, splits and the do-nothing floor.

    lopd-repro tasks --settings '{"source": "tiny", ...}' --out results/tasks/tool_use

Writes `environments.jsonl`, `scenarios.jsonl` (EnvScaler form), `splits.json` (ids and content
hashes) and `noop.json` (do-nothing reward of every task).
"""

from __future__ import annotations

import argparse
import shutil
from dataclasses import dataclass, field
from pathlib import Path

from lopd_repro.data.envscaler import load_task_set
from lopd_repro.data.splits import make_splits
from lopd_repro.data.tiny import make_tiny_tasks
from lopd_repro.envs import EnvPool, ToolEpisodes
from lopd_repro.errors import UserError
from lopd_repro.files import read_json, write_json
from lopd_repro.settings import build, read_settings


@dataclass(frozen=True)
class TaskSettings:
    """Where tasks come from and how many each split gets.

    source: `tiny` makes them, `files` reads official-form files. `test_ids` is a JSON file with
    the ids of the held-out test tasks; without it `sizes.test` tasks are held out by the seed.
    """

    source: str
    seed: int
    sizes: dict[str, int] = field(default_factory=dict)
    environments: str = ""
    scenarios: str = ""
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
    if settings.source == "tiny":
        make_tiny_tasks(out, settings.seed, settings.sizes)
    elif settings.source == "files":
        for source, name in (
            (settings.environments, "environments.jsonl"),
            (settings.scenarios, "scenarios.jsonl"),
        ):
            if not Path(source).is_file():
                raise UserError(f"tasks.{name.removesuffix('.jsonl')}: no file {source!r}")
            shutil.copyfile(source, out / name)
    else:
        raise UserError(f"tasks.source: found {settings.source!r}, allowed: tiny, files")
    environments, scenarios = out / "environments.jsonl", out / "scenarios.jsonl"
    test = read_json(settings.test_ids) if settings.test_ids else settings.sizes["test"]
    split_file = out / "splits.json"
    split_file.unlink(missing_ok=True)
    make_splits(
        environments,
        scenarios,
        split_file,
        seed=settings.seed,
        validation=settings.sizes["validation"],
        test=test,
    )
    tasks = load_task_set(environments, scenarios)
    with EnvPool(1) as pool:
        episodes = ToolEpisodes(pool, variant=settings.variant)  # type: ignore[arg-type]
        pairs = [(task, tasks.environments[task.env_id]) for task in tasks.tasks.values()]
        floor = dict(zip(tasks.tasks, episodes.noop_rewards(pairs), strict=True))
    write_json(out / "noop.json", {"noop_reward": floor})
    return 0
