"""The composer's objective, the dual variable and the EMA of effective weights."""

from __future__ import annotations

import pytest
import torch

from lopd_repro.training.losses import (
    aggregate,
    anchor_distance,
    composer_objective,
    dual_update,
    ema_update,
    ema_update_,
    lora_effective_weight,
    outcome_weight,
    privilege,
    weighted_privilege,
)

F64 = torch.float64
TEACHER = torch.tensor([-0.5, -1.0, -0.25, -2.0], dtype=F64)
STUDENT = torch.tensor([-1.0, -1.0, -0.75, -1.0], dtype=F64)
ROW = torch.tensor([0, 0, 0, 1])
REWARD = torch.tensor([1.0, 0.25], dtype=F64)


def test_delta_by_hand() -> None:
    # delta = (.5, 0, .5 | -1), A = (1, -.5): A delta = (.5, 0, .5 | .5)
    assert outcome_weight(REWARD).tolist() == [1.0, -0.5]
    gain = weighted_privilege(TEACHER, STUDENT, REWARD, ROW)
    assert gain.tolist() == [0.5, 0.0, 0.5, 0.5]
    # per trajectory: mean(1/3, 1/2) = 5/12; over tokens: 3/8
    assert aggregate(gain, ROW, 2, "seq_mean_token_mean").item() == pytest.approx(5 / 12)
    assert aggregate(gain, ROW, 2, "token_mean").item() == pytest.approx(3 / 8)


def test_the_student_gets_no_gradient_from_its_privilege() -> None:
    student = STUDENT.clone().requires_grad_()
    assert not privilege(TEACHER, student).requires_grad


def test_anchor_reductions_by_hand() -> None:
    start = torch.full((2, 3, 2), 2.0, dtype=F64)
    latents = start + torch.tensor([1.0, 0.5], dtype=F64).reshape(2, 1, 1)
    # 6 entries each: sums 6 and 1.5, means 1 and 1/4, over a mean square of 4
    assert anchor_distance(latents, start, "sum").tolist() == [6.0, 1.5]
    assert anchor_distance(latents, start, "mean").tolist() == [1.0, 0.25]
    assert anchor_distance(latents, start, "relative").tolist() == [0.25, 0.0625]
    with pytest.raises(ValueError, match="unknown anchor"):
        anchor_distance(latents, start, "l1")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"\[B, L, d\]"):
        anchor_distance(latents[0], start[0])


def test_objective_by_hand_and_in_micro_batches() -> None:
    kl, delta, anchor = torch.tensor(0.3), torch.tensor(0.02), torch.tensor(0.5)
    # 0.3 + 2 (0.05 - 0.02) + 0.2 * 0.5 = 0.46
    whole = composer_objective(kl, delta, anchor, beta=2.0, margin=0.05, anchor_weight=0.2)
    assert whole.item() == pytest.approx(0.46)
    halves = [
        composer_objective(
            kl * part, delta * part, anchor * part, beta=2.0, margin=0.05, anchor_weight=0.2,
            share=part,
        )
        for part in (0.25, 0.75)
    ]  # fmt: skip
    assert sum(halves).item() == pytest.approx(0.46)


def test_objective_gradient() -> None:
    leaf = TEACHER.clone().requires_grad_()

    def loss(teacher: torch.Tensor) -> torch.Tensor:
        gain = weighted_privilege(teacher, STUDENT, REWARD, ROW)
        delta = aggregate(gain, ROW, 2, "seq_mean_token_mean")
        zero = torch.zeros((), dtype=F64)
        return composer_objective(zero, delta, zero, beta=3.0, margin=0.05, anchor_weight=0.0)

    (gradient,) = torch.autograd.grad(loss(leaf), leaf)
    # -beta A / (rows * tokens of the row)
    expected = torch.tensor([-0.5, -0.5, -0.5, 0.75], dtype=F64)
    torch.testing.assert_close(gradient, expected)
    assert torch.autograd.gradcheck(loss, leaf)


def test_dual_update_rises_below_the_margin_and_stays_above_zero() -> None:
    assert dual_update(1.0, 0.01, margin=0.05, eta=0.5) == pytest.approx(1.02)
    assert dual_update(0.01, 0.25, margin=0.05, eta=0.5) == 0.0


def test_ema_by_hand_in_float32() -> None:
    teacher, student = torch.tensor([1.0, 2.0]), torch.tensor([3.0, -2.0], dtype=torch.bfloat16)
    assert ema_update(teacher, student, 0.25).tolist() == [1.5, 1.0]
    weights = {"w": teacher.clone()}
    ema_update_(weights, {"w": student}, 0.25)
    assert weights["w"].tolist() == [1.5, 1.0]
    assert weights["w"].dtype == torch.float32


def test_ema_keeps_updates_that_half_precision_would_lose() -> None:
    teacher, student = torch.tensor([1.0]), torch.tensor([1.0625], dtype=torch.bfloat16)
    moved = ema_update(teacher, student, 0.01)
    assert moved.item() == pytest.approx(1.000625, abs=1e-7)
    assert moved.bfloat16().item() == 1.0


def test_ema_refuses_other_names_dtypes_and_rates() -> None:
    one = {"w": torch.ones(2)}
    with pytest.raises(ValueError, match="names: v, w"):
        ema_update_(one, {"v": torch.ones(2)}, 0.1)
    with pytest.raises(TypeError, match="must be float32"):
        ema_update_({"w": torch.ones(2).half()}, one, 0.1)
    with pytest.raises(ValueError, match=r"\[0, 1\]"):
        ema_update(torch.ones(1), torch.ones(1), 1.5)


def test_ema_of_an_adapter_is_of_the_product_not_of_the_factors() -> None:
    base = torch.zeros(2, 2)
    a, b = torch.tensor([[2.0, 0.0]]), torch.tensor([[3.0], [1.0]])
    effective = lora_effective_weight(base, a, b, scale=0.5)
    # 0.5 * B A
    assert effective.tolist() == [[3.0, 0.0], [1.0, 0.0]]
    averaged = ema_update(base, effective, 0.05)
    apart = lora_effective_weight(base, 0.05 * a, 0.05 * b, scale=0.5)
    torch.testing.assert_close(averaged, 0.05 * effective)
    torch.testing.assert_close(apart, 0.0025 * effective)
