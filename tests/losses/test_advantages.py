"""Group-relative advantages: hand-derived values, missing rewards, odd groups."""

from __future__ import annotations

import math

import pytest
import torch

from lopd_repro.training.advantages import group_advantages

F64 = torch.float64
# interleaved: group 7 holds 1, 0, 0.5; group 2 holds 0.3 twice; group 9 a single 0.7
REWARD = torch.tensor([1.0, 0.3, 0.0, 0.7, 0.3, 0.5], dtype=F64)
GROUP = torch.tensor([7, 2, 7, 9, 2, 7])


def test_group_std_by_hand() -> None:
    # group 7: mean 1/2, Bessel std = sqrt((1/4 + 1/4) / 2) = 1/2
    result = group_advantages(REWARD, GROUP, eps=0.0)
    assert result.advantage.tolist() == pytest.approx([1.0, 0.0, -1.0, 0.0, 0.0, 0.0])
    assert (result.n_missing, result.n_constant_groups, result.n_single_groups) == (0, 1, 1)
    with_eps = group_advantages(REWARD, GROUP, eps=0.5).advantage
    assert with_eps.tolist() == pytest.approx([0.5, 0.0, -0.5, 0.0, 0.0, 0.0])


def test_equal_rewards_give_exact_zeros_however_they_round() -> None:
    reward = torch.tensor([0.1] * 3, dtype=torch.float32)
    result = group_advantages(reward, torch.zeros(3, dtype=torch.long), eps=1e-6)
    assert result.advantage.tolist() == [0.0, 0.0, 0.0]


def test_batch_and_no_std() -> None:
    none = group_advantages(REWARD, GROUP, std="none").advantage
    assert none.tolist() == pytest.approx([0.5, 0.0, -0.5, 0.0, 0.0, 0.0])
    # all rewards: mean 2.8/6, sum of squares 1 + .09 + .49 + .09 + .25 = 1.92
    spread = math.sqrt((1.92 - 2.8**2 / 6) / 5)
    batch = group_advantages(REWARD, GROUP, std="batch", eps=0.0).advantage
    assert batch[0].item() == pytest.approx(0.5 / spread)


def test_singletons() -> None:
    assert group_advantages(REWARD, GROUP).advantage[3] == 0
    raw = group_advantages(REWARD, GROUP, singleton="raw", eps=0.25).advantage
    assert raw[3].item() == pytest.approx(0.7 / 1.25)
    plain = group_advantages(REWARD, GROUP, singleton="raw", std="none").advantage
    assert plain[3].item() == pytest.approx(0.7)


def test_missing_rewards_are_left_out_and_counted() -> None:
    nan = math.nan
    reward = torch.tensor([1.0, nan, 0.0, 0.5, nan, nan, 0.25, nan], dtype=F64)
    group = torch.tensor([0, 0, 0, 0, 1, 1, 2, 2])
    result = group_advantages(reward, group, eps=0.0)
    # group 0 without its gap: mean 1/2, std 1/2
    assert result.advantage.tolist() == pytest.approx([1.0, 0.0, -1.0, 0.0, 0.0, 0.0, 0.0, 0.0])
    assert result.valid.tolist() == [True, False, True, True, False, False, True, False]
    assert (result.n_missing, result.n_constant_groups, result.n_single_groups) == (4, 0, 1)
    batch = group_advantages(reward, group, std="batch", eps=0.0).advantage
    # valid rewards 1, 0, .5, .25: variance (1 + .25 + .0625 - 1.75^2/4) / 3
    spread = math.sqrt((1.3125 - 1.75**2 / 4) / 3)
    assert batch[0].item() == pytest.approx(0.5 / spread)
    assert torch.isfinite(batch).all()


def test_all_missing_and_empty() -> None:
    reward = torch.full((2,), math.nan)
    for std in ("group", "batch", "none"):
        result = group_advantages(reward, torch.tensor([0, 1]), std=std)
        assert result.advantage.tolist() == [0.0, 0.0]
    assert group_advantages(reward[:0], torch.zeros(0, dtype=torch.long)).advantage.numel() == 0


def test_variance_floor() -> None:
    reward = torch.tensor([0.5, 0.5002], dtype=F64)
    group = torch.zeros(2, dtype=torch.long)
    floored = group_advantages(reward, group, eps=0.0, variance_floor=1e-6).advantage
    # std floored at 1e-3: +-1e-4 / 1e-3
    assert floored.tolist() == pytest.approx([-0.1, 0.1])


def test_order_does_not_matter() -> None:
    order = torch.tensor([4, 2, 5, 0, 3, 1])
    plain = group_advantages(REWARD, GROUP).advantage
    shuffled = group_advantages(REWARD[order], GROUP[order]).advantage
    torch.testing.assert_close(shuffled, plain[order])


def test_bad_arguments() -> None:
    with pytest.raises(ValueError, match="equal and flat"):
        group_advantages(REWARD, GROUP[:2])
    with pytest.raises(ValueError, match="unknown std"):
        group_advantages(REWARD, GROUP, std="pop")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="unknown singleton"):
        group_advantages(REWARD, GROUP, singleton="mean")  # type: ignore[arg-type]
