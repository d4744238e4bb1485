"""Clipped policy losses and sampled-token losses: hand-derived values and gradients."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from lopd_repro.training.losses import (
    clip_flags,
    importance_weight,
    k3_kl,
    log_ratio,
    ppo_clip,
    reverse_kl,
    sampled_reverse_kl,
    score_function_reverse_kl,
    sequence_log_ratio,
)


def t64(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


# ratios 1.5, 1.5, 0.5, 0.5, 1.1, 5 with advantages 2, -2, 2, -2, 1, -1; clip to [0.8, 1.28]
LOG_RATIO = t64(1.5, 1.5, 0.5, 0.5, 1.1, 5.0).log()
ADVANTAGE = t64(2, -2, 2, -2, 1, -1)


def test_ppo_clip_by_hand() -> None:
    # max(-r A, -clip(r) A): up with A > 0 is clipped at 1.28, down with A < 0 at 0.8; the other
    # two sides keep the ratio
    expected = t64(-2.56, 3.0, -1.0, 1.6, -1.1, 5.0)
    torch.testing.assert_close(ppo_clip(LOG_RATIO, ADVANTAGE, 0.2, 0.28), expected)
    flags = clip_flags(LOG_RATIO, ADVANTAGE, 0.2, 0.28)
    assert flags.clipped.tolist() == [True, False, False, True, False, False]
    assert not flags.dual_clipped.any()


def test_dual_clip_bounds_only_negative_advantages() -> None:
    loss = ppo_clip(LOG_RATIO, ADVANTAGE, 0.2, 0.28, dual_clip=3.0)
    torch.testing.assert_close(loss, t64(-2.56, 3.0, -1.0, 1.6, -1.1, 3.0))
    flags = clip_flags(LOG_RATIO, ADVANTAGE, 0.2, 0.28, dual_clip=3.0)
    assert flags.dual_clipped.tolist() == [False] * 5 + [True]
    with pytest.raises(ValueError, match="greater than 1"):
        ppo_clip(LOG_RATIO, ADVANTAGE, dual_clip=1.0)


def test_delta_caps_the_unclipped_ratio() -> None:
    # r = 5, A = -1: the unclipped term is capped at 1.4
    loss = ppo_clip(LOG_RATIO, ADVANTAGE, 0.2, 0.28, delta=1.4)
    torch.testing.assert_close(loss, t64(-2.56, 2.8, -1.0, 1.6, -1.1, 1.4))


def test_clipped_tokens_pass_no_gradient_and_on_policy_passes_the_advantage() -> None:
    leaf = LOG_RATIO.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(ppo_clip(leaf, ADVANTAGE, 0.2, 0.28).sum(), leaf)
    # d(-r A)/d log r = -r A where the ratio is live
    torch.testing.assert_close(gradient, t64(0, 3.0, -1.0, 0, -1.1, 5.0))
    leaf = torch.zeros(6, dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(ppo_clip(leaf, ADVANTAGE).sum(), leaf)
    torch.testing.assert_close(gradient, -ADVANTAGE)


def test_log_ratio_clamp_stops_value_and_gradient() -> None:
    leaf = t64(-1.0, -30.0).requires_grad_()
    ratio = log_ratio(leaf, t64(-2.0, -1.0), clamp=20.0)
    assert ratio.tolist() == [1.0, -20.0]
    assert torch.autograd.grad(ratio.sum(), leaf)[0].tolist() == [1.0, 0.0]


def test_sequence_ratio_is_the_row_mean_on_every_token() -> None:
    row = torch.tensor([0, 0, 2, 0])
    values = sequence_log_ratio(t64(0.1, 0.2, 0.7, 0.6), row, 3)
    torch.testing.assert_close(values, t64(0.3, 0.3, 0.7, 0.3))


def test_k3_by_hand() -> None:
    # reference / policy = 2: 2 - 1 - ln 2; equal: 0
    value = k3_kl(t64(0.25, 0.5).log(), t64(0.5, 0.5).log())
    torch.testing.assert_close(value, t64(1.0 - math.log(2.0), 0.0))


def test_importance_weight_is_detached_and_capped() -> None:
    leaf = t64(0.9, 0.2).log().requires_grad_()
    weight = importance_weight(leaf, t64(0.3, 0.4).log(), ceiling=2.0)
    torch.testing.assert_close(weight, t64(2.0, 0.5))
    assert not weight.requires_grad


def test_sampled_reverse_kl_by_hand() -> None:
    # student 1/2, teacher 1/4, sampled from 1/4: ell = ln 2, rho = 2, 2 (1/2 - 1 + ln 2)
    args = t64(0.5).log(), t64(0.25).log(), t64(0.25).log()
    assert sampled_reverse_kl(*args).item() == pytest.approx(2 * (math.log(2) - 0.5))
    # the clamps: exp(-ell) at e^20, rho at e^10
    extreme = sampled_reverse_kl(t64(-50.0), t64(0.0), t64(-80.0)).item()
    assert extreme == pytest.approx(math.exp(10) * (math.exp(20) - 1 - 50))


def test_sampled_losses_average_to_the_reverse_kl_and_its_gradient() -> None:
    """Sum over the vocabulary with the student's probabilities: the exact expectation."""
    generator = torch.Generator().manual_seed(3)
    logits = torch.randn(6, dtype=torch.float64, generator=generator).requires_grad_()
    teacher = torch.log_softmax(torch.randn(6, dtype=torch.float64, generator=generator), -1)
    student = torch.log_softmax(logits, -1)
    exact = reverse_kl(student, teacher)
    (exact_gradient,) = torch.autograd.grad(exact, logits, retain_graph=True)

    weights = student.detach().exp()
    k3 = (weights * sampled_reverse_kl(student, teacher, student.detach())).sum()
    torch.testing.assert_close(k3, exact)
    (gradient,) = torch.autograd.grad(k3, logits, retain_graph=True)
    torch.testing.assert_close(gradient, exact_gradient)

    surrogate = (weights * score_function_reverse_kl(student, teacher)).sum()
    (gradient,) = torch.autograd.grad(surrogate, logits, retain_graph=True)
    torch.testing.assert_close(gradient, exact_gradient)

    # without the path through rho the gradient is that of KL(teacher || student)
    detached = sampled_reverse_kl(student, teacher, student.detach(), detach_rho=True)
    (gradient,) = torch.autograd.grad((weights * detached).sum(), logits)
    torch.testing.assert_close(gradient, student.detach().exp() - teacher.exp())


def test_equal_policies_have_no_sampled_loss_and_no_gradient() -> None:
    leaf = t64(-0.5, -3.0).requires_grad_()
    for loss in (
        sampled_reverse_kl(leaf, leaf.detach(), leaf.detach()),
        score_function_reverse_kl(leaf, leaf.detach()),
        k3_kl(leaf, leaf.detach()),
    ):
        (gradient,) = torch.autograd.grad(loss.sum(), leaf)
        assert loss.abs().max() == 0.0
        assert gradient.abs().max() == 0.0


def test_gradients_against_finite_differences() -> None:
    old, teacher, advantage = t64(-1.0, -0.7, -2.0), t64(-1.2, -0.1, -3.0), t64(1.0, -1.0, 0.5)
    leaf = t64(-0.9, -0.65, -2.1).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: ppo_clip(log_ratio(x, old), advantage), leaf)
    assert torch.autograd.gradcheck(lambda x: sampled_reverse_kl(x, teacher, old), leaf)
    assert torch.autograd.gradcheck(lambda x: k3_kl(x, old), leaf)
