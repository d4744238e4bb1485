"""LOPD's control 'text instead of latents': the retrieved experiences as a prompt.

As LOPD in every other way: the teacher is the frozen base model, the policy minimises a reverse
KL to it on its own rollouts, on the teacher's top-M tokens and a tail bucket, a mean over tokens
and then over trajectories. But the teacher reads the traces of the experiences themselves, where
LOPD puts their latents: at the end of the first user message. Each stands between the texts
`reference_before` and `reference_after`, best first. So there is no composer, and with it no
margin, no dual variable and no anchor.

`pairing` gives tasks other experiences than they retrieved, as in LOPD. A task without
experiences gives no loss and is counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from lopd_repro.errors import UserError
from lopd_repro.experience.assigned import read_task_experiences
from lopd_repro.experience.pairing import PAIRINGS
from lopd_repro.rollout.episodes import Trajectory
from lopd_repro.rollout.heads import PLACES, Context, TextContext
from lopd_repro.training.losses import (
    AVERAGING,
    aggregate,
    captured_mass,
    privilege,
    reverse_kl_topk_tail,
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


class LOPDText(Method):
    """Reverse KL to the frozen base model that reads retrieved experiences as text."""

    name = "lopd_text"
    label = "Text instead of latents"
    defaults: ClassVar[dict[str, Any]] = {
        "top_m": 20,
        "n_retrieved": 3,
        "loss_averaging": "trajectory_mean",
        "pairing": "retrieved",
        "place": "end_of_first_user",
        "context_overflow": "error",
        "context_limit": 0,
    }

    def __init__(self, settings: dict[str, Any], resources: Resources) -> None:
        super().__init__(settings, resources)
        s = self.settings
        choice(self.name, "loss_averaging", s["loss_averaging"], tuple(AVERAGING))
        choice(self.name, "pairing", s["pairing"], PAIRINGS)
        choice(self.name, "place", s["place"], PLACES)
        for needed in ("bank", "retrieved"):
            if needed not in resources.files:
                raise UserError(f"method {self.name}: it needs the input file {needed}")
        given = read_task_experiences(
            resources.files, int(s["n_retrieved"]), s["pairing"], resources.seed
        )
        self._paired = given.metrics
        self._traces = {
            task: [given.bank[name].trace for name in names]
            for task, names in given.assigned.items()
        }
        self._texts = TextContexts(
            self.name, resources, s["context_overflow"], int(s["context_limit"])
        )

    @property
    def teacher(self) -> TeacherSpec:
        """The frozen base model."""
        return TeacherSpec("frozen")

    def prepare(self, trajectories: Sequence[Trajectory]) -> Preparation:
        """Find each task's experiences."""
        plan = self._texts.plan(trajectories, [self._context(t.task_id) for t in trajectories])
        plan.metrics.update(self._paired)
        return plan

    def contexts(self, trajectories: Sequence[Trajectory]) -> list[Context]:
        """The experiences' traces."""
        return self._texts.of(trajectories)

    def loss(self, batch: Batch) -> Loss:
        """Divergence to the teacher on the supervised tokens (eq. 9-10)."""
        s = self.settings
        if batch.teacher is None:
            return Loss(batch.rewards.new_zeros(()))
        student = batch.student.select(batch.distilled)
        teacher_top, support = batch.teacher.topk(int(s["top_m"]))
        value = aggregate(
            reverse_kl_topk_tail(student.logp_at(support), teacher_top),
            batch.row[batch.distilled],
            len(batch.trajectories),
            AVERAGING[s["loss_averaging"]],
            totals=batch.distilled_totals,
        )
        tokens = batch.tokens[batch.distilled]
        gap = privilege(batch.teacher.logp(tokens), student.logp(tokens)).sum()
        n = batch.distilled_totals.tokens
        return Loss(
            value,
            {
                "divergence": float(value.detach()),
                "privilege": float(gap) / n,
                "support_mass": float(captured_mass(teacher_top).sum()) / n,
            },
        )

    def _context(self, task_id: str) -> TextContext | None:
        traces = self._traces.get(task_id)
        if not traces:
            return None
        before, after = (
            self.resources.prompts[f"reference_{side}"] for side in ("before", "after")
        )
        text = "".join(before + trace + after for trace in traces)
        return TextContext(text, self.settings["place"])


METHOD = LOPDText
