"""Truncated supports: a tail bucket for the mass left out, or renormalisation over what is kept.

A support is the top-M tokens of one distribution (the teacher's in LOPD, the student's in SDPO);
both distributions are read at the same ids. The tail keeps the loss a divergence between two
complete (M+1)-way distributions; renormalising compares the shapes inside the support only and
is blind to how much mass either side puts there.
"""

from __future__ import annotations

import torch
from torch import Tensor

TAIL_CEILING = -1e-7
"""Largest log-mass of a support. Above it the tail is held at log(1e-7) = -16.118."""


def tail_logp(support_logp: Tensor) -> Tensor:
    """Log-probability of everything outside the support: `[..., M] -> [...]`.

    `log(-expm1(min(logsumexp, -1e-7)))`, as in the LOPD and SDPO code. Where the support holds
    more than 1 - 1e-7 of the mass the result is constant and passes no gradient, and a KL that
    uses it can come out slightly negative.
    """
    if support_logp.dtype not in (torch.float32, torch.float64):
        raise TypeError(f"log-probabilities must be float32 or float64, got {support_logp.dtype}")
    mass = torch.logsumexp(support_logp, dim=-1)
    return torch.log(-torch.expm1(mass.clamp(max=TAIL_CEILING)))


def with_tail(support_logp: Tensor) -> Tensor:
    """The support's log-probabilities followed by the tail bucket: `[..., M] -> [..., M+1]`."""
    return torch.cat([support_logp, tail_logp(support_logp).unsqueeze(-1)], dim=-1)


def renormalise(support_logp: Tensor, temperature: float = 1.0) -> Tensor:
    """Log-probabilities given that the token lies in the support: `[..., M] -> [..., M]`.

    With a temperature, of the distribution proportional to p^(1/temperature) on the support.
    Also takes logits, since a constant per row cancels.
    """
    return torch.log_softmax(support_logp / temperature, dim=-1)


def temper(logp: Tensor, temperature: float) -> Tensor:
    """Full-vocabulary log-probabilities (or logits) at a temperature: `[..., V] -> [..., V]`."""
    if temperature <= 0:
        raise ValueError(f"temperature must be positive, got {temperature}")
    return torch.log_softmax(logp / temperature, dim=-1)


def captured_mass(support_logp: Tensor) -> Tensor:
    """Probability that a support holds, without gradient: `[..., M] -> [...]`, in [0, 1]."""
    return torch.logsumexp(support_logp.detach(), dim=-1).exp()
