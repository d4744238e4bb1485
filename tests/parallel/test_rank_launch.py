"""What `--ranks` starts, and what it and the settings refuse."""

from __future__ import annotations

import os
import sys
from typing import Any

import pytest
import torch
from small import make_model

from lopd_repro.errors import UserError
from lopd_repro.parallel.launch import start_ranks
from lopd_repro.parallel.ranks import ONE, joined
from lopd_repro.training.hold import hold_frozen
from lopd_repro.training.step import StepSettings


def test_ranks_are_started_by_torchrun(monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[Any] = []
    monkeypatch.setattr(os, "execv", lambda *command: called.append(command))
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    start_ranks(1, ["train"])
    assert called == []
    start_ranks(4, ["train", "--ranks", "4"])
    ((program, command),) = called
    assert program == command[0] == sys.executable
    assert command[1:3] == ["-m", "torch.distributed.run"] and "--standalone" in command
    assert command[command.index("--nproc-per-node") + 1] == "4"
    assert command[-5:] == ["-m", "lopd_repro", "train", "--ranks", "4"]
    # The ranks themselves start nothing.
    monkeypatch.setenv("WORLD_SIZE", "4")
    start_ranks(4, ["train"])
    start_ranks(1, ["train"])
    assert len(called) == 1
    with pytest.raises(UserError, match="--ranks: found 3, but torchrun has started 4"):
        start_ranks(3, ["train"])
    with pytest.raises(UserError, match="--ranks: found 0, allowed: 1 or more"):
        start_ranks(0, ["train"])


def test_one_rank_has_no_process_group(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    with joined("cpu") as ranks:
        assert ranks is ONE and not torch.distributed.is_initialized()
        assert ranks.gather(5) == [5] and ranks.once(lambda: 6) == 6
        ranks.wait()


def test_what_the_settings_refuse(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(
        UserError, match=r"optimiser\.compute_dtype: found 'fp8', allowed: engine, "
    ):
        StepSettings(compute_dtype="fp8")
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    narrow = StepSettings(compute_dtype="bfloat16")
    with (
        joined("cpu", sharded=True) as ranks,
        pytest.raises(UserError, match=r"found bfloat16 with engine\.dtype float64, allowed"),
    ):
        hold_frozen(make_model(dtype=torch.float64), [], False, narrow, ranks)
    assert not torch.distributed.is_initialized()
