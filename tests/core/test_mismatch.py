"""The gap between engine and trainer, and importance weights against it."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from small import GRPO, full_logits
from small_lopd import resources
from test_step import episodes, gradients

from lopd_repro.errors import UserError
from lopd_repro.rollout.episodes import Trajectory
from lopd_repro.training.losses import Totals
from lopd_repro.training.method import Batch, Method
from lopd_repro.training.mismatch import truncated_weights
from lopd_repro.training.scoring import TokenScores
from lopd_repro.training.step import PhaseClock, Stepper, StepSettings


def as_sampled(own: list[Trajectory], model: Any, less: float) -> list[Trajectory]:
    """Give the episodes the model's own log-probabilities less a constant."""
    for one in own:
        logits = full_logits(model, [*one.head, *one.tail])[len(one.head) - 1 : -1]
        logp = logits.log_softmax(-1)[range(len(one.tail)), one.tail] - less
        one.raw_logp = [
            float(p) if s else 0.0 for p, s in zip(logp.tolist(), one.supervised, strict=True)
        ]
    return own


def stepped(method: Method, own: list[Trajectory], **settings: Any) -> dict[str, float]:
    model = method.resources.backbone.model
    return Stepper(model, method, StepSettings(**settings), PhaseClock()).step(own)


@pytest.mark.parametrize("settings", [{}, {"micro_batch": 1}, {"scoring_temperature": 2.0}])
def test_the_gap_is_measured_at_temperature_one(settings: dict[str, Any]) -> None:
    method = GRPO({}, resources())
    own = as_sampled(episodes(), method.resources.backbone.model, 0.25)
    own[1].raw_logp[0] += 1.25  # 0.25 becomes -1
    metrics = stepped(method, own, **settings)
    n = sum(t.n_sampled for t in own)
    assert metrics["logp_gap_mean"] == pytest.approx((0.25 * (n - 1) + 1.0) / n, abs=1e-5)
    assert metrics["logp_gap_max"] == pytest.approx(1.0, abs=1e-5)
    assert "importance_mean" not in metrics


def test_weights_multiply_a_policy_gradient_up_to_their_cap() -> None:
    found = {}
    for less, cap in ((0.0, 0.0), (math.log(1.5), 2.0), (math.log(5.0), 2.0), (math.log(5.0), 0.0)):
        method = GRPO({}, resources())
        model = method.resources.backbone.model
        own = as_sampled(episodes(), model, less)
        metrics = stepped(method, own, importance_cap=cap, clip=1e9)
        found[less, cap] = (metrics, gradients(model))
    plain = found[0.0, 0.0][1]
    for (less, cap), (metrics, grads) in found.items():
        weight = min(math.exp(less), cap) if cap else 1.0
        for name, grad in grads.items():
            torch.testing.assert_close(grad, plain[name] * weight, rtol=1e-4, atol=1e-6)
        if cap:
            assert metrics["importance_mean"] == pytest.approx(weight, rel=1e-5)
            assert metrics["importance_capped"] == (1.0 if less > math.log(2.0) else 0.0)


def test_a_token_whose_log_probability_is_unknown_weighs_one() -> None:
    gap = torch.tensor([math.nan, 0.0, math.log(3.0), -1.0, 90.0])
    expected = torch.tensor([1.0, 1.0, 2.0, math.exp(-1.0), 2.0])
    torch.testing.assert_close(truncated_weights(gap, 2.0), expected)
    assert torch.isfinite(truncated_weights(gap, 1e30)).all()
    method = GRPO({}, resources())
    own = episodes()
    for one in own:
        one.raw_logp = [math.nan] * len(one.tail)
    metrics = stepped(method, own, importance_cap=2.0)
    assert metrics["logp_gap_mean"] == metrics["logp_gap_max"] == 0.0
    assert metrics["importance_mean"] == pytest.approx(1.0)


def test_a_batch_weights_the_tokens_it_is_asked_about() -> None:
    empty = torch.zeros(0)
    scores = TokenScores(torch.zeros(3, 1), torch.zeros(2, 1))
    totals = Totals(3, 1, 1)
    kept = torch.tensor([True, False, True])
    batch = Batch([], empty, empty, empty, empty, scores, None, kept, [], totals, totals)
    values = torch.tensor([1.0, 2.0, 3.0])
    assert batch.weighted(values) is values
    batch.importance = torch.tensor([2.0, 0.5, 1.5])
    assert batch.weighted(values).tolist() == [2.0, 1.0, 4.5]
    assert batch.weighted(values[kept], kept).tolist() == [2.0, 4.5]


def test_too_wide_a_gap_stops_training_before_the_update() -> None:
    method = GRPO({}, resources())
    model = method.resources.backbone.model
    before = {name: p.clone() for name, p in model.named_parameters()}
    own = as_sampled(episodes(), model, 0.5)
    with pytest.raises(UserError, match=r"optimiser\.max_logp_gap: .* 0\.5 apart .* allowed: 0\.4"):
        stepped(method, own, max_logp_gap=0.4)
    assert all(torch.equal(p, before[name]) for name, p in model.named_parameters())
    assert stepped(method, own, max_logp_gap=0.6)["logp_gap_mean"] == pytest.approx(0.5, abs=1e-4)


def test_settings_that_contradict_are_refused() -> None:
    with pytest.raises(UserError, match=r"optimiser\.importance_cap: found 0\.5"):
        StepSettings(importance_cap=0.5)
    with pytest.raises(UserError, match=r"optimiser\.max_logp_gap"):
        StepSettings(max_logp_gap=-1.0)
    with pytest.raises(UserError, match=r"methods\.grpo\.old_logp: found rollout with optimiser"):
        stepped(GRPO({"old_logp": "rollout"}, resources()), episodes(), importance_cap=2.0)
