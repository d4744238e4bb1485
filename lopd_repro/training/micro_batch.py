"""One micro-batch: student and teacher scored, and the method's loss on them.

A rank that has no micro-batch while another has one, or nothing to distil in it, runs the same
models on a stand-in (`parallel.turns`): see `in_step`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

from lopd_repro.models.chat import Head
from lopd_repro.parallel.turns import Turn
from lopd_repro.rollout.episodes import Trajectory
from lopd_repro.rollout.heads import BuiltHead, Context, build_head
from lopd_repro.training.losses import Totals
from lopd_repro.training.method import Batch, Method, Preparation
from lopd_repro.training.mismatch import gap_metrics, logp_gap, truncated_weights
from lopd_repro.training.scoring import sampled_tokens, score
from lopd_repro.training.step_settings import PhaseClock, StepSettings
from lopd_repro.training.teachers import Teacher, assert_plain_forward
from lopd_repro.training.token_scores import TokenScores


@dataclass(frozen=True)
class StepBatch:
    """A step's trajectories, all with supervised tokens, and what is known of the whole of them."""

    trajectories: list[Trajectory]
    prepared: Preparation
    totals: Totals
    distilled_totals: Totals


@dataclass
class Share:
    """What one micro-batch adds to the step's metrics; `trained` if it has a gradient."""

    loss: float = 0.0
    sums: dict[str, float] = field(default_factory=dict)
    gap: dict[str, float] = field(default_factory=dict)
    forwarded: dict[str, int] = field(default_factory=dict)
    trained: bool = False


class MicroBatches:
    """Losses of parts of a step."""

    def __init__(
        self,
        model: Any,
        method: Method,
        teacher: Teacher,
        settings: StepSettings,
        clock: PhaseClock,
    ) -> None:
        self.model = model
        self.method = method
        self.teacher = teacher
        self.settings = settings
        self.clock = clock

    def loss(self, step: StepBatch, part: range) -> tuple[Share, torch.Tensor, TokenScores]:
        """A part's share, its loss (which may have no gradient) and the student's scores."""
        share = Share()
        batch = self._build(step, part, share)
        with self.clock.phase("loss"):
            loss = self.method.loss(batch)
            if not self.settings.importance_cap:
                # After the loss, whose pass over the vocabulary then serves here as well.
                self._measure_gap(batch.student, batch.tokens, batch.old_logp, step.totals, share)
        if not bool(torch.isfinite(loss.value)):
            found = float(loss.value.detach())
            raise FloatingPointError(f"method {self.method.name}: the loss is {found}")
        share.loss, share.sums = float(loss.value.detach()), loss.sums
        share.trained = loss.value.requires_grad
        return share, loss.value, batch.student

    def in_step(
        self,
        step: StepBatch,
        turn: Turn,
        value: torch.Tensor | None = None,
        student: TokenScores | None = None,
    ) -> torch.Tensor:
        """A value with the gradient of `value`, whose backward pass runs all the models that the
        other ranks' do.

        value, student: loss and student's scores of the rank's own micro-batch, if it has one.
        """
        total = torch.zeros((), device=self.model.device) if value is None else value
        stand_in = step.trajectories[turn.stand_in]
        if turn.student:
            student = self._score_student([stand_in])
        if student is not None and not total.requires_grad:
            total = total + _nothing(student)
        if turn.teacher:
            with self.clock.phase("context"):
                contexts = self.method.contexts([stand_in])
            with self.clock.phase("teacher"):
                teacher = self._score_teacher([stand_in], contexts)
            if teacher is not None and self.method.teacher.needs_grad:
                total = total + _nothing(teacher)
        return total

    def _build(self, step: StepBatch, part: range, share: Share) -> Batch:
        device = self.model.device
        chosen = [step.trajectories[i] for i in part]
        tokens, row = (part_.to(device) for part_ in sampled_tokens(chosen))
        student = self._score_student(chosen)
        with self.clock.phase("context"):
            contexts = self.method.contexts(chosen)
        kept = [context is not None for context in contexts]
        if kept != [step.prepared.distilled[i] for i in part]:
            raise RuntimeError(f"method {self.method.name}: contexts differ from prepare's promise")
        with self.clock.phase("teacher"):
            teacher = self._score_teacher(chosen, contexts)
        share.forwarded = {
            "student": student.forwarded,
            "teacher": 0 if teacher is None else teacher.forwarded,
        }
        old = [p for t in chosen for p, s in zip(t.raw_logp, t.supervised, strict=True) if s]
        old_logp = torch.tensor(old, device=device)
        importance = None
        if self.settings.importance_cap:
            with self.clock.phase("loss"):
                importance = self._measure_gap(student, tokens, old_logp, step.totals, share)
        return Batch(
            trajectories=chosen,
            tokens=tokens,
            row=row,
            old_logp=old_logp,
            rewards=torch.tensor([t.reward for t in chosen], device=device),
            student=student,
            teacher=teacher,
            distilled=torch.tensor(kept, dtype=torch.bool, device=device)[row],
            contexts=contexts,
            totals=step.totals,
            distilled_totals=step.distilled_totals,
            importance=importance,
            extra={k: v[part.start : part.stop].to(device) for k, v in step.prepared.extra.items()},
        )

    def _measure_gap(
        self,
        student: TokenScores,
        tokens: torch.Tensor,
        engine_logp: torch.Tensor,
        totals: Totals,
        share: Share,
    ) -> torch.Tensor | None:
        """Note the gap to the engine; importance weights where they are switched on."""
        cap = self.settings.importance_cap
        gap = logp_gap(student, tokens, engine_logp)
        weights = truncated_weights(gap, cap) if cap else None
        share.gap = gap_metrics(gap, weights, cap, totals.tokens)
        return weights

    def _score_student(self, chosen: list[Trajectory]) -> TokenScores:
        with self.clock.phase("student"):
            return score(
                self.model,
                [BuiltHead(Head(t.head)) for t in chosen],
                chosen,
                self.method.resources.codec.pad_id,
                self.settings.scoring_temperature,
                self.settings.head_chunk_tokens,
            )

    def _score_teacher(
        self, chosen: list[Trajectory], contexts: list[Context]
    ) -> TokenScores | None:
        pairs = [(t, c) for t, c in zip(chosen, contexts, strict=True) if c is not None]
        if self.teacher.model is None or not pairs:
            return None
        assert_plain_forward(self.teacher.model)
        resources = self.method.resources
        heads = [
            build_head(resources.codec, resources.domain.opening(t.task_id), context)
            for t, context in pairs
        ]
        needs_grad = self.method.teacher.needs_grad
        with torch.set_grad_enabled(needs_grad):
            scores = score(
                self.teacher.model,
                heads,
                [t for t, _ in pairs],
                resources.codec.pad_id,
                self.settings.scoring_temperature,
                self.settings.head_chunk_tokens,
            )
        # Log-probabilities are computed later, when gradients are on; the output projection of a
        # teacher that is the policy itself must not be trained through them.
        return scores if needs_grad else scores.without_head_gradient()


def _nothing(scores: TokenScores) -> torch.Tensor:
    """Zero, with a gradient of zero for everything that the scores came from."""
    return (scores.hidden * 0.0).sum()
