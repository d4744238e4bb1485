"""GRPO: group-relative policy optimisation (the paper's RLVR baseline).

As in the paper's appendix B.1: group-normalised advantages, PPO clip 0.2/0.2, no KL term, groups
of four. Departures: one update per batch of rollouts, so the ratio is 1 at the update and the
clip never bites unless `old_logp` is `rollout` and engine and trainer disagree; rewards that are
missing (NaN) get advantage 0 and are counted instead of dropping the whole group. With `old_logp:
rollout` the engine's log-probabilities are at temperature 1, so `optimiser.scoring_temperature`
must stay 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import torch

from lopd_repro.errors import UserError
from lopd_repro.rollout.episodes import Trajectory
from lopd_repro.training.advantages import group_advantages
from lopd_repro.training.losses import (
    AGGREGATION_MODES,
    aggregate,
    clip_flags,
    log_ratio,
    ppo_clip,
)
from lopd_repro.training.method import Batch, Loss, Method, Preparation, Resources, choice


class GRPO(Method):
    """Policy gradient on group-normalised rewards; no teacher."""

    name = "grpo"
    label = "GRPO"
    defaults: ClassVar[dict[str, Any]] = {
        "eps_low": 0.2,
        "eps_high": 0.2,
        "std": "group",
        "std_eps": 1e-6,
        "aggregation": "token_mean",
        "old_logp": "recomputed",
        "log_ratio_clamp": 20.0,
    }

    def __init__(self, settings: dict[str, Any], resources: Resources) -> None:
        super().__init__(settings, resources)
        s = self.settings
        choice(self.name, "std", s["std"], ("group", "batch", "none"))
        choice(self.name, "aggregation", s["aggregation"], AGGREGATION_MODES)
        choice(self.name, "old_logp", s["old_logp"], ("recomputed", "rollout"))

    def prepare(self, trajectories: Sequence[Trajectory]) -> Preparation:
        """Advantages over the whole step's groups."""
        result = group_advantages(
            torch.tensor([t.reward for t in trajectories]),
            torch.tensor([t.group for t in trajectories]),
            std=self.settings["std"],
            eps=self.settings["std_eps"],
        )
        return Preparation(
            distilled=[False] * len(trajectories),
            extra={"advantage": result.advantage},
            metrics={
                "missing_rewards": result.n_missing,
                "constant_groups": result.n_constant_groups,
            },
        )

    def loss(self, batch: Batch) -> Loss:
        """Clipped policy loss on the sampled tokens."""
        s = self.settings
        if s["old_logp"] == "rollout" and batch.importance is not None:
            raise UserError(
                "methods.grpo.old_logp: found rollout with optimiser.importance_cap, allowed: one "
                "of them (the ratio to the engine's policy would count twice)"
            )
        advantage = batch.extra["advantage"][batch.row]

        def ratio(logp: torch.Tensor, part: slice) -> torch.Tensor:
            old = batch.old_logp[part] if s["old_logp"] == "rollout" else logp.detach()
            return log_ratio(logp, old, s["log_ratio_clamp"])

        def clipped_loss(logp: torch.Tensor, part: slice) -> torch.Tensor:
            return ppo_clip(ratio(logp, part), advantage[part], s["eps_low"], s["eps_high"])

        def mean(values: torch.Tensor) -> torch.Tensor:
            return aggregate(
                batch.weighted(values),
                batch.row,
                len(batch.trajectories),
                s["aggregation"],
                totals=batch.totals,
            )

        value, logp = batch.student.mean_loss(batch.tokens, clipped_loss, mean)
        clipped = clip_flags(
            ratio(logp, slice(0, len(logp))), advantage, s["eps_low"], s["eps_high"]
        ).clipped
        tokens = max(1.0, batch.totals.tokens)
        return Loss(value, {"clip_fraction": float(clipped.sum()) / tokens})


METHOD = GRPO
