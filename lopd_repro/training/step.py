"""One optimiser step: score, loss, backward, clip, update."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

from lopd_repro.errors import UserError
from lopd_repro.models.chat import Head
from lopd_repro.rollout.episodes import Trajectory
from lopd_repro.rollout.heads import BuiltHead, Context, build_head
from lopd_repro.training.losses import Totals
from lopd_repro.training.method import Batch, Method, Preparation
from lopd_repro.training.mismatch import gap_metrics, logp_gap, truncated_weights
from lopd_repro.training.scoring import sampled_tokens, score
from lopd_repro.training.teachers import Teacher, assert_plain_forward
from lopd_repro.training.token_scores import TokenScores


@dataclass(frozen=True)
class StepSettings:
    """lr, weight decay and gradient clip of the policy; trajectories per micro-batch.

    `importance_cap` switches on truncated importance weights (`mismatch`); `max_logp_gap` is a
    mean gap between engine and trainer above which training stops. 0 is off for both.
    """

    lr: float = 1e-5
    weight_decay: float = 0.01
    clip: float = 1.0
    micro_batch: int = 32
    scoring_temperature: float = 1.0
    warmup_steps: int = 0
    head_chunk_tokens: int = 0
    importance_cap: float = 0.0
    max_logp_gap: float = 0.0

    def __post_init__(self) -> None:
        if self.importance_cap and self.importance_cap < 1:
            raise UserError(
                f"optimiser.importance_cap: found {self.importance_cap}, allowed: 0 (off), or 1 or "
                "more"
            )
        if self.max_logp_gap < 0:
            raise UserError(
                f"optimiser.max_logp_gap: found {self.max_logp_gap}, allowed: 0 (off) or more"
            )


class PhaseClock:
    """Seconds spent by phase."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Add the block's wall time to a phase."""
        start = time.perf_counter()
        try:
            yield
        finally:
            spent = time.perf_counter() - start
            self.seconds[name] = self.seconds.get(name, 0.0) + spent


@dataclass
class Optimisers:
    """The policy's optimiser and one for each parameter group of the method."""

    policy: torch.optim.AdamW
    extra: dict[str, torch.optim.AdamW] = field(default_factory=dict)

    @classmethod
    def build(cls, model: Any, method: Method, settings: StepSettings) -> Optimisers:
        """AdamW throughout, torch's defaults but for rate and decay."""
        policy = torch.optim.AdamW(
            model.parameters(), lr=settings.lr, weight_decay=settings.weight_decay
        )
        extra = {
            group.name: torch.optim.AdamW(
                group.parameters, lr=group.lr, weight_decay=group.weight_decay
            )
            for group in method.parameter_groups()
        }
        return cls(policy, extra)

    def state_dict(self) -> dict[str, Any]:
        """States by name."""
        states = {name: optimiser.state_dict() for name, optimiser in self.extra.items()}
        return {"policy": self.policy.state_dict(), "extra": states}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back saved states."""
        self.policy.load_state_dict(state["policy"])
        for name, optimiser in self.extra.items():
            optimiser.load_state_dict(state["extra"][name])


class Stepper:
    """Turns a step's trajectories into one update of the policy and the method's parameters."""

    def __init__(
        self, model: Any, method: Method, settings: StepSettings, clock: PhaseClock
    ) -> None:
        self.model = model
        self.method = method
        self.settings = settings
        self.clock = clock
        self.teacher = Teacher(method.teacher, model, method.teacher_model)
        self.optimisers = Optimisers.build(model, method, settings)
        self.steps_done = 0
        self._forwarded = {"student": 0, "teacher": 0}
        self._gap: dict[str, float] = {}

    def step(self, trajectories: Sequence[Trajectory]) -> dict[str, float]:
        """Update once; returns the step's metrics.

        A step without any supervised token, or whose losses are all free of the policy (nothing
        to distil), changes nothing and is counted in `empty_batches`.
        `forwarded_student` and `forwarded_teacher` count the tokens that scoring reads;
        `logp_gap_mean` and `logp_gap_max` say how far engine and trainer are apart.
        """
        usable = [t for t in trajectories if t.n_sampled]
        prepared = self.method.prepare(usable)
        metrics = dict(prepared.metrics)
        totals = _totals(usable)
        distilled_totals = _totals(
            [t for t, kept in zip(usable, prepared.distilled, strict=True) if kept]
        )
        metrics["tokens"] = totals.tokens
        metrics["distilled_tokens"] = distilled_totals.tokens
        metrics["loss"] = 0.0
        metrics["empty_batches"] = 1.0
        self._forwarded = dict.fromkeys(self._forwarded, 0)
        self._gap = {"logp_gap_mean": 0.0, "logp_gap_max": 0.0}
        if usable:
            self._set_rate()
            self._zero_grad()
            trained = [
                self._accumulate(usable, prepared, part, totals, distilled_totals, metrics)
                for part in _micro_batches(len(usable), self.settings.micro_batch)
            ]
            self._check_gap()
            if any(trained):
                metrics["empty_batches"] = 0.0
                with self.clock.phase("optimiser"):
                    metrics.update(self._update())
                self.teacher.update()
        self.steps_done += 1
        metrics.update(self._gap)
        metrics.update({f"forwarded_{who}": float(n) for who, n in self._forwarded.items()})
        metrics.update(self.method.after_step(metrics))
        return metrics

    def _accumulate(
        self,
        usable: list[Trajectory],
        prepared: Preparation,
        part: range,
        totals: Totals,
        distilled_totals: Totals,
        metrics: dict[str, float],
    ) -> bool:
        """Add a micro-batch's gradient; False if its loss has none."""
        chosen = [usable[i] for i in part]
        batch = self._build(chosen, prepared, part, totals, distilled_totals)
        with self.clock.phase("loss"):
            loss = self.method.loss(batch)
            if not self.settings.importance_cap:
                # After the loss, whose pass over the vocabulary then serves here as well.
                self._measure_gap(batch.student, batch.tokens, batch.old_logp, totals)
        if not bool(torch.isfinite(loss.value)):
            found = float(loss.value.detach())
            raise FloatingPointError(f"method {self.method.name}: the loss is {found}")
        metrics["loss"] += float(loss.value.detach())
        for name, value in loss.sums.items():
            metrics[name] = metrics.get(name, 0.0) + value
        if not loss.value.requires_grad:
            return False
        with self.clock.phase("backward"):
            loss.value.backward()
        return True

    def _build(
        self,
        chosen: list[Trajectory],
        prepared: Preparation,
        part: range,
        totals: Totals,
        distilled_totals: Totals,
    ) -> Batch:
        device = self.model.device
        codec = self.method.resources.codec
        tokens, row = (part_.to(device) for part_ in sampled_tokens(chosen))
        with self.clock.phase("student"):
            heads = [BuiltHead(Head(t.head)) for t in chosen]
            student = score(
                self.model,
                heads,
                chosen,
                codec.pad_id,
                self.settings.scoring_temperature,
                self.settings.head_chunk_tokens,
            )
        self._forwarded["student"] += student.forwarded
        with self.clock.phase("context"):
            contexts = self.method.contexts(chosen)
        kept = [context is not None for context in contexts]
        if kept != [prepared.distilled[i] for i in part]:
            raise RuntimeError(f"method {self.method.name}: contexts differ from prepare's promise")
        with self.clock.phase("teacher"):
            teacher = self._score_teacher(chosen, contexts)
        old = [p for t in chosen for p, s in zip(t.raw_logp, t.supervised, strict=True) if s]
        old_logp = torch.tensor(old, device=device)
        importance = None
        if self.settings.importance_cap:
            with self.clock.phase("loss"):
                importance = self._measure_gap(student, tokens, old_logp, totals)
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
            totals=totals,
            distilled_totals=distilled_totals,
            importance=importance,
            extra={k: v[part.start : part.stop].to(device) for k, v in prepared.extra.items()},
        )

    def _measure_gap(
        self, student: TokenScores, tokens: torch.Tensor, engine_logp: torch.Tensor, totals: Totals
    ) -> torch.Tensor | None:
        """Count the gap to the engine; importance weights where they are switched on."""
        cap = self.settings.importance_cap
        gap = logp_gap(student, tokens, engine_logp)
        weights = truncated_weights(gap, cap) if cap else None
        for name, value in gap_metrics(gap, weights, cap, totals.tokens).items():
            seen = self._gap.get(name, 0.0)
            self._gap[name] = max(seen, value) if name.endswith("_max") else seen + value
        return weights

    def _check_gap(self) -> None:
        limit, found = self.settings.max_logp_gap, self._gap["logp_gap_mean"]
        if limit and found > limit:
            raise UserError(
                f"optimiser.max_logp_gap: engine and trainer are {found:.3g} apart per token on "
                f"average, allowed: {limit}; the engine samples from other weights or in too low "
                "a precision"
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
        self._forwarded["teacher"] += scores.forwarded
        # Log-probabilities are computed later, when gradients are on; the output projection of a
        # teacher that is the policy itself must not be trained through them.
        return scores if needs_grad else scores.without_head_gradient()

    def _update(self) -> dict[str, float]:
        norms: dict[str, float] = {}
        groups = self.method.parameter_groups()
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.settings.clip)
        norms["grad_norm"] = float(norm)
        for group in groups:
            norm = torch.nn.utils.clip_grad_norm_(group.parameters, group.clip)
            norms[f"grad_norm_{group.name}"] = float(norm)
        if not all(math.isfinite(value) for value in norms.values()):
            raise FloatingPointError(f"method {self.method.name}: gradient norms {norms}")
        self.optimisers.policy.step()
        for group in groups:
            self.optimisers.extra[group.name].step()
        return norms

    def _zero_grad(self) -> None:
        self.optimisers.policy.zero_grad(set_to_none=True)
        for optimiser in self.optimisers.extra.values():
            optimiser.zero_grad(set_to_none=True)

    def _set_rate(self) -> None:
        warm = self.settings.warmup_steps
        scale = min(1.0, (self.steps_done + 1) / warm) if warm else 1.0
        for group in self.optimisers.policy.param_groups:
            group["lr"] = self.settings.lr * scale


def _micro_batches(count: int, size: int) -> list[range]:
    return [range(start, min(start + size, count)) for start in range(0, count, size)]


def _totals(trajectories: Sequence[Trajectory]) -> Totals:
    """Sizes of the step; every trajectory here has supervised tokens."""
    n = len(trajectories)
    return Totals(tokens=sum(t.n_sampled for t in trajectories), rows=n, all_rows=n)
