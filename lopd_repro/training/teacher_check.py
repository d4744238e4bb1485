"""Is the teacher better than the student at the start? Both are rolled out to find out.

A fixed sample of training tasks is rolled out without context; the method then gives each of
these trajectories the context it would train with, and the same tasks are rolled out again with
it, by the same weights and with the same random draws. Training tasks, because demonstrations,
siblings, skills and a bank exist for no others. Trajectories without a context are left out of
the comparison and counted.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Any

from lopd_repro.rollout.engine import RolloutEngine, SamplingParams
from lopd_repro.rollout.episodes import EpisodeRequest, Trajectory, collect, derive_seed
from lopd_repro.training.method import Method


def check_teacher(
    engine: RolloutEngine,
    method: Method,
    task_ids: Sequence[str],
    n_tasks: int,
    group_size: int,
    sampling: SamplingParams,
    seed: int,
) -> dict[str, Any]:
    """A `kind: "teacher"` row for the metrics of step 0.

    `reward_off`, `reward_on`: mean rewards without and with context over the trajectories that
    have one; `gain` is their difference and `gain_se` its standard error, clustered by task.
    """
    chosen = random.Random(seed).sample(list(task_ids), min(n_tasks, len(task_ids)))
    requests = [
        EpisodeRequest(
            task_id,
            group,
            derive_seed(seed, "teacher", task_id, member),
            derive_seed(seed, "teacher environment", task_id, member),
        )
        for group, task_id in enumerate(chosen)
        for member in range(group_size)
    ]
    resources = method.resources
    off = collect(engine, resources.codec, resources.domain, requests, sampling)
    usable = [i for i, t in enumerate(off) if t.n_sampled]
    trajectories = [off[i] for i in usable]
    method.prepare(trajectories)
    contexts = method.contexts(trajectories)
    kept = [i for i, context in zip(usable, contexts, strict=True) if context is not None]
    informed = [
        EpisodeRequest(r.task_id, r.group, r.rollout_seed, r.environment_seed, context)
        for r, context in zip((requests[i] for i in usable), contexts, strict=True)
        if context is not None
    ]
    on = collect(engine, resources.codec, resources.domain, informed, sampling)
    gains: dict[str, list[float]] = {}
    for i, trajectory in zip(kept, on, strict=True):
        gain = _reward(trajectory) - _reward(off[i])
        gains.setdefault(trajectory.task_id, []).append(gain)
    return {
        "kind": "teacher",
        "step": 0,
        "split": "train",
        "tasks": len(chosen),
        "tasks_with_context": len(gains),
        "rollouts": len(off),
        "rollouts_with_context": len(on),
        "reward_off_all": _mean([_reward(t) for t in off]),
        "reward_off": _mean([_reward(off[i]) for i in kept]),
        "reward_on": _mean([_reward(t) for t in on]),
        "gain": _mean([g for values in gains.values() for g in values]),
        "gain_se": _clustered_error(list(gains.values())),
    }


def _reward(trajectory: Trajectory) -> float:
    return 0.0 if math.isnan(trajectory.reward) else trajectory.reward


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _clustered_error(groups: Sequence[Sequence[float]]) -> float | None:
    """Standard error of the mean over all values, which may be correlated within a group."""
    n, total = len(groups), sum(len(values) for values in groups)
    if n < 2:
        return None
    mean = sum(sum(values) for values in groups) / total
    squares = sum(sum(value - mean for value in values) ** 2 for values in groups)
    return math.sqrt(squares * n / (n - 1)) / total
