"""BFCL's releases, environments and data folders, read without importing the package.

A data folder in the official form holds `BFCL_v3_multi_turn_base.json` and so on, the same names
in `possible_answer/`, and function descriptions in `multi_turn_func_doc/`.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lopd_repro.errors import UserError
from lopd_repro.files import write_text

CATEGORIES = (
    "multi_turn_base",
    "multi_turn_miss_func",
    "multi_turn_miss_param",
    "multi_turn_long_context",
)
OFFICIAL_TASKS = 200


@dataclass(frozen=True)
class Release:
    """A release of bfcl-eval: its version, the prefix of its files, its folder of results."""

    name: str
    version: str
    prefix: str
    group: str

    def data_file(self, category: str) -> str:
        """Name of a category's data file, and of its possible answers."""
        return f"{self.prefix}_{category}.json"


RELEASES = {
    "v3": Release("v3", "2025.7.17", "BFCL_v3", ""),
    "v4": Release("v4", "2026.3.23", "BFCL_v4", "multi_turn"),
}


@dataclass(frozen=True)
class Environment:
    """An installed bfcl-eval: its interpreter and its package folder."""

    python: Path
    package: Path


def find_environment(python: Path, release: Release) -> Environment:
    """The environment of an interpreter; `UserError` says how to make it where it is missing."""
    remedy = (
        f"make it with: python -m venv .environments/bfcl-{release.name} && "
        f".environments/bfcl-{release.name}/bin/pip install --no-deps "
        f"-r eval/bfcl/requirements-{release.name}.txt"
    )
    root = python.parent.parent
    if not python.exists() or not (root / "pyvenv.cfg").is_file():
        raise UserError(f"bfcl: no environment at {root}; {remedy}")
    packages = sorted(root.glob("lib/python3*/site-packages"))
    found = [info for place in packages for info in place.glob("bfcl_eval-*.dist-info")]
    if not found:
        raise UserError(f"bfcl: {root} holds no bfcl-eval; {remedy}")
    version = found[0].name.removeprefix("bfcl_eval-").removesuffix(".dist-info")
    if version != release.version:
        raise UserError(
            f"bfcl: {root} holds bfcl-eval {version}, release {release.name} is "
            f"{release.version}; {remedy}"
        )
    return Environment(python, found[0].parent / "bfcl_eval")


def default_python(root: Path, release: Release) -> Path:
    """`LOPD_BFCL_PYTHON` for the v3 release, `LOPD_BFCL_V4_PYTHON` for v4, or `.environments/`."""
    variable = "LOPD_BFCL_PYTHON" if release.name == "v3" else "LOPD_BFCL_V4_PYTHON"
    return Path(
        os.environ.get(variable, root / ".environments" / f"bfcl-{release.name}" / "bin" / "python")
    )


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Rows of a file with one JSON object a line; `UserError` if it is anything else."""
    try:
        rows = [json.loads(line) for line in path.read_text().splitlines() if line.strip()]
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: cannot be read as JSON lines ({error})") from None
    if not all(isinstance(row, dict) for row in rows):
        raise UserError(f"{path}: a line is no JSON object")
    return rows


def task_ids(folder: Path, prefix: str, category: str, count: int) -> list[str]:
    """A category's ids, checked against its possible answers and the expected number."""
    path = folder / f"{prefix}_{category}.json"
    ids = [str(row.get("id")) for row in read_lines(path)]
    answers = [str(row.get("id")) for row in read_lines(folder / "possible_answer" / path.name)]
    if len(ids) != count:
        raise UserError(f"{path}: holds {len(ids)} tasks, expected {count}")
    wrong = [task for task in ids if task.rpartition("_")[0] != category]
    if wrong or len(set(ids)) != len(ids):
        raise UserError(f"{path}: ids must be {category}_0, {category}_1, ... and differ")
    if ids != answers:
        raise UserError(f"{path}: its ids are not those of its possible answers")
    return ids


def copy_tasks(
    source: Path, prefix: str, target: Path, release: Release, chosen: Collection[str]
) -> None:
    """A data folder with the chosen tasks alone, named as the release names its files."""
    wanted = set(chosen)
    for category in CATEGORIES:
        name = f"{prefix}_{category}.json"
        for place in (Path(), Path("possible_answer")):
            if not (source / place / name).is_file():
                continue
            rows = [row for row in read_lines(source / place / name) if row["id"] in wanted]
            text = "".join(json.dumps(row) + "\n" for row in rows)
            write_text(target / place / release.data_file(category), text)
    docs = target / "multi_turn_func_doc"
    shutil.rmtree(docs, ignore_errors=True)
    shutil.copytree(source / "multi_turn_func_doc", docs)


def choose(ids: Sequence[str], tasks: Collection[str], per_category: int) -> list[str]:
    """The ids that a check asks for: by name, or the first few of each category, or all."""
    unknown = sorted(set(tasks) - set(ids))
    if unknown:
        raise UserError(f"benchmark.tasks: no task {unknown[0]}")
    if tasks:
        return [task for task in ids if task in set(tasks)]
    if not per_category:
        return list(ids)
    taken: dict[str, int] = {}
    kept = []
    for task in ids:
        category = task.rpartition("_")[0]
        taken[category] = taken.get(category, 0) + 1
        if taken[category] <= per_category:
            kept.append(task)
    return kept
