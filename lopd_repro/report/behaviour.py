"""Table 3: how policies behave on the EnvScaler test tasks, from the records of their episodes.

Every metric is a sum over episodes divided by a sum over episodes, formed within a seed and then
averaged over seeds. The paper prints names without definitions; where a name can be read in two
ways, both are rows here, the paper's name on the one that fits its numbers better: its reward per
tool call is above reward / (steps * calls per step) in every column, as a mean of the episodes'
own ratios is, and its calls per step are far above the one call a turn that the environment runs.

A call is one that parses, whether or not it is run: the environment acts on the first of a turn
only. One that speaks to the user in the form of a call counts as well.
"""

from __future__ import annotations

import json
import zlib
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from lopd_repro.errors import UserError
from lopd_repro.files import read_jsonl_with_footer
from lopd_repro.report.layout import Metric
from lopd_repro.report.scores import evaluation_file, read_cell
from lopd_repro.stats import DRAWS, bootstrap_ratios, mean_std, percentile_interval, score_matrix

COLUMNS = ("vanilla", "base_plus_composer", "lopd")
SUFFIXES = ("", "_std", "_ci_low", "_ci_high", "_reported")
ILLUSTRATIVE = "illustrative, not a clean ablation"

_ENVSCALER = Metric("envscaler", "EnvScaler", "envscaler")
_ABOUT = ("backbone", "scale", "n_seeds")


@dataclass(frozen=True)
class Episode:
    """What the metrics read of one episode.

    calls: parsed ones; repeats: those whose name and arguments an earlier one of the episode had.
    first_step_tokens: None for an episode without a turn.
    """

    reward: float
    steps: int
    calls: int
    executed: int
    repeats: int
    first_step_tokens: int | None


@dataclass(frozen=True)
class BehaviourMetric:
    """One row. `measure` gives an episode's part of numerator and denominator; (0, 0) leaves it
    out. `decimals` are those of pages, `left_out` names the episodes that are, `reading` says
    which of two rows with the same title this is."""

    name: str
    title: str
    definition: str
    decimals: int
    measure: Callable[[Episode], tuple[float, float]]
    left_out: str = ""
    reading: str = ""

    @property
    def full_title(self) -> str:
        """Title and reading."""
        return f"{self.title}, {self.reading}" if self.reading else self.title


METRICS = (
    BehaviourMetric(
        "reward", "Reward", "mean reward of an episode, 0 to 1", 3, lambda e: (e.reward, 1)
    ),
    BehaviourMetric(
        "interaction_steps",
        "Interaction steps",
        "turns of the model in an episode, the one that ends it included",
        2,
        lambda e: (e.steps, 1),
    ),
    BehaviourMetric(
        "tool_calls_per_step",
        "Tool calls per step",
        "all calls that parse over all steps",
        2,
        lambda e: (e.calls, e.steps),
        reading="parsed",
    ),
    BehaviourMetric(
        "tool_calls_per_step_executed",
        "Tool calls per step",
        "all calls that ran and returned over all steps; at most one a step can",
        2,
        lambda e: (e.executed, e.steps),
        reading="executed",
    ),
    BehaviourMetric(
        "first_step_length_tokens",
        "First-step length (tokens)",
        "tokens sampled in the first step: reasoning, text, calls and the end of the turn",
        1,
        lambda e: (0, 0) if e.first_step_tokens is None else (e.first_step_tokens, 1),
        "have no step",
    ),
    BehaviourMetric(
        "reward_per_tool_call",
        "Reward per tool call",
        "an episode's reward over its parsed calls, averaged over episodes with a call",
        3,
        lambda e: (e.reward / e.calls, 1) if e.calls else (0, 0),
        "wrote no call",
        "mean of ratios",
    ),
    BehaviourMetric(
        "reward_per_tool_call_ratio_of_means",
        "Reward per tool call",
        "all reward over all parsed calls, episodes without a call included",
        3,
        lambda e: (e.reward, e.calls),
        reading="ratio of means",
    ),
    BehaviourMetric(
        "repeated_tool_calls",
        "Repeated tool calls",
        "parsed calls of an episode whose name and arguments an earlier call of it had",
        2,
        lambda e: (e.repeats, 1),
        reading="per episode",
    ),
    BehaviourMetric(
        "repeated_tool_calls_share",
        "Repeated tool calls",
        "all repeated calls over all parsed calls",
        3,
        lambda e: (e.repeats, e.calls),
        reading="share",
    ),
)


@dataclass(frozen=True)
class Table3Settings:
    """What the table covers. `labels` has the printed names of methods."""

    scale: str
    notice: str
    preset: str
    domain: str
    backbone: str
    backbone_label: str
    paper_backbone: str
    seeds: tuple[int, ...]
    labels: dict[str, str]
    bootstrap_seed: int = 0

    def label(self, column: str) -> str:
        """Printed name of a column."""
        return "Base + composer" if column == "base_plus_composer" else self.labels[column]


@dataclass
class Table3:
    """Rows in the contract's columns; what is missing and why; remarks for the reader.

    `floor` is the mean reward of an agent that does nothing, None if no run says so. `sources`
    names data and scorer, with the printed names of the columns they made.
    """

    rows: list[dict[str, Any]]
    problems: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    sources: dict[str, list[str]] = field(default_factory=dict)
    floor: float | None = None

    @property
    def columns(self) -> list[str]:
        """Columns of the CSV."""
        return ["metric", *(c + suffix for c in COLUMNS for suffix in SUFFIXES), *_ABOUT]


def build_table3(
    root: Path, settings: Table3Settings, reported: Mapping[tuple[str, str, str], str]
) -> Table3:
    """All rows; a column whose files are missing or incomplete is empty and named in `problems`.

    `reported` has the paper's digits by (backbone, column, metric).
    """
    about = {
        "backbone": settings.backbone,
        "scale": settings.scale,
        "n_seeds": len(settings.seeds),
    }
    table = Table3([{"metric": metric.name, **about} for metric in METRICS])
    for column in COLUMNS:
        found = _read_column(root, settings, column, table)
        for metric, row in zip(METRICS, table.rows, strict=True):
            printed = reported.get((settings.paper_backbone, column, metric.name))
            row.update(dict.fromkeys((column + suffix for suffix in SUFFIXES), None))
            row[f"{column}_reported"] = printed
            if found is not None:
                row.update(_cell(metric, found, settings, column, table))
    return table


Episodes = dict[int, dict[str, list[Episode]]]
"""`{seed: {task: its repeats}}`"""


def _read_column(
    root: Path, settings: Table3Settings, column: str, table: Table3
) -> Episodes | None:
    where = f"{settings.backbone} / {settings.label(column)}"
    place = (settings.domain, settings.backbone, column)
    cell = read_cell(root, _ENVSCALER, *place, settings.seeds)
    if cell.problem is not None:
        table.problems.append(f"{where}: {cell.problem}")
        return None
    if cell.failed:
        table.remarks.append(f"{where}: {cell.failed} episodes ended with a status not ok.")
    found: Episodes = {}
    composers: dict[str, list[str]] = {}
    for seed in settings.seeds:
        path = evaluation_file(root, "envscaler", *place, seed)
        rows, footer = read_jsonl_with_footer(path)
        if column == "base_plus_composer":
            if "composer" not in footer:
                table.problems.append(f"{where}: {path} was made without a composer")
                return None
            composers.setdefault(footer["composer"], []).append(str(seed))
        by_task: dict[str, list[Episode]] = defaultdict(list)
        for row in rows:
            by_task[row["task_id"]].append(episode(row, path))
        found[seed] = dict(by_task)
        if table.floor is None:
            floor = {row["task_id"]: float(row["noop_reward"]) for row in rows}
            table.floor = sum(floor.values()) / len(floor)
    for source in cell.sources:
        table.sources.setdefault(source, []).append(settings.label(column))
    for composer, seeds in composers.items():
        table.remarks.append(f"{where}, seeds {', '.join(seeds)}: latents of {composer}.")
    return found


def episode(row: Mapping[str, Any], path: Path | str) -> Episode:
    """What an evaluation row says about its episode."""
    calls: list[str] = []
    try:
        records: Sequence[Mapping[str, Any]] = row["records"]
        for record in records:
            calls += _calls(record)
        return Episode(
            reward=float(row["score"]),
            steps=len(records),
            calls=len(calls),
            executed=sum(bool(record.get("executed")) for record in records),
            repeats=len(calls) - len(set(calls)),
            first_step_tokens=int(records[0]["tokens"]) if records else None,
        )
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(
            f"{path}: task {row.get('task_id')}: its records do not say what was called ({error!r})"
        ) from None


def _calls(record: Mapping[str, Any]) -> list[str]:
    """Name and arguments of each call that one turn wrote, as comparable texts."""
    n = int(record.get("n_calls", 0))
    alone = [[record["name"], record["arguments"]]] if record.get("kind") == "call" else []
    written = record.get("calls", alone)
    if len(written) != n:
        raise ValueError(f"{n} calls in a turn, {len(written)} with name and arguments")
    return [json.dumps(call, sort_keys=True) for call in written]


def _cell(
    metric: BehaviourMetric,
    episodes: Episodes,
    settings: Table3Settings,
    column: str,
    table: Table3,
) -> dict[str, float | None]:
    where = f"{settings.backbone} / {settings.label(column)} / {metric.name}"
    parts = {
        seed: {task: [metric.measure(e) for e in repeats] for task, repeats in tasks.items()}
        for seed, tasks in episodes.items()
    }
    above, below = (
        score_matrix(
            {
                seed: {task: sum(pair[side] for pair in pairs) for task, pairs in tasks.items()}
                for seed, tasks in parts.items()
            },
            seeds=settings.seeds,
        )
        for side in (0, 1)
    )
    totals = below.sum(axis=1)
    if not totals.all():
        empty = [s for s, total in zip(settings.seeds, totals, strict=True) if not total]
        table.problems.append(f"{where}: undefined, nothing to divide by in seeds {empty}")
        return {}
    everything = [pair for tasks in parts.values() for pairs in tasks.values() for pair in pairs]
    without = sum(pair == (0, 0) for pair in everything)
    if metric.left_out and without:
        table.remarks.append(
            f"{where}: {without} of {len(everything)} episodes {metric.left_out} and are left out."
        )
    mean, std = mean_std([float(v) for v in above.sum(axis=1) / totals])
    # A generator per cell. Reward is Table 1's EnvScaler score and gets the same interval.
    name = "envscaler" if metric.name == "reward" else metric.name
    key = f"{settings.bootstrap_seed}/{settings.backbone}/{column}/{name}"
    rng = np.random.default_rng(zlib.crc32(key.encode()))
    draws = bootstrap_ratios(above, below, rng, draws=DRAWS, tasks="shared")
    defined = draws[np.isfinite(draws)]
    if len(defined) < len(draws):
        table.remarks.append(f"{where}: {len(draws) - len(defined)} draws had no value.")
    interval = percentile_interval(defined)
    return {
        column: mean,
        f"{column}_std": std,
        f"{column}_ci_low": interval.low,
        f"{column}_ci_high": interval.high,
    }
