"""Divergences between student and teacher distributions, one value per token.

Both arguments hold finite log-probabilities of the same outcomes on the last axis: the whole
vocabulary, a support with its tail bucket, or a renormalised support (see `support`).
Direction is always spelled out as KL(first || second) with the expectation under the first.
"""

from __future__ import annotations

import math
import warnings

import torch
from torch import Tensor

from lopd_repro.training.losses.support import with_tail

JSD_EDGE = 0.05
"""Closer than this to 0 or 1 (but not at it) a generalised JSD warns."""


def forward_kl(student_logp: Tensor, teacher_logp: Tensor) -> Tensor:
    """KL(teacher || student), mass covering: `[..., V], [..., V] -> [...]`, nats per token."""
    return divergence_terms(student_logp, teacher_logp, beta=0.0).sum(-1)


def reverse_kl(student_logp: Tensor, teacher_logp: Tensor) -> Tensor:
    """KL(student || teacher), mode seeking: `[..., V], [..., V] -> [...]`, nats per token."""
    return divergence_terms(student_logp, teacher_logp, beta=1.0).sum(-1)


def generalised_jsd(student_logp: Tensor, teacher_logp: Tensor, beta: float) -> Tensor:
    """beta * KL(teacher || M) + (1-beta) * KL(student || M), M = (1-beta) student + beta teacher.

    Symmetric at beta = 0.5. Shapes `[..., V], [..., V] -> [...]`. `beta` must lie strictly
    inside (0, 1). Towards the ends the value vanishes like beta * KL(teacher || student) or
    (1-beta) * KL(student || teacher) instead of approaching the KL, so the effective learning
    rate vanishes with it: within 0.05 of an end a `UserWarning` says so. Use `forward_kl` or
    `reverse_kl` to mean the KL itself.
    """
    if not 0.0 < beta < 1.0:
        raise ValueError(
            f"generalised JSD needs 0 < beta < 1, got {beta}; the ends are forward_kl (teacher "
            "first) and reverse_kl (student first), which are no limits of it"
        )
    return divergence_terms(student_logp, teacher_logp, beta).sum(-1)


def divergence(student_logp: Tensor, teacher_logp: Tensor, beta: float) -> Tensor:
    """One number names the divergence, as in OPSD (`beta`), SDPO and SDFT (`alpha`).

    0 is KL(teacher || student), 1 is KL(student || teacher), in between the generalised JSD.
    Shapes `[..., V], [..., V] -> [...]`.
    """
    return divergence_terms(student_logp, teacher_logp, beta).sum(-1)


def divergence_terms(student_logp: Tensor, teacher_logp: Tensor, beta: float) -> Tensor:
    """The summands of `divergence` before the sum over outcomes: `[..., V] -> [..., V]`."""
    if student_logp.shape != teacher_logp.shape:
        raise ValueError(
            f"student {tuple(student_logp.shape)} and teacher {tuple(teacher_logp.shape)} "
            "log-probabilities differ in shape"
        )
    if not 0.0 <= beta <= 1.0:
        raise ValueError(f"beta must lie in [0, 1], got {beta}")
    if beta == 0.0:
        return teacher_logp.exp() * (teacher_logp - student_logp)
    if beta == 1.0:
        return student_logp.exp() * (student_logp - teacher_logp)
    if min(beta, 1.0 - beta) < JSD_EDGE:
        warnings.warn(
            f"generalised JSD at beta = {beta}: near the ends it shrinks towards 0 and does not "
            "approach the KL; use beta 0 (forward KL) or 1 (reverse KL) to mean those",
            UserWarning,
            stacklevel=3,
        )
    mixture = torch.logaddexp(student_logp + math.log1p(-beta), teacher_logp + math.log(beta))
    teacher_part = teacher_logp.exp() * (teacher_logp - mixture)
    student_part = student_logp.exp() * (student_logp - mixture)
    return beta * teacher_part + (1.0 - beta) * student_part


def reverse_kl_topk_tail(student_logp_support: Tensor, teacher_logp_support: Tensor) -> Tensor:
    """KL(student || teacher) on M kept tokens and one tail bucket: `[N, M], [N, M] -> [N]`.

    LOPD eq. 9-10 with the teacher's top-M as support (lopd/loss.py:topk_reverse_kl); SDPO uses
    the student's. Both arguments are log-probabilities under the FULL softmax at the same ids.
    """
    return reverse_kl(with_tail(student_logp_support), with_tail(teacher_logp_support))


def entropy(logp: Tensor) -> Tensor:
    """Entropy in nats: `[..., V] -> [...]`."""
    return -(logp.exp() * logp).sum(-1)
