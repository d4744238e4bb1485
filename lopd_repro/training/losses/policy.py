"""Clipped policy losses: token or sequence importance, dual clip, k3 KL.

verl clamps the log-ratio to +-20 and clips a second time where the advantage is negative (dual
clip, c = 3); TRL does neither and can cap the unclipped ratio at `delta` instead. Each is an
argument here, off by default.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from lopd_repro.training.losses.aggregation import row_mean


def log_ratio(logp: Tensor, old_logp: Tensor, clamp: float | None = None) -> Tensor:
    """`logp - old_logp` per token `[N]`, clamped to +-`clamp` (verl: 20; no gradient beyond)."""
    ratio = logp - old_logp
    return ratio if clamp is None else ratio.clamp(-clamp, clamp)


def sequence_log_ratio(token_log_ratio: Tensor, row: Tensor, n_rows: int) -> Tensor:
    """Mean log-ratio of a token's trajectory, per token: `[N] -> [N]` (sequence importance).

    Needs whole trajectories in the batch.
    """
    return row_mean(token_log_ratio, row, n_rows)[row]


def ppo_clip(
    log_ratio: Tensor,
    advantage: Tensor,
    eps_low: float = 0.2,
    eps_high: float = 0.2,
    *,
    dual_clip: float | None = None,
    delta: float | None = None,
) -> Tensor:
    """PPO's clipped objective as a loss per token: `[N], [N] -> [N]`.

    `max(-r A, -clip(r, 1-eps_low, 1+eps_high) A)` with r = exp(log_ratio). `dual_clip` c bounds
    it by -c A where A < 0. `delta` caps r in the unclipped term.
    """
    unclipped, clipped, bound = _terms(log_ratio, advantage, eps_low, eps_high, dual_clip, delta)
    loss = torch.maximum(unclipped, clipped)
    return loss if bound is None else torch.where(advantage < 0, torch.minimum(loss, bound), loss)


class ClipFlags(NamedTuple):
    """Per-token booleans `[N]`: the clip was active; the dual clip was active."""

    clipped: Tensor
    dual_clipped: Tensor


@torch.no_grad()
def clip_flags(
    log_ratio: Tensor,
    advantage: Tensor,
    eps_low: float = 0.2,
    eps_high: float = 0.2,
    *,
    dual_clip: float | None = None,
    delta: float | None = None,
) -> ClipFlags:
    """Which tokens `ppo_clip` clipped, for the logged clip fractions."""
    unclipped, clipped, bound = _terms(log_ratio, advantage, eps_low, eps_high, dual_clip, delta)
    active = clipped > unclipped
    if bound is None:
        return ClipFlags(active, torch.zeros_like(active))
    return ClipFlags(active, (torch.maximum(unclipped, clipped) > bound) & (advantage < 0))


def _terms(
    log_ratio: Tensor,
    advantage: Tensor,
    eps_low: float,
    eps_high: float,
    dual_clip: float | None,
    delta: float | None,
) -> tuple[Tensor, Tensor, Tensor | None]:
    if dual_clip is not None and dual_clip <= 1.0:
        raise ValueError(f"dual_clip must be greater than 1, got {dual_clip}")
    ratio = log_ratio.exp()
    capped = ratio if delta is None else ratio.clamp(max=delta)
    clipped = ratio.clamp(1.0 - eps_low, 1.0 + eps_high)
    bound = None if dual_clip is None else -advantage * dual_clip
    return -advantage * capped, -advantage * clipped, bound


def k3_kl(logp: Tensor, reference_logp: Tensor) -> Tensor:
    """Schulman's k3 estimate of KL(policy || reference) on sampled tokens: `[N] -> [N]`.

    exp(d) - 1 - d with d = reference_logp - logp; never negative.
    """
    difference = reference_logp - logp
    return difference.exp() - difference - 1.0


def importance_weight(
    logp: Tensor, sampling_logp: Tensor, ceiling: float | None = None, clamp: float = 20.0
) -> Tensor:
    """Detached importance weight min(exp(clamped log-ratio), ceiling) per token `[N]`.

    SDPO's and TRL's `is_clip` (ceiling 2): multiplies a per-token loss whose tokens were sampled
    from an older policy.
    """
    weight = log_ratio(logp.detach(), sampling_logp.detach(), clamp).exp()
    return weight if ceiling is None else weight.clamp(max=ceiling)
