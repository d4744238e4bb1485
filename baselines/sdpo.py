"""SDPO: self-distillation from a successful sibling of the same group of rollouts.

As in the paper's appendix B.1: groups of four; the teacher is an EMA of the policy (rate 0.05)
that reads a sibling which solved the task (never the rollout itself; none if no sibling did);
the policy minimises the reverse KL, KL(student || teacher), on a top-K support and a tail bucket.

Departures from SDPO's code, which has three published settings of `alpha` (0 forward KL, 0.5 a
mixture with top-100, 1 reverse KL with top-20): the defaults are its `alpha: 1` recipe (the
student's top 20 as support, `is_clip` 2), the one that the paper's words fit. Of several
successful siblings the first is shown. What is shown is its observation-lite trace at the end of
the first user message, without environment feedback of failed rollouts. Loss and counts are over
rollouts with a sibling; a step in which no rollout has one changes nothing and is counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import torch

from lopd_repro.rollout.episodes import Trajectory
from lopd_repro.rollout.heads import PLACES, Context, TextContext
from lopd_repro.training.losses import (
    aggregate,
    captured_mass,
    divergence,
    importance_weight,
    privilege,
    renormalise,
    with_tail,
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
from lopd_repro.training.token_scores import TokenScores


class SDPO(Method):
    """Reverse KL to an EMA of the policy that reads a successful sibling."""

    name = "sdpo"
    label = "SDPO"
    defaults: ClassVar[dict[str, Any]] = {
        "rate": 0.05,
        "alpha": 1.0,  # 0 KL(teacher || student), 1 KL(student || teacher), between: JSD
        "top_k": 20,  # 0 is the full vocabulary
        "support": "student",
        "outside": "tail",
        "is_clip": 2.0,  # ceiling of the importance weight; 0 is no weight
        "aggregation": "token_mean",
        "success": 1.0,
        "place": "end_of_first_user",
        "context_overflow": "error",
        "context_limit": 0,
    }

    def __init__(self, settings: dict[str, Any], resources: Resources) -> None:
        super().__init__(settings, resources)
        s = self.settings
        modes = ("token_mean", "seq_mean_token_mean", "seq_mean_token_sum")
        choice(self.name, "aggregation", s["aggregation"], modes)
        choice(self.name, "support", s["support"], ("student", "teacher"))
        choice(self.name, "outside", s["outside"], ("tail", "renormalise"))
        choice(self.name, "place", s["place"], PLACES)
        self._texts = TextContexts(
            self.name, resources, s["context_overflow"], int(s["context_limit"])
        )

    @property
    def teacher(self) -> TeacherSpec:
        """EMA of the policy."""
        return TeacherSpec("ema", rate=self.settings["rate"])

    def prepare(self, trajectories: Sequence[Trajectory]) -> Preparation:
        """Find each rollout's sibling."""
        found = [
            sibling(trajectories, i, self.settings["success"]) for i in range(len(trajectories))
        ]
        plan = self._texts.plan(trajectories, [self._context(s) for s in found])
        with_sibling = sum(s is not None for s in found) / max(1, len(found))
        plan.metrics["with_sibling"] = with_sibling
        return plan

    def contexts(self, trajectories: Sequence[Trajectory]) -> list[Context]:
        """The siblings' traces."""
        return self._texts.of(trajectories)

    def loss(self, batch: Batch) -> Loss:
        """Divergence to the teacher on the supervised tokens of rollouts with a sibling."""
        s = self.settings
        if batch.teacher is None:
            return Loss(batch.rewards.new_zeros(()))
        student = batch.student.select(batch.distilled)
        tokens = batch.tokens[batch.distilled]
        support = self._support(student, batch.teacher) if s["top_k"] else None
        logp = student.logp(tokens)
        row, weight = batch.row[batch.distilled], None
        if s["is_clip"]:
            weight = importance_weight(logp, batch.old_logp[batch.distilled], s["is_clip"])

        def mean(values: torch.Tensor) -> torch.Tensor:
            return aggregate(
                values if weight is None else values * weight,
                row,
                len(batch.trajectories),
                s["aggregation"],
                totals=batch.distilled_totals,
            )

        masses: dict[str, torch.Tensor] = {}
        if support is None:
            value = student.mean_divergence(batch.teacher, s["alpha"], mean)
        else:
            ours, theirs, masses = support
            value = mean(divergence(ours, theirs, s["alpha"]))
        n = batch.distilled_totals.tokens
        sums = {name: float(mass.sum()) / n for name, mass in masses.items()}
        gap = privilege(batch.teacher.logp(tokens), logp).sum()
        return Loss(
            value, {**sums, "divergence": float(value.detach()), "privilege": float(gap) / n}
        )

    def _support(
        self, student: TokenScores, teacher: TokenScores
    ) -> tuple[torch.Tensor, torch.Tensor, dict[str, torch.Tensor]]:
        """Log-probabilities of both on a support and what is outside; their masses on it."""
        s = self.settings
        chooser = student if s["support"] == "student" else teacher
        ids = chooser.topk(int(s["top_k"]))[1]
        ours, theirs = student.logp_at(ids), teacher.logp_at(ids)
        masses = {
            "support_mass_student": captured_mass(ours),
            "support_mass_teacher": captured_mass(theirs),
        }
        finish = with_tail if s["outside"] == "tail" else renormalise
        return finish(ours), finish(theirs), masses

    def _context(self, shown: Trajectory | None) -> TextContext | None:
        if shown is None:
            return None
        prompts = self.resources.prompts
        trace = self.resources.domain.trace(shown.records)
        text = prompts["sibling_before"] + trace + prompts["sibling_after"]
        return TextContext(text, self.settings["place"])


def sibling(trajectories: Sequence[Trajectory], index: int, success: float) -> Trajectory | None:
    """The first other rollout of the same group with a reward of at least `success`."""
    group = trajectories[index].group
    for i, other in enumerate(trajectories):
        if i != index and other.group == group and other.reward >= success:
            return other
    return None


METHOD = SDPO
