"""The training loop: rollouts, updates, validation, selection, checkpoints.

A run is a function of its settings and inputs: every random draw is seeded by the step or by the
task, so a run resumed from its last checkpoint ends with the same bytes as one that was never
interrupted. Several ranks run it side by side, each with a share of the rollouts and micro-batches;
all know all trajectories and metrics, and the first one writes.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from lopd_repro.errors import UserError
from lopd_repro.parallel.ranks import ONE, Ranks
from lopd_repro.rollout.divided import divided_engine
from lopd_repro.rollout.engine import RolloutEngine, SamplingParams
from lopd_repro.rollout.episodes import (
    EpisodeRequest,
    Started,
    Trajectory,
    begin_episodes,
    collect,
    derive_seed,
)
from lopd_repro.training.ahead import Ahead
from lopd_repro.training.candidates import Candidates
from lopd_repro.training.checkpoint import load_state, save_state
from lopd_repro.training.evaluate import EvaluationPlan, evaluate, summary
from lopd_repro.training.method import Method
from lopd_repro.training.selection import Selection
from lopd_repro.training.step import PhaseClock, Stepper, StepSettings
from lopd_repro.training.tasks import TaskStream
from lopd_repro.training.teacher_check import check_teacher

_SHOWN = ("reward_mean", "success", "loss", "delta", "beta", "reward_off", "reward_on")


@dataclass(frozen=True)
class LoopSettings:
    """Length and rhythm of a run.

    A step draws `rollouts_per_step` rollouts: that many divided by the group size are its tasks.
    `teacher_check_tasks` training tasks show at the start what the teacher's context is worth.
    `keep_candidates` keeps the weights of every validated step after step 0 on disk.
    `one_step_off` draws a step's rollouts while the step before it updates the policy, so from the
    weights before that update.
    """

    steps: int
    rollouts_per_step: int
    group_size: int
    validate_every: int
    checkpoint_every: int
    teacher_check_tasks: int = 0
    keep_candidates: bool = False
    one_step_off: bool = False

    @property
    def tasks_per_step(self) -> int:
        """Tasks a step draws."""
        return self.rollouts_per_step // self.group_size


@dataclass(frozen=True)
class RunSeeds:
    """Separate seeds for task order, sampling and environments."""

    data: int
    rollout: int
    environment: int


class TrainingRun:
    """One method on one backbone with one seed."""

    def __init__(
        self,
        model: Any,
        method: Method,
        engine: RolloutEngine,
        train_ids: Sequence[str],
        validation: EvaluationPlan,
        loop: LoopSettings,
        step: StepSettings,
        sampling: SamplingParams,
        seeds: RunSeeds,
        state_folder: Path,
        identity: dict[str, Any],
        ranks: Ranks = ONE,
    ) -> None:
        self.model = model
        self.method = method
        self.engine = divided_engine(engine, ranks)
        self.validation = validation
        self.loop = loop
        self.sampling = sampling
        self.seeds = seeds
        self.identity = identity
        self.ranks = ranks
        self._state_folder = state_folder
        self._train_ids = list(train_ids)
        self._stream = TaskStream(train_ids, loop.tasks_per_step, seeds.data)
        self._clock = PhaseClock()
        self.stepper = Stepper(model, method, step, self._clock, ranks)
        self.metrics: list[dict[str, Any]] = []
        self.selection = Selection()
        self.candidates = Candidates(state_folder, ranks)
        self._next_step = 0
        self._generations = 0
        if loop.one_step_off:
            self._check_one_step_off(step)
        self._started: Ahead[Started] = Ahead(self._begin)
        self._drawn: Ahead[list[Trajectory]] = Ahead(self._rollouts)

    def run(self) -> None:
        """Train to the end, picking up an interrupted run's state."""
        self._resume()
        if self._next_step == 0:
            self._validate(0)
            self._check_teacher()
        for step in range(self._next_step, self.loop.steps):
            self._train_step(step)
            done = step + 1
            if done % self.loop.validate_every == 0 or done == self.loop.steps:
                self._validate(done)
            self._next_step = done
            if done % self.loop.checkpoint_every == 0 and done < self.loop.steps:
                self._save()
        self.selection.restore_best(self.model)

    def artifacts(self) -> dict[str, bytes]:
        """The method's files of the selected step; of a run without updates, as they are."""
        if self.selection.best_step is None:
            return self.method.artifacts()
        return self.selection.artifacts

    def _train_step(self, step: int) -> None:
        self._clock.seconds.clear()
        with self._clock.phase("rollout"):
            drawn_before = self._drawn.take(step)
            trajectories = self._rollouts(step) if drawn_before is None else drawn_before
        if self.loop.one_step_off:
            following = step + 1 if step + 1 < self.loop.steps else None
            with self._drawn.meanwhile(following):
                metrics = self.stepper.step(trajectories)
            metrics["policy_lag"] = float(drawn_before is not None)
        else:
            with self._started.meanwhile(self._begun_by(step)):
                metrics = self.stepper.step(trajectories)
        with self._clock.phase("sync"):
            self.engine.sync_weights(self.model)
        self._generations += len(trajectories)
        row = {
            "kind": "train",
            "step": step + 1,
            "generations": self._generations,
            **_reward_summary(trajectories),
            **metrics,
            "seconds": {name: round(s, 6) for name, s in sorted(self._clock.seconds.items())},
        }
        self.metrics.append(row)
        self._say(row)

    def _rollouts(self, step: int) -> list[Trajectory]:
        resources = self.method.resources
        return collect(
            self.engine,
            resources.codec,
            resources.domain,
            self._requests(step),
            self.sampling,
            self._started.take(step),
        )

    def _begin(self, step: int) -> Started:
        resources = self.method.resources
        return begin_episodes(resources.codec, resources.domain, self._requests(step))

    def _begun_by(self, step: int) -> int | None:
        """The step whose episodes may begin while this one updates; None where others come first.

        Several ranks share the episodes out when they are sampled.
        """
        done = step + 1
        last = done == self.loop.steps
        validates = done % self.loop.validate_every == 0
        return None if last or validates or self.ranks.size > 1 else done

    def _check_one_step_off(self, step: StepSettings) -> None:
        if not step.importance_cap:
            raise UserError(
                "train.one_step_off: found true with optimiser.importance_cap 0, allowed: with a "
                "cap of 1 or more, since rollouts come from older weights"
            )
        if self.ranks.size > 1:
            raise UserError(
                f"train.one_step_off: found true on {self.ranks.size} ranks, allowed: on one"
            )
        if getattr(self.engine, "model", None) is self.model:
            raise RuntimeError("one step off: the engine samples from the weights that change")

    def _requests(self, step: int) -> list[EpisodeRequest]:
        return [
            EpisodeRequest(
                task_id,
                group,
                derive_seed(self.seeds.rollout, "rollout", step, group, member),
                derive_seed(self.seeds.environment, "environment", step, group, member),
            )
            for group, task_id in enumerate(self._stream.step(step))
            for member in range(self.loop.group_size)
        ]

    def _validate(self, step: int) -> None:
        resources = self.method.resources
        clock = PhaseClock()
        with clock.phase("validation"):
            trajectories = evaluate(self.engine, resources.codec, resources.domain, self.validation)
        scores = summary(trajectories)
        self.selection.add(step, scores["reward_mean"], self.model, self.method.artifacts)
        if step > 0 and self.loop.keep_candidates:
            self.candidates.add(step, self.model, resources.backbone.tokenizer)
        row = {
            "kind": "validation",
            "step": step,
            "generations": self._generations,
            **scores,
            "seconds": {"validation": round(clock.seconds["validation"], 6)},
        }
        self.metrics.append(row)
        self._say(row)

    def _check_teacher(self) -> None:
        n_tasks = self.loop.teacher_check_tasks
        if n_tasks < 1 or self.method.teacher.kind == "none":
            return
        row = check_teacher(
            self.engine,
            self.method,
            self._train_ids,
            n_tasks,
            max(2, self.loop.group_size),
            self.validation.sampling,
            self.validation.seed,
        )
        self.metrics.append(row)
        self._say(row)

    def _save(self) -> None:
        save_state(
            self._state_folder,
            {
                "identity": self.identity,
                "next_step": self._next_step,
                "generations": self._generations,
                "metrics": self.metrics,
                "model": self.model.state_dict(),
                "optimisers": self.stepper.optimisers.state_dict(),
                "steps_done": self.stepper.steps_done,
                "teacher": self.stepper.teacher.state_dict(),
                "method": self.method.state_dict(),
                "selection": self.selection.state_dict(),
                **self._drawn_state(),
            },
            self.ranks,
        )

    def _resume(self) -> None:
        state = load_state(self._state_folder, self.identity, self.ranks)
        if state is None:
            self.candidates.begin()
            return
        self._next_step = state["next_step"]
        self._generations = state["generations"]
        self.metrics = state["metrics"]
        self.model.load_state_dict(state["model"])
        self.stepper.optimisers.load_state_dict(state["optimisers"])
        self.stepper.steps_done = state["steps_done"]
        self.stepper.teacher.load_state_dict(state["teacher"])
        self.method.load_state_dict(state["method"])
        self.selection.load_state_dict(state["selection"])
        if drawn := state.get("drawn"):
            self._drawn.keep(drawn["step"], [Trajectory(**row) for row in drawn["rows"]])
        self.engine.sync_weights(self.model)
        if self.loop.keep_candidates:
            self.candidates.begin(step for step in self.selection.scores if step > 0)
        if self.ranks.first:
            print(f"resumed after step {self._next_step}", file=sys.stderr, flush=True)

    def _drawn_state(self) -> dict[str, Any]:
        """Rollouts of the next step that older weights drew: they cannot be drawn again."""
        if self._drawn.made is None:
            return {}
        step, drawn = self._drawn.made
        return {"drawn": {"step": step, "rows": [asdict(t) for t in drawn]}}

    def _say(self, row: dict[str, Any]) -> None:
        if not self.ranks.first:
            return
        shown = ", ".join(
            f"{name} {row[name]:.4f}" for name in _SHOWN if isinstance(row.get(name), float)
        )
        print(
            f"{self.method.name} {row['kind']} step {row['step']}/{self.loop.steps}: {shown}",
            file=sys.stderr,
            flush=True,
        )


def _reward_summary(trajectories: Sequence[Trajectory]) -> dict[str, float]:
    rewards = [t.reward for t in trajectories if not math.isnan(t.reward)]
    n = max(1, len(rewards))
    failed: dict[str, float] = {}
    for trajectory in trajectories:
        if trajectory.status != "ok":
            key = f"status_{trajectory.status}"
            failed[key] = failed.get(key, 0.0) + 1
    return {
        "reward_mean": sum(rewards) / n,
        "success": sum(r == 1.0 for r in rewards) / n,
        "unscored": float(len(trajectories) - len(rewards)),
        **failed,
    }
