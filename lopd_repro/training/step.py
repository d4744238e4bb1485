"""One optimiser step: score, loss, backward, clip, update."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from lopd_repro.errors import UserError
from lopd_repro.models.backbone import release
from lopd_repro.parallel.ranks import ONE, Ranks
from lopd_repro.parallel.turns import micro_batches, turns
from lopd_repro.rollout.episodes import Trajectory
from lopd_repro.training.clip import clip_gradients
from lopd_repro.training.losses import Totals
from lopd_repro.training.method import Method
from lopd_repro.training.micro_batch import MicroBatches, Share, StepBatch
from lopd_repro.training.step_settings import PhaseClock, StepSettings
from lopd_repro.training.teachers import Teacher

__all__ = ["Optimisers", "PhaseClock", "StepSettings", "Stepper"]


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
        self,
        model: Any,
        method: Method,
        settings: StepSettings,
        clock: PhaseClock,
        ranks: Ranks = ONE,
    ) -> None:
        self.model = model
        self.method = method
        self.settings = settings
        self.clock = clock
        self.ranks = ranks
        self.teacher = Teacher(method.teacher, model, method.teacher_model)
        self.optimisers = Optimisers.build(model, method, settings)
        self.steps_done = 0
        self._micro_batches = MicroBatches(model, method, self.teacher, settings, clock)

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
        kept = [t for t, distilled in zip(usable, prepared.distilled, strict=True) if distilled]
        batch = StepBatch(usable, prepared, _totals(usable), _totals(kept))
        metrics["tokens"] = batch.totals.tokens
        metrics["distilled_tokens"] = batch.distilled_totals.tokens
        metrics["loss"] = 0.0
        metrics["empty_batches"] = 1.0
        gap = {"logp_gap_mean": 0.0, "logp_gap_max": 0.0}
        forwarded = {"student": 0, "teacher": 0}
        if usable:
            self._set_rate()
            self._zero_grad()
            shares = self._shares(batch)
            for share in shares:
                metrics["loss"] += share.loss
                for name, value in share.sums.items():
                    metrics[name] = metrics.get(name, 0.0) + value
                for name, value in share.gap.items():
                    seen = gap.get(name, 0.0)
                    gap[name] = max(seen, value) if name.endswith("_max") else seen + value
                for who, n in share.forwarded.items():
                    forwarded[who] += n
            self._check_gap(gap["logp_gap_mean"])
            if any(share.trained for share in shares):
                metrics["empty_batches"] = 0.0
                with self.clock.phase("optimiser"):
                    metrics.update(self._update())
                self.teacher.update()
        self.steps_done += 1
        metrics.update(gap)
        metrics.update({f"forwarded_{who}": float(n) for who, n in forwarded.items()})
        metrics.update(self.method.after_step(metrics))
        return metrics

    def _shares(self, step: StepBatch) -> list[Share]:
        """Accumulate the step's gradient; the shares of all micro-batches, in their order."""
        own: dict[int, Share] = {}
        for turn in turns(
            micro_batches(len(step.trajectories), self.settings.micro_batch),
            [len(t.head) + len(t.tail) for t in step.trajectories],
            step.prepared.distilled,
            self.ranks.rank,
            self.ranks.size,
        ):
            value, student = None, None
            if turn.part is not None:
                share, value, student = self._micro_batches.loss(step, turn.part)
                own[turn.part.start] = share
            if self.ranks.size > 1:
                value = self._micro_batches.in_step(step, turn, value, student)
            if value is not None and value.requires_grad:
                with self.clock.phase("backward"):
                    value.backward()
            release(self.model)
            release(self.teacher.model)
        shares = {
            start: share for found in self.ranks.gather(own) for start, share in found.items()
        }
        return [shares[start] for start in sorted(shares)]

    def _check_gap(self, found: float) -> None:
        limit = self.settings.max_logp_gap
        if limit and found > limit:
            raise UserError(
                f"optimiser.max_logp_gap: engine and trainer are {found:.3g} apart per token on "
                f"average, allowed: {limit}; the engine samples from other weights or in too low "
                "a precision"
            )

    def _update(self) -> dict[str, float]:
        norms: dict[str, float] = {}
        groups = self.method.parameter_groups()
        norms["grad_norm"] = clip_gradients(self.model.parameters(), self.settings.clip)
        for group in groups:
            norms[f"grad_norm_{group.name}"] = clip_gradients(group.parameters, group.clip)
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


def _totals(trajectories: Sequence[Trajectory]) -> Totals:
    """Sizes of the step; every trajectory here has supervised tokens."""
    n = len(trajectories)
    return Totals(tokens=sum(t.n_sampled for t in trajectories), rows=n, all_rows=n)
