"""The composer's objective: distil, keep a margin over the student, stay near the cold start.

LOPD eq. 11-13 and the dual update. The paper's anchor is a squared norm, the released code's the
mean of squares, which is latents x width times smaller: both are named reductions.
"""

from __future__ import annotations

from typing import Literal

from torch import Tensor

AnchorReduction = Literal["mean", "sum", "relative"]


def outcome_weight(reward: Tensor) -> Tensor:
    """A = 2 r - 1 for a reward r in [0, 1]: `[B] -> [B]`, in [-1, 1]."""
    return 2.0 * reward - 1.0


def privilege(teacher_logp: Tensor, student_logp: Tensor) -> Tensor:
    """delta = log pT(a) - stopgrad(log pS(a)) on the sampled tokens (eq. 11): `[N] -> [N]`."""
    return teacher_logp - student_logp.detach()


def weighted_privilege(
    teacher_logp: Tensor, student_logp: Tensor, reward: Tensor, row: Tensor
) -> Tensor:
    """A * delta per token: `[N], [N], reward [B], row [N] -> [N]`.

    `aggregate` makes it Delta (eq. 12): `seq_mean_token_mean` as in the paper and in the released
    code's loss, `token_mean` as in the released code's dual update.
    """
    weight = outcome_weight(reward).to(teacher_logp.dtype)
    return weight[row] * privilege(teacher_logp, student_logp)


def anchor_distance(latents: Tensor, start: Tensor, reduction: AnchorReduction = "sum") -> Tensor:
    """Distance of latents `[B, L, d]` from their cold-start values, per trajectory `[B]`.

    "sum": squared norm over L and d (the paper). "mean": mean of squares (the released code).
    "relative": mean of squares over the start's mean of squares, free of the embedding scale.
    `start` gets no gradient.
    """
    if latents.shape != start.shape or latents.dim() != 3:
        raise ValueError(
            f"latents {tuple(latents.shape)} and start {tuple(start.shape)} must both be [B, L, d]"
        )
    start = start.detach()
    squares = (latents - start).square()
    if reduction == "sum":
        return squares.sum((1, 2))
    if reduction == "mean":
        return squares.mean((1, 2))
    if reduction == "relative":
        return squares.mean((1, 2)) / start.square().mean((1, 2))
    raise ValueError(f"unknown anchor reduction {reduction!r}; allowed: mean, sum, relative")


def composer_objective(
    kl: Tensor,
    delta: Tensor,
    anchor: Tensor,
    *,
    beta: float,
    margin: float,
    anchor_weight: float,
    share: float = 1.0,
) -> Tensor:
    """kl + beta * (margin - delta) + anchor_weight * anchor (eq. 13), scalars.

    It is linear in its three terms, so for a micro-batch pass their shares of the step's values
    and its `share` of the step (which only scales the constant beta * margin).
    """
    return kl + beta * (margin * share - delta) + anchor_weight * anchor


def dual_update(beta: float, delta: float, *, margin: float, eta: float) -> float:
    """beta <- max(0, beta + eta * (margin - delta)): projected ascent on the margin constraint."""
    return max(0.0, beta + eta * (margin - delta))
