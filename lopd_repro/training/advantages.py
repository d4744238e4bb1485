"""Group-relative advantages (GRPO) with explicit group ids.

Standard deviations are Bessel-corrected, as in verl and TRL. Departs from both in three named
ways: groups are given by ids and may have any size and order; a missing reward (NaN) is left out
of its group's statistics, gets advantage 0 and is counted; a group whose rewards are all equal
gets exact zeros instead of rounding noise divided by epsilon.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

StdMode = Literal["group", "batch", "none"]


@dataclass(frozen=True)
class GroupAdvantages:
    """advantage `[B]` (0 where the reward is missing), valid `BoolTensor [B]`, and counts.

    n_missing: NaN rewards. n_constant_groups: groups of two or more valid rewards, all equal
    (no signal). n_single_groups: groups with one valid reward.
    """

    advantage: Tensor
    valid: Tensor
    n_missing: int
    n_constant_groups: int
    n_single_groups: int


def group_advantages(
    reward: Tensor,
    group: Tensor,
    *,
    std: StdMode = "group",
    eps: float = 1e-6,
    singleton: Literal["zero", "raw"] = "zero",
    variance_floor: float = 0.0,
) -> GroupAdvantages:
    """(reward - mean of its group) / (std + eps): `reward [B], group LongTensor [B]`.

    std: "group" the group's own, "batch" that of all valid rewards (the mean stays the group's),
    "none" no division. eps: 1e-6 in verl, 1e-4 in TRL.
    singleton: advantage of a rollout without valid siblings. "zero": nothing to compare with.
    "raw": verl's, reward / (1 + eps) (reward itself with "none").
    variance_floor: lower bound of a group's variance (verl's vectorised variant: 1e-6).
    """
    if reward.dim() != 1 or reward.shape != group.shape:
        raise ValueError(
            f"reward {tuple(reward.shape)} and group {tuple(group.shape)} must be equal and flat"
        )
    if std not in ("group", "batch", "none"):
        raise ValueError(f"unknown std {std!r}; allowed: group, batch, none")
    valid = ~torch.isnan(reward)
    known = torch.where(valid, reward, torch.zeros_like(reward))
    ids, index = torch.unique(group, return_inverse=True)
    zeros = reward.new_zeros(len(ids))
    counts = zeros.index_add(0, index, valid.to(reward.dtype))
    means = zeros.index_add(0, index, known) / counts.clamp(min=1)
    centred = torch.where(valid, known - means[index], torch.zeros_like(reward))

    high = _extreme(known.masked_fill(~valid, -torch.inf), index, len(ids), "amax")
    low = _extreme(known.masked_fill(~valid, torch.inf), index, len(ids), "amin")
    single = counts == 1
    constant = (high == low) & (counts >= 2)
    centred = torch.where(constant[index], torch.zeros_like(centred), centred)

    if std == "group":
        squares = zeros.index_add(0, index, centred.square())
        variance = squares / (counts - 1).clamp(min=1)
        scale = variance.clamp(min=variance_floor).sqrt()[index] + eps
    elif std == "batch":
        rest = known[valid]
        spread = rest.std() if rest.numel() > 1 else rest.new_zeros(())
        scale = spread + eps
    else:
        scale = torch.ones_like(reward)
    advantage = torch.where(centred == 0, torch.zeros_like(centred), centred / scale)

    if singleton == "raw":
        raw = known if std == "none" else known / (1.0 + eps)
        advantage = torch.where(single[index] & valid, raw, advantage)
    elif singleton != "zero":
        raise ValueError(f"unknown singleton {singleton!r}; allowed: zero, raw")
    return GroupAdvantages(
        advantage=advantage,
        valid=valid,
        n_missing=int((~valid).sum()),
        n_constant_groups=int(constant.sum()),
        n_single_groups=int(single.sum()),
    )


def _extreme(values: Tensor, index: Tensor, n: int, reduce: str) -> Tensor:
    return values.new_zeros(n).scatter_reduce(0, index, values, reduce, include_self=False)
