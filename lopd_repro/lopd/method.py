"""LOPD: latent on-policy self-distillation (arXiv 2608.13040).

The teacher is the frozen base model reading latents composed from retrieved experiences. The
policy minimises a reverse KL to it on its own rollouts, on the teacher's top-M tokens and a tail
bucket (eq. 9-10); the composer minimises the same divergence, keeps the teacher's
outcome-weighted advantage Delta over a margin by a dual variable, and stays near its cold start
(eq. 11-13).

Policy and composer get their gradients from one backward pass. The released code takes two
passes, the policy's step first, but the composer's pass there uses the policy's log-probabilities
from before that step, so both orders give the same gradients. Where paper and released code
differ in value the choice is a setting: `loss_averaging`, `anchor_reduction`, `dual_delta`.

Controls are settings too. `pairing` gives tasks other experiences than they retrieved, at the
anchor as well. `latents: random` replaces the composed latents by random ones of the same number
and norms; there is then nothing for the composer to learn, and it stays as with
`frozen_composer`. Whether the composer reads the task's text is part of the composer
(`composer.task_text`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import torch

from lopd_repro.errors import UserError
from lopd_repro.experience.assigned import read_task_experiences
from lopd_repro.experience.pairing import PAIRINGS
from lopd_repro.lopd.composer import Composer
from lopd_repro.lopd.latents import Framing, LatentSource
from lopd_repro.lopd.profile import DivergenceProfile
from lopd_repro.lopd.random_latents import RandomLatents
from lopd_repro.lopd.saved import composer_files, composer_settings
from lopd_repro.models.backbone import copy_model, freeze
from lopd_repro.rollout.episodes import Trajectory
from lopd_repro.rollout.heads import Context, LatentContext
from lopd_repro.training.losses import (
    AVERAGING,
    Totals,
    aggregate,
    anchor_distance,
    captured_mass,
    composer_objective,
    dual_update,
    privilege,
    reverse_kl_topk_tail,
    row_token_counts,
    weighted_privilege,
)
from lopd_repro.training.method import (
    Batch,
    Loss,
    Method,
    ParameterGroup,
    Preparation,
    Resources,
    TeacherSpec,
    choice,
)

LATENTS = ("composed", "random")


class LOPD(Method):
    """Policy and composer trained jointly on the policy's rollouts."""

    name = "lopd"
    label = "LOPD"
    defaults: ClassVar[dict[str, Any]] = {
        "top_m": 20,
        "n_retrieved": 3,
        "margin": 0.05,
        "eta": 0.5,
        "beta_start": 0.0,
        "anchor_weight": 0.2,
        "anchor_reduction": "sum",
        "loss_averaging": "trajectory_mean",
        "dual_delta": "trajectory_mean",
        "composer_lr": 1e-5,
        "composer_clip": 1.0,
        "frozen_composer": False,
        "pairing": "retrieved",
        "latents": "composed",
    }

    def __init__(self, settings: dict[str, Any], resources: Resources) -> None:
        super().__init__(settings, resources)
        s = self.settings
        choice(self.name, "anchor_reduction", s["anchor_reduction"], ("sum", "mean", "relative"))
        choice(self.name, "loss_averaging", s["loss_averaging"], tuple(AVERAGING))
        choice(self.name, "dual_delta", s["dual_delta"], tuple(AVERAGING))
        choice(self.name, "pairing", s["pairing"], PAIRINGS)
        choice(self.name, "latents", s["latents"], LATENTS)
        self._trains_composer = s["latents"] == "composed" and not s["frozen_composer"]
        self.beta = float(s["beta_start"])
        files = resources.files
        for needed in ("bank", "retrieved", "composer"):
            if needed not in files:
                raise UserError(f"method {self.name}: it needs the input file {needed}")
        self.teacher_model = freeze(copy_model(resources.backbone.model))
        given = read_task_experiences(files, int(s["n_retrieved"]), s["pairing"], resources.seed)
        self._paired = given.metrics
        framing = Framing(resources.prompts["latent_before"], resources.prompts["latent_after"])
        shape = composer_settings(files["composer"])

        def source(name: str) -> LatentSource:
            composer = Composer(
                self.teacher_model, resources.backbone.tokenizer, shape, resources.seed, name
            )
            composer.load(files["composer"])
            composer.train_mode(False)
            return LatentSource(
                composer, given.bank, given.assigned, resources.domain.task_text, framing
            )

        self._start: LatentSource | RandomLatents = source("start")
        self._source: LatentSource | RandomLatents = source("composer")
        if s["latents"] == "random":
            self._start = self._source = RandomLatents(self._start, resources.seed)
        if self._trains_composer:
            self._source.composer.train_mode(True)
        self._anchors: dict[str, torch.Tensor] = {}
        self._scored = Totals(tokens=0, rows=0, all_rows=0)
        self._profile = DivergenceProfile()

    @property
    def teacher(self) -> TeacherSpec:
        """The frozen base model; gradients pass through it to the latents."""
        return TeacherSpec("frozen", needs_grad=self._trains_composer)

    def prepare(self, trajectories: Sequence[Trajectory]) -> Preparation:
        """Every trajectory whose task has experiences is distilled.

        One without a reward (NaN) is distilled as well, but left out of Delta and counted.
        """
        if isinstance(self._source, RandomLatents):
            # Here, where every rank sees the same tasks: a draw runs the frozen model.
            self._source.latents([t.task_id for t in trajectories])
        distilled = [self._source.has(t.task_id) for t in trajectories]
        missing = [math.isnan(t.reward) for t in trajectories]
        counts = [
            t.n_sampled
            for t, kept, unscored in zip(trajectories, distilled, missing, strict=True)
            if kept and not unscored
        ]
        self._scored = Totals(tokens=sum(counts), rows=len(counts), all_rows=len(counts))
        self._profile = DivergenceProfile(
            [t for t, kept in zip(trajectories, distilled, strict=True) if kept]
        )
        metrics = {"missing_rewards": float(sum(missing)), **self._paired}
        return Preparation(distilled, metrics=metrics)

    def contexts(self, trajectories: Sequence[Trajectory]) -> list[Context]:
        """Latents of each trajectory's task, made with the current composer."""
        tasks = [t.task_id for t in trajectories]
        self._anchors = self._start_latents(tasks)
        with torch.set_grad_enabled(self._trains_composer):
            return list(self._source.contexts(tasks))

    def loss(self, batch: Batch) -> Loss:
        """Eq. 13, as the policy's term plus the composer's term."""
        s = self.settings
        if batch.teacher is None:
            return Loss(batch.student.hidden.new_zeros(()))
        tokens, row = batch.tokens[batch.distilled], batch.row[batch.distilled]
        n_rows, totals = len(batch.trajectories), batch.distilled_totals
        teacher_top, support = batch.teacher.topk(int(s["top_m"]))
        student = batch.student.select(batch.distilled)
        student_top = student.logp_at(support)
        teacher_logp, student_logp = batch.teacher.logp(tokens), student.logp(tokens)

        scored = ~batch.rewards.isnan()[row]

        def mean(values: torch.Tensor, averaging: str) -> torch.Tensor:
            return aggregate(values, row, n_rows, AVERAGING[averaging], totals=totals)

        def scored_mean(values: torch.Tensor, averaging: str) -> torch.Tensor:
            return aggregate(
                values,
                row[scored],
                n_rows,
                AVERAGING[averaging],
                totals=self._scored,
            )

        token_kl = reverse_kl_topk_tail(student_top, teacher_top.detach())
        policy_kl = mean(token_kl, s["loss_averaging"])
        composer_kl = mean(
            reverse_kl_topk_tail(student_top.detach(), teacher_top), "trajectory_mean"
        )
        weighted = weighted_privilege(
            teacher_logp[scored], student_logp[scored], batch.rewards, row[scored]
        )
        delta = scored_mean(weighted, "trajectory_mean")
        anchor = self._anchor(batch) / max(1.0, totals.rows)
        n_scored = int((row_token_counts(row[scored], n_rows) > 0).sum())
        share = n_scored / max(1.0, self._scored.rows)
        composer_term = composer_objective(
            composer_kl,
            delta,
            anchor,
            beta=self.beta,
            margin=s["margin"],
            anchor_weight=s["anchor_weight"],
            share=share,
        )
        # The composer's copy of the divergence adds a gradient, not a second value.
        value = policy_kl + composer_term - composer_kl.detach()
        gap = privilege(teacher_logp.detach(), student_logp)
        n = max(1.0, totals.tokens)
        sums = {
            "kl": float(policy_kl.detach()),
            "frac_delta_ge_m": float((gap >= s["margin"]).sum()) / n,
            "anchor": float(anchor.detach()),
            "support_mass": float(captured_mass(teacher_top).sum()) / n,
            **self._profile.shares(token_kl, row, batch.rewards),
        }
        if self._scored.rows:
            sums["delta"] = float(delta.detach())
            sums["delta_token_mean"] = float(scored_mean(weighted.detach(), "token_mean"))
        return Loss(value, sums)

    def parameter_groups(self) -> list[ParameterGroup]:
        """The composer's parameters, unless it is frozen or unused."""
        if not self._trains_composer:
            return []
        s = self.settings
        parameters = self._source.composer.parameters()
        return [ParameterGroup("composer", parameters, s["composer_lr"], s["composer_clip"])]

    def modules(self) -> list[torch.nn.Module]:
        """The compressors."""
        found = [source.composer.compressor for source in (self._start, self._source)]
        return list(dict.fromkeys(found))

    def after_step(self, metrics: dict[str, float]) -> dict[str, float]:
        """Dual ascent on the margin constraint, with the step's Delta."""
        logged = {"beta": self.beta}
        if "delta" in metrics:
            s = self.settings
            key = "delta" if s["dual_delta"] == "trajectory_mean" else "delta_token_mean"
            self.beta = dual_update(self.beta, metrics[key], margin=s["margin"], eta=s["eta"])
        return logged

    def artifacts(self) -> dict[str, bytes]:
        """The composer, as inference with latents needs it."""
        return composer_files(self._source.composer)

    def state_dict(self) -> dict[str, Any]:
        """Dual variable and composer weights."""
        return {"beta": self.beta, "composer": dict(self._source.composer.state_dict())}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back what `state_dict` gave."""
        self.beta = float(state["beta"])
        self._source.composer.load_state_dict(state["composer"])

    def _anchor(self, batch: Batch) -> torch.Tensor:
        """Sum over this micro-batch's trajectories of their anchor distances."""
        total = batch.student.hidden.new_zeros(())
        for trajectory, context in zip(batch.trajectories, batch.contexts, strict=True):
            if isinstance(context, LatentContext):
                start = self._anchors[trajectory.task_id]
                total = (
                    total
                    + anchor_distance(
                        context.latents[None], start[None], self.settings["anchor_reduction"]
                    ).sum()
                )
        return total

    @torch.no_grad()
    def _start_latents(self, task_ids: Sequence[str]) -> dict[str, torch.Tensor]:
        """Cold-start latents of a micro-batch's tasks.

        They never change, but are not kept: encoded in another batch they differ in the last
        bits, and a resumed run would then not end as an uninterrupted one.
        """
        latents = self._start.latents(task_ids)
        return {t: found for t, found in zip(task_ids, latents, strict=True) if found is not None}


METHOD = LOPD
