"""Whole LOPD runs whose rollouts, validations and latent teacher go through vLLM."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pair import ENDS, Pair, assert_close_metrics, assert_close_weights, small_model
from small import ScriptDomain, codec, tokenizer
from small_lopd import TRAIN, lopd_files, resources
from test_hf_engine import PAD
from test_loop import Interrupted, outcome, same

from lopd_repro.lopd.method import LOPD
from lopd_repro.models.backbone import Backbone
from lopd_repro.rollout.engine import SamplingParams
from lopd_repro.rollout.hf_engine import HFEngine
from lopd_repro.training.evaluate import EvaluationPlan
from lopd_repro.training.loop import LoopSettings, RunSeeds, TrainingRun
from lopd_repro.training.step import StepSettings

qwen3 = pytest.mark.parametrize("started", ["qwen3"], indirect=True)
GREEDY = SamplingParams(0, max_turn_tokens=6, max_tail_tokens=60)
DRAWN = SamplingParams(1.2, max_turn_tokens=6, max_tail_tokens=60)


class Stopping:
    """Stops the process, so to speak, at its n-th run."""

    def __init__(self, engine: Any, left: int) -> None:
        self.engine = engine
        self.left = left

    def run(self, *args: Any) -> None:
        if self.left == 0:
            raise Interrupted
        self.left -= 1
        self.engine.run(*args)

    def sync_weights(self, model: Any) -> None:
        self.engine.sync_weights(model)


def lopd(folder: Path, sampling: SamplingParams, pair: Pair | None, left: int = -1) -> TrainingRun:
    """A run from the start; without a pair, on the hf engine."""
    policy = Backbone(small_model("qwen3"), tokenizer(), ENDS)
    folder.mkdir(parents=True, exist_ok=True)
    given = resources(policy)
    given.codec, given.domain = codec(len(ENDS) - 1), ScriptDomain()
    given.files = lopd_files(folder, policy)
    if pair is None:
        engine: Any = HFEngine(policy.model, ENDS, PAD)
    else:
        engine = Stopping(pair.engine, left)
        engine.sync_weights(policy.model)
    return TrainingRun(
        policy.model,
        LOPD({"composer_lr": 1e-2, "beta_start": 0.3}, given),
        engine,
        TRAIN[:5],
        EvaluationPlan(("t0", "t5"), 2, 9, sampling),
        LoopSettings(4, 8, 1, 2, 2, teacher_check_tasks=3),
        StepSettings(lr=3e-3, importance_cap=2.0, max_logp_gap=1e-3),
        sampling,
        RunSeeds(1, 2, 3),
        folder,
        {"method": "lopd"},
    )


@qwen3
def test_a_greedy_run_is_that_of_the_hf_engine(pair: Pair, tmp_path: Path) -> None:
    runs = [lopd(tmp_path / "vllm", GREEDY, pair), lopd(tmp_path / "hf", GREEDY, None)]
    for run in runs:
        run.run()
    ours, theirs = (run.metrics for run in runs)
    assert [row["kind"] for row in ours].count("train") == 4
    assert {"teacher", "validation"} < {row["kind"] for row in ours}
    assert_close_metrics(ours, theirs)
    assert_close_weights(*(run.model for run in runs))


@qwen3
def test_a_drawn_run_is_reproducible_and_resumes(pair: Pair, tmp_path: Path) -> None:
    whole = lopd(tmp_path / "whole", DRAWN, pair)
    whole.run()
    trained = [row for row in whole.metrics if row["kind"] == "train"]
    assert all(0 < row["logp_gap_mean"] <= row["logp_gap_max"] < 1e-3 for row in trained)
    assert all(row["importance_mean"] == pytest.approx(1, abs=1e-3) for row in trained)
    assert all(row["kl"] > 0 and "delta" in row for row in trained)
    # Runs of the engine: validation, two of the teacher, two steps, validation, then a third step.
    interrupted = lopd(tmp_path / "parts", DRAWN, pair, left=6)
    with pytest.raises(Interrupted):
        interrupted.run()
    resumed = lopd(tmp_path / "parts", DRAWN, pair)
    resumed.run()
    assert same(outcome(resumed), outcome(whole))
