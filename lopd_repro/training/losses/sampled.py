"""Reverse KL seen through the sampled token alone: no support to gather, more variance."""

from __future__ import annotations

from torch import Tensor


def sampled_reverse_kl(
    student_logp: Tensor,
    teacher_logp: Tensor,
    sampling_logp: Tensor,
    *,
    detach_rho: bool = False,
    exponent_clamp: float = 20.0,
    log_rho_clamp: float = 10.0,
) -> Tensor:
    """Skill-SD's importance-weighted estimate of KL(student || teacher): `[N] x 3 -> [N]`.

    rho * (exp(-ell) - 1 + ell), ell = student - teacher and rho = exp(student - sampling), all
    log-probabilities of the sampled tokens. The bracket is never negative. Both exponents are
    capped from above. `detach_rho=False` lets the gradient flow through rho, which makes the
    on-policy gradient ell * grad(student_logp), the score-function gradient of the reverse KL;
    with `detach_rho=True` it is (1 - exp(-ell)) * grad(student_logp), whose expectation under the
    student is the gradient of the FORWARD KL(teacher || student).
    """
    ell = student_logp - teacher_logp
    rho = (student_logp - sampling_logp).clamp(max=log_rho_clamp).exp()
    if detach_rho:
        rho = rho.detach()
    return rho * ((-ell).clamp(max=exponent_clamp).exp() - 1.0 + ell)


def score_function_reverse_kl(student_logp: Tensor, teacher_logp: Tensor) -> Tensor:
    """Surrogate whose gradient is the score-function gradient of KL(student || teacher): `[N]`.

    detach(student - teacher) * student. Its value is no divergence: log the k3 estimate instead.
    SDPO's sampled-token mode, OPSD's 'thinking machines' loss.
    """
    return (student_logp - teacher_logp).detach() * student_logp
