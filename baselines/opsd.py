"""OPSD: on-policy self-distillation from a reference plan the frozen base model reads.

As in the paper's appendix B.1: the teacher is the frozen base model with a verified trajectory
as a reference plan at the end of the system message; the policy minimises the forward KL,
KL(teacher || student), over the full vocabulary on its own rollouts.

Departures from OPSD's code: every script it publishes uses the Jensen-Shannon divergence
(`beta: 0.5`) at temperature 1.1, here settings whose defaults follow the paper's table; its
teacher top-k, renormalised without a tail bucket, is `top_k`. The loss is a mean over the
supervised tokens of the step, as there with labels, whatever the micro-batches. The plan is the
trajectory's observation-lite trace. A task without a demonstration gives no loss and is counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import torch

from lopd_repro.errors import UserError
from lopd_repro.experience.demonstrations import read_pool
from lopd_repro.rollout.episodes import Trajectory
from lopd_repro.rollout.heads import PLACES, Context, TextContext
from lopd_repro.training.losses import (
    aggregate,
    captured_mass,
    divergence,
    privilege,
    renormalise,
)
from lopd_repro.training.method import (
    Batch,
    Loss,
    Method,
    Preparation,
    Resources,
    TeacherSpec,
    choice,
)
from lopd_repro.training.text_contexts import TextContexts


class OPSD(Method):
    """Forward KL to the frozen base model that reads a reference plan."""

    name = "opsd"
    label = "OPSD"
    defaults: ClassVar[dict[str, Any]] = {
        "beta": 0.0,  # 0 KL(teacher || student), 1 KL(student || teacher), between: JSD
        "temperature": 1.0,
        "top_k": 0,  # teacher's top-k, renormalised; 0 is the full vocabulary
        "aggregation": "token_mean",
        "place": "end_of_system",
        "context_overflow": "error",
        "context_limit": 0,
    }

    def __init__(self, settings: dict[str, Any], resources: Resources) -> None:
        super().__init__(settings, resources)
        s = self.settings
        modes = ("token_mean", "seq_mean_token_mean", "seq_mean_token_sum")
        choice(self.name, "aggregation", s["aggregation"], modes)
        choice(self.name, "place", s["place"], PLACES)
        if "demonstrations" not in resources.files:
            raise UserError(f"method {self.name}: it needs the input file demonstrations")
        self._pool = read_pool(resources.files["demonstrations"])
        self._texts = TextContexts(
            self.name, resources, s["context_overflow"], int(s["context_limit"])
        )

    @property
    def teacher(self) -> TeacherSpec:
        """The frozen base model."""
        return TeacherSpec("frozen")

    def prepare(self, trajectories: Sequence[Trajectory]) -> Preparation:
        """Find each task's reference plan."""
        return self._texts.plan(trajectories, [self._context(t.task_id) for t in trajectories])

    def contexts(self, trajectories: Sequence[Trajectory]) -> list[Context]:
        """The reference plans."""
        return self._texts.of(trajectories)

    def loss(self, batch: Batch) -> Loss:
        """Divergence to the teacher on the supervised tokens."""
        s = self.settings
        if batch.teacher is None:
            return Loss(batch.rewards.new_zeros(()))
        student = batch.student.select(batch.distilled)
        row = batch.row[batch.distilled]

        def mean(values: torch.Tensor) -> torch.Tensor:
            return aggregate(
                values,
                row,
                len(batch.trajectories),
                s["aggregation"],
                totals=batch.distilled_totals,
            )

        temperature, mass = float(s["temperature"]), None
        if s["top_k"]:
            top, support = batch.teacher.topk(int(s["top_k"]))
            ours = renormalise(student.logp_at(support), temperature)
            value = mean(divergence(ours, renormalise(top, temperature), s["beta"]))
            mass = captured_mass(top)
        else:
            value = student.mean_divergence(batch.teacher, s["beta"], mean, temperature)
        tokens = batch.tokens[batch.distilled]
        gap = privilege(batch.teacher.logp(tokens), student.logp(tokens)).sum()
        n = batch.distilled_totals.tokens
        sums = {"divergence": float(value.detach()), "privilege": float(gap) / n}
        if mass is not None:
            sums["support_mass"] = float(mass.sum()) / n
        return Loss(value, sums)

    def _context(self, task_id: str) -> TextContext | None:
        plan = self._pool.get(task_id)
        if plan is None:
            return None
        prompts = self.resources.prompts
        text = prompts["reference_before"] + plan.text + prompts["reference_after"]
        return TextContext(text, self.settings["place"])


METHOD = OPSD
