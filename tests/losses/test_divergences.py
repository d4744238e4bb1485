"""Divergences: hand-derived values, directions, supports, gradients."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from lopd_repro.training.losses import (
    captured_mass,
    divergence,
    entropy,
    forward_kl,
    generalised_jsd,
    renormalise,
    reverse_kl,
    reverse_kl_topk_tail,
    tail_logp,
    temper,
    with_tail,
)

STUDENT = torch.tensor([[0.5, 0.25, 0.125, 0.125]], dtype=torch.float64).log()
TEACHER = torch.tensor([[0.25, 0.25, 0.25, 0.25]], dtype=torch.float64).log()
LN2 = math.log(2.0)


def logits(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_directions_by_hand() -> None:
    # KL(student || teacher) = .5 ln 2 + .25 ln 1 + 2 * .125 ln .5 = (.5 - .25) ln 2
    assert reverse_kl(STUDENT, TEACHER).item() == pytest.approx(0.25 * LN2, abs=1e-15)
    # student (1/2, 1/2), teacher (1/4, 3/4): the two directions differ
    s = torch.tensor([0.5, 0.5], dtype=torch.float64).log()
    t = torch.tensor([0.25, 0.75], dtype=torch.float64).log()
    assert forward_kl(s, t).item() == pytest.approx(0.25 * math.log(0.5) + 0.75 * math.log(1.5))
    assert reverse_kl(s, t).item() == pytest.approx(0.5 * LN2 + 0.5 * math.log(2 / 3))
    assert divergence(s, t, 0.0) == forward_kl(s, t)
    assert divergence(s, t, 1.0) == reverse_kl(s, t)


def test_jsd_by_hand() -> None:
    # student (1/2, 1/2), teacher (1/4, 3/4), beta = 1/4: M = 3/4 student + 1/4 teacher
    # = (7/16, 9/16); 1/4 KL(teacher || M) + 3/4 KL(student || M)
    s = torch.tensor([0.5, 0.5], dtype=torch.float64).log()
    t = torch.tensor([0.25, 0.75], dtype=torch.float64).log()
    teacher_part = 0.25 * math.log(4 / 7) + 0.75 * math.log(4 / 3)
    student_part = 0.5 * math.log(8 / 7) + 0.5 * math.log(8 / 9)
    expected = 0.25 * teacher_part + 0.75 * student_part
    assert generalised_jsd(s, t, 0.25).item() == pytest.approx(expected, abs=1e-15)
    assert generalised_jsd(s, t, 0.5).item() == pytest.approx(generalised_jsd(t, s, 0.5).item())


@pytest.mark.parametrize("beta", [0.0, 1.0, -0.1, 1.1])
def test_jsd_refuses_the_ends(beta: float) -> None:
    with pytest.raises(ValueError, match="forward_kl"):
        generalised_jsd(STUDENT, TEACHER, beta)


@pytest.mark.parametrize("beta", [0.01, 0.99])
def test_jsd_warns_near_the_ends_where_it_vanishes(beta: float) -> None:
    with pytest.warns(UserWarning, match="shrinks towards 0"):
        value = divergence(STUDENT, TEACHER, beta)
    # beta KL(teacher || student) to first order, not the KL itself
    assert value.item() == pytest.approx(0.01 * 0.25 * LN2, rel=0.05)


def test_shapes_must_agree() -> None:
    with pytest.raises(ValueError, match="differ in shape"):
        forward_kl(STUDENT, TEACHER[:, :3])


def test_tail_bucket_by_hand() -> None:
    # support {0, 1} of the student holds 3/4, of the teacher 1/2: buckets (1/2, 1/4, 1/4) and
    # (1/4, 1/4, 1/2); KL = 1/2 ln 2 + 0 + 1/4 ln 1/2 = 1/4 ln 2
    s, t = STUDENT[:, :2], TEACHER[:, :2]
    torch.testing.assert_close(tail_logp(s), torch.tensor([0.25], dtype=torch.float64).log())
    assert reverse_kl_topk_tail(s, t).item() == pytest.approx(0.25 * LN2)
    assert with_tail(s).exp().sum().item() == pytest.approx(1.0)
    assert captured_mass(s).item() == pytest.approx(0.75)
    # renormalised: (2/3, 1/3) against (1/2, 1/2)
    renormalised = reverse_kl(renormalise(s), renormalise(t)).item()
    assert renormalised == pytest.approx(2 / 3 * math.log(4 / 3) + 1 / 3 * math.log(2 / 3))


def test_saturated_support_holds_the_tail_and_stops_its_gradient() -> None:
    logp = torch.log_softmax(logits(3, 5), -1).requires_grad_()
    tail = tail_logp(logp)
    torch.testing.assert_close(tail, torch.full_like(tail, math.log(-math.expm1(-1e-7))))
    assert tail[0].item() == pytest.approx(-16.118, abs=1e-3)
    (gradient,) = torch.autograd.grad(tail.sum(), logp)
    assert gradient.abs().max() == 0


def test_tail_refuses_half_precision() -> None:
    with pytest.raises(TypeError, match="float32 or float64"):
        tail_logp(STUDENT.bfloat16())


def test_temperature_matches_tempered_logits() -> None:
    raw = logits(4, 7)
    expected = torch.softmax(raw / 1.5, -1)
    torch.testing.assert_close(temper(torch.log_softmax(raw, -1), 1.5).exp(), expected)
    part = torch.log_softmax(raw, -1)[:, 2:5]
    torch.testing.assert_close(renormalise(part, 1.5), renormalise(raw[:, 2:5], 1.5))
    with pytest.raises(ValueError, match="positive"):
        temper(raw, 0.0)


def test_entropy_of_a_uniform_distribution() -> None:
    assert entropy(TEACHER).item() == pytest.approx(math.log(4))


def on_support(logp: Tensor) -> Tensor:
    ids = torch.tensor([[0, 3], [1, 2], [4, 0]])
    return with_tail(logp.gather(-1, ids))


LOSSES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "forward": forward_kl,
    "reverse": reverse_kl,
    "jsd": lambda s, t: generalised_jsd(s, t, 0.3),
    "tail": lambda s, t: reverse_kl(on_support(s), on_support(t)),
    "tail forward": lambda s, t: forward_kl(on_support(s), on_support(t)),
    "renormalised": lambda s, t: generalised_jsd(renormalise(s[:, :3]), renormalise(t[:, :3]), 0.5),
}


@pytest.mark.parametrize("name", LOSSES)
def test_gradients_against_finite_differences(name: str) -> None:
    loss = LOSSES[name]
    student, teacher = logits(3, 5).requires_grad_(), logits(3, 5, seed=1).requires_grad_()

    def from_logits(a: Tensor, b: Tensor) -> Tensor:
        return loss(torch.log_softmax(a, -1), torch.log_softmax(b, -1))

    assert torch.autograd.gradcheck(from_logits, (student, teacher))
    assert (from_logits(student, teacher) > 0).all()


@pytest.mark.parametrize("name", LOSSES)
def test_equal_distributions_cost_nothing(name: str) -> None:
    student = logits(3, 5).requires_grad_()
    teacher = torch.log_softmax(student.detach(), -1)
    value = LOSSES[name](torch.log_softmax(student, -1), teacher)
    (gradient,) = torch.autograd.grad(value.sum(), student)
    assert value.abs().max() < 1e-15
    assert gradient.abs().max() < 1e-15


def test_more_support_never_lowers_the_tailed_divergence() -> None:
    """Merging outcomes into the tail can only lose divergence (data processing)."""
    s = torch.log_softmax(logits(6, 12), -1)
    t = torch.log_softmax(logits(6, 12, seed=1), -1)
    ids = t.argsort(-1, descending=True)
    values = [
        reverse_kl_topk_tail(s.gather(-1, ids[:, :m]), t.gather(-1, ids[:, :m]))
        for m in range(1, 12)
    ]
    for less, more in itertools.pairwise(values):
        assert (more >= less - 1e-12).all()
    torch.testing.assert_close(values[-1], reverse_kl(s, t))
