from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from small import trajectory
from test_lopd_method import lopd
from test_step import episodes, stepper

from lopd_repro.lopd.profile import OUTCOMES, QUARTERS, DivergenceProfile
from lopd_repro.rollout.episodes import Trajectory


def with_tokens(n: int, reward: float) -> Trajectory:
    made = trajectory("t0", (1,), [], reward)
    made.tail, made.supervised = [5] * (n + 1), [False, *[True] * n]
    return made


def test_means_by_quarter_and_outcome_add_up_over_micro_batches() -> None:
    step = [with_tokens(5, 1.0), with_tokens(2, 0.5), with_tokens(1, math.nan)]
    profile = DivergenceProfile(step)
    # 5 tokens: floor(4 i / 5) = 0 0 1 2 3; 2 tokens: 0 2; 1 token: 0.
    # Quarters hold 2+1+1 = 4, 1, 1+1 = 2 and 1 tokens; success 5, failure 2, no reward 1.
    first = profile.shares(
        torch.tensor([1.0, 2.0, 4.0, 8.0, 16.0, 3.0, 5.0]),
        torch.tensor([0, 0, 0, 0, 0, 1, 1]),
        torch.tensor([1.0, 0.5]),
    )
    second = profile.shares(torch.tensor([6.0]), torch.tensor([0]), torch.tensor([math.nan]))
    total = {name: first[name] + second[name] for name in first}
    assert total == {
        "kl_q1": (1 + 2 + 3 + 6) / 4,
        "kl_q2": 4.0,
        "kl_q3": (8 + 5) / 2,
        "kl_q4": 16.0,
        "kl_success": 31 / 5,
        "kl_failure": 8 / 2,
    }


def test_a_bucket_without_tokens_is_left_out() -> None:
    profile = DivergenceProfile([with_tokens(1, 1.0)])
    found = profile.shares(torch.tensor([2.0]), torch.tensor([1]), torch.tensor([0.0, 1.0]))
    assert found == {"kl_q1": 2.0, "kl_success": 2.0}


def test_a_step_logs_the_profile_whatever_the_micro_batch(tmp_path: Path) -> None:
    own = episodes()
    logs = [
        stepper(lopd(tmp_path, 0.05, loss_averaging="token_mean"), micro_batch=size).step(own)
        for size in (len(own), 1)
    ]
    for name in (*QUARTERS, *OUTCOMES):
        assert logs[0][name] > 0 and logs[1][name] == pytest.approx(logs[0][name], rel=1e-4)
    n = {outcome: 0 for outcome in OUTCOMES}
    for t in own:
        n["kl_success" if t.reward == 1.0 else "kl_failure"] += t.n_sampled
    mean = sum(n[name] * logs[0][name] for name in OUTCOMES) / sum(n.values())
    assert mean == pytest.approx(logs[0]["kl"], rel=1e-5)
