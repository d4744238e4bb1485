"""SDFT: on-policy self-distillation from a demonstration in context.

As in the paper's appendix B.1: the teacher is an EMA of the policy (rate 0.01, every step) that
reads a verified trajectory of the same task at the end of the first user message; the policy
minimises the forward KL, KL(teacher || student), over the full vocabulary on its own rollouts.

Departures from SDFT's code, each a setting: its script skips the first three completion tokens
(`skip_tokens`, 0 here since the paper names no skip); it counts trajectories without tokens as
zeros in the mean over trajectories (`empty_rows: count`; they are left out here). The
demonstration is the trajectory's observation-lite trace, the same text that the experience bank
holds, and not a written solution. A task without a demonstration gives no loss and is counted.
The EMA starts at the base model and is of float32 effective weights.
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
    Totals,
    aggregate,
    privilege,
    skip_first_tokens,
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


class SDFT(Method):
    """Forward KL to an EMA of the policy that reads a demonstration."""

    name = "sdft"
    label = "SDFT"
    defaults: ClassVar[dict[str, Any]] = {
        "rate": 0.01,
        "alpha": 0.0,  # 0 KL(teacher || student), 1 KL(student || teacher), between: JSD
        "skip_tokens": 0,
        "aggregation": "seq_mean_token_mean",
        "empty_rows": "exclude",
        "place": "end_of_first_user",
        "context_overflow": "error",
        "context_limit": 0,
    }

    def __init__(self, settings: dict[str, Any], resources: Resources) -> None:
        super().__init__(settings, resources)
        s = self.settings
        modes = ("token_mean", "seq_mean_token_mean", "seq_mean_token_sum")
        choice(self.name, "aggregation", s["aggregation"], modes)
        choice(self.name, "empty_rows", s["empty_rows"], ("exclude", "count"))
        choice(self.name, "place", s["place"], PLACES)
        if "demonstrations" not in resources.files:
            raise UserError(f"method {self.name}: it needs the input file demonstrations")
        self._pool = read_pool(resources.files["demonstrations"])
        self._texts = TextContexts(
            self.name, resources, s["context_overflow"], int(s["context_limit"])
        )
        self._totals = Totals(0, 0, 0)

    @property
    def teacher(self) -> TeacherSpec:
        """EMA of the policy."""
        return TeacherSpec("ema", rate=self.settings["rate"])

    def prepare(self, trajectories: Sequence[Trajectory]) -> Preparation:
        """Find each task's demonstration and count the tokens that will be kept."""
        contexts = [self._context(t.task_id) for t in trajectories]
        plan = self._texts.plan(trajectories, contexts)
        kept = [
            max(0, t.n_sampled - int(self.settings["skip_tokens"]))
            for t, distilled in zip(trajectories, plan.distilled, strict=True)
            if distilled
        ]
        self._totals = Totals(tokens=sum(kept), rows=sum(n > 0 for n in kept), all_rows=len(kept))
        plan.metrics["kept_tokens"] = float(sum(kept))
        return plan

    def contexts(self, trajectories: Sequence[Trajectory]) -> list[Context]:
        """The demonstrations."""
        return self._texts.of(trajectories)

    def loss(self, batch: Batch) -> Loss:
        """Divergence to the teacher on the kept tokens."""
        s = self.settings
        row, n_rows = batch.row[batch.distilled], len(batch.trajectories)
        kept = skip_first_tokens(row, n_rows, int(s["skip_tokens"]))
        if batch.teacher is None or not bool(kept.any()):
            return Loss(batch.rewards.new_zeros(()))
        row, tokens = row[kept], batch.tokens[batch.distilled][kept]
        student = batch.student.select(batch.distilled).select(kept)
        teacher = batch.teacher.select(kept)

        def mean(values: torch.Tensor) -> torch.Tensor:
            return aggregate(
                values,
                row,
                n_rows,
                s["aggregation"],
                totals=self._totals,
                empty_rows=s["empty_rows"],
            )

        value = student.mean_divergence(teacher, s["alpha"], mean)
        gap = privilege(teacher.logp(tokens), student.logp(tokens)).sum() / self._totals.tokens
        return Loss(value, {"divergence": float(value.detach()), "privilege": float(gap)})

    def _context(self, task_id: str) -> TextContext | None:
        shown = self._pool.get(task_id)
        if shown is None:
            return None
        prompts = self.resources.prompts
        text = prompts["demonstration_before"] + shown.text + prompts["demonstration_after"]
        return TextContext(text, self.settings["place"])


METHOD = SDFT
