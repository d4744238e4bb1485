from __future__ import annotations

import math
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from small import GRPO, ScriptDomain, backbone, codec, tokenizer
from small_lopd import TRAIN, lopd_files, resources
from test_step import Distil

from lopd_repro.errors import UserError
from lopd_repro.lopd.method import LOPD
from lopd_repro.models.backbone import load_backbone
from lopd_repro.rollout.engine import SamplingParams
from lopd_repro.rollout.episodes import derive_seed
from lopd_repro.rollout.heads import TextContext
from lopd_repro.rollout.hf_engine import HFEngine
from lopd_repro.training.checkpoint import load_state, save_model, save_state
from lopd_repro.training.evaluate import EvaluationPlan, evaluate, rows, summary
from lopd_repro.training.lock import exclusive
from lopd_repro.training.loop import LoopSettings, RunSeeds, TrainingRun
from lopd_repro.training.method import Method
from lopd_repro.training.selection import Selection
from lopd_repro.training.step import StepSettings
from lopd_repro.training.tasks import TaskStream

SAMPLING = SamplingParams(1.2, max_turn_tokens=6, max_tail_tokens=60)
ENDS = 60


class Interrupted(Exception):  # noqa: N818
    pass


class FaultyEngine(HFEngine):
    """Stops the process, so to speak, at its n-th run."""

    def __init__(self, *args: Any, stop_at: int) -> None:
        super().__init__(*args)
        self.left = stop_at

    def run(self, *args: Any) -> None:
        if self.left == 0:
            raise Interrupted
        self.left -= 1
        super().run(*args)


def build(name: str, folder: Path, stop_at: int = -1, **loop: Any) -> TrainingRun:
    """A run from the start, as a new process would build it. 4 steps, state after each two."""
    policy = backbone(extra_ends=ENDS)
    given = resources(policy)
    given.codec = codec(ENDS)
    given.domain = ScriptDomain()
    if name == "lopd":
        folder.mkdir(parents=True, exist_ok=True)
        given.files = lopd_files(folder, policy)
        method: Method = LOPD({"composer_lr": 1e-2, "beta_start": 0.3}, given)
    elif name == "ema":
        method = Distil({"text": " tea", "teacher": "ema"}, given)
    else:
        method = GRPO({}, given)
    shape = {
        "steps": 4,
        "rollouts_per_step": 8,
        "group_size": 4 if name == "grpo" else 1,
        "validate_every": 2,
        "checkpoint_every": 2,
        **loop,
    }
    pad = given.codec.pad_id
    return TrainingRun(
        policy.model,
        method,
        FaultyEngine(policy.model, policy.eos_ids, pad, 64, stop_at=stop_at),
        TRAIN[:5],
        EvaluationPlan(("t0", "t5"), 2, 9, SAMPLING),
        LoopSettings(**shape),
        StepSettings(lr=1e-2, warmup_steps=3),
        SAMPLING,
        RunSeeds(1, 2, 3),
        folder,
        {"method": name},
    )


def outcome(run: TrainingRun) -> dict[str, Any]:
    """Everything a run ends with but its clock."""
    return {
        "weights": {k: v.clone() for k, v in run.model.state_dict().items()},
        "method": run.method.state_dict(),
        "teacher": run.stepper.teacher.state_dict(),
        "metrics": [{k: v for k, v in row.items() if k != "seconds"} for row in run.metrics],
        "selection": run.selection.report(),
        "artifacts": run.artifacts(),
    }


def same(left: Any, right: Any) -> bool:
    if isinstance(left, torch.Tensor):
        return torch.equal(left, right)
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same(left[k], right[k]) for k in left)
    return bool(left == right)


@pytest.mark.parametrize("name", ["grpo", "lopd", "ema"])
def test_a_resumed_run_ends_as_an_uninterrupted_one(name: str, tmp_path: Path) -> None:
    whole = build(name, tmp_path / "whole")
    whole.run()
    expected = outcome(whole)
    start = backbone().model.state_dict()
    assert not same(expected["weights"], start), "the run must have learned something"
    # Engine runs: validation 0, steps 1-2, validation 2, [state], step 3, step 4, validation 4.
    for stop_at, resumes in ((4, True), (5, True), (2, False)):
        folder = tmp_path / f"stopped{stop_at}"
        with pytest.raises(Interrupted):
            build(name, folder, stop_at).run()
        assert (folder / "state.pt").exists() == resumes
        again = build(name, folder, stop_at=3 if resumes else -1)
        again.run()
        assert same(outcome(again), expected)


def test_a_loops_rows(tmp_path: Path) -> None:
    run = build("grpo", tmp_path, steps=3)
    run.run()
    kinds = [(row["kind"], row["step"], row["generations"]) for row in run.metrics]
    assert kinds == [
        ("validation", 0, 0),
        ("train", 1, 8),
        ("train", 2, 16),
        ("validation", 2, 16),
        ("train", 3, 24),
        ("validation", 3, 24),
    ]
    for row in run.metrics:
        assert 0.0 <= row["reward_mean"] <= 1.0
        if row["kind"] == "train":
            assert row["tokens"] > 0 and row["empty_batches"] == 0.0
            assert {"rollout", "student", "loss", "backward", "optimiser"} <= row["seconds"].keys()
    assert list(run.selection.report()["validation_scores"]) == ["0", "2", "3"]


def test_a_loop_without_scored_or_sampled_anything_goes_on(tmp_path: Path) -> None:
    run = build("grpo", tmp_path, steps=1)
    before = {k: v.clone() for k, v in run.model.state_dict().items()}
    run._stream = TaskStream(["nan0", "nan1"], 2, 0)
    run.run()
    (row,) = [row for row in run.metrics if row["kind"] == "train"]
    assert row["unscored"] == 8.0 and row["missing_rewards"] == 8 and row["loss"] == 0.0
    assert math.isfinite(row["grad_norm"]) and row["reward_mean"] == 0.0
    # AdamW's decay alone: no weight moves by more than lr * decay * weight.
    for name, value in run.model.state_dict().items():
        assert float((value - before[name]).abs().max()) <= 1.1e-4 * float(before[name].abs().max())


def test_state_of_other_settings_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Interrupted):
        build("grpo", tmp_path, 4).run()
    other = build("grpo", tmp_path)
    other.identity = {"method": "grpo", "lr": 2}
    with pytest.raises(UserError, match="other settings or inputs"):
        other.run()
    assert load_state(tmp_path / "none", {}) is None
    save_state(tmp_path / "new", {"identity": {"a": 1}, "x": torch.ones(2)})
    loaded = load_state(tmp_path / "new", {"a": 1})
    assert loaded is not None and torch.equal(loaded["x"], torch.ones(2))
    assert [f.name for f in (tmp_path / "new").iterdir()] == ["state.pt"]


def test_one_process_at_a_time(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from lopd_repro.training.lock import exclusive\n"
        "with exclusive(Path(sys.argv[1])): print('held')"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    with exclusive(tmp_path):
        with pytest.raises(UserError, match="another process"), exclusive(tmp_path):
            pass
        blocked = subprocess.run(command, capture_output=True, text=True, env=os.environ)
        assert blocked.returncode != 0 and "another process" in blocked.stderr
    after = subprocess.run(command, capture_output=True, text=True, env=os.environ)
    assert after.stdout == "held\n"


def test_the_task_stream_is_stateless_and_meets_every_task_once_an_epoch() -> None:
    ids = [f"t{i}" for i in range(7)]
    stream = TaskStream(ids, 3, seed=5)
    steps = [stream.step(i) for i in range(14)]
    flat = [task for step in steps for task in step]
    epochs = [flat[i : i + 7] for i in range(0, 42, 7)]
    assert all(sorted(epoch) == ids for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) > 1
    assert TaskStream(ids, 3, seed=5).step(11) == steps[11]
    assert [TaskStream(ids, 3, seed=6).step(i) for i in range(14)] != steps
    # More tasks a step than there are: the epoch turns over within the step.
    assert Counter(TaskStream(ids, 16, 5).step(0)).most_common()[-1][1] == 2
    for bad in (([], 1), (ids, 0)):
        with pytest.raises(UserError):
            TaskStream(*bad, seed=0)


def test_selection_takes_the_highest_and_the_earliest_of_equals() -> None:
    model = torch.nn.Linear(1, 1)

    def at(value: float) -> torch.nn.Linear:
        with torch.no_grad():
            model.weight.fill_(value)
        return model

    selection = Selection()
    for step, score in ((0, 0.9), (10, 0.4), (20, 0.7), (30, 0.7), (40, 0.6)):
        selection.add(step, score, at(step))
    report = selection.report()
    assert report["selected_step"] == 20 and report["validation_scores"]["0"] == 0.9
    selection.restore_best(model)
    assert model.weight.item() == 20.0
    again = Selection()
    again.load_state_dict(selection.state_dict())
    again.add(50, 0.7, at(50))
    again.add(60, 0.8, at(60))
    again.restore_best(at(99))
    assert again.report()["selected_step"] == 60 and model.weight.item() == 60.0
    untrained = Selection()
    untrained.add(0, 0.9, at(3))
    untrained.restore_best(at(4))
    assert untrained.report()["selected_step"] == 0 and model.weight.item() == 4.0


def test_equal_evaluation_plans_draw_equal_episodes() -> None:
    policy = backbone(extra_ends=ENDS)
    engine = HFEngine(policy.model, policy.eos_ids, codec(ENDS).pad_id)
    tasks = ("a", "nanb", "c")
    plan = EvaluationPlan(tasks, 3, 4, SAMPLING)
    first = evaluate(engine, codec(ENDS), ScriptDomain(), plan)
    again = evaluate(engine, codec(ENDS), ScriptDomain(), plan)
    assert [t.tail for t in first] == [t.tail for t in again]
    assert [t.task_id for t in first] == [*tasks] * 3
    assert len({tuple(t.tail) for t in first}) > 6, "repeats must differ"
    # A task's draws do not depend on the other tasks of the plan.
    alone = evaluate(engine, codec(ENDS), ScriptDomain(), EvaluationPlan(("c",), 1, 4, SAMPLING))
    assert alone[0].tail == first[2].tail
    table = rows(first, 3)
    assert [(r["task_id"], r["repeat"]) for r in table[2:5]] == [("c", 0), ("a", 1), ("nanb", 1)]
    assert table[1]["score"] == 0.0 and math.isnan(first[1].reward)
    first[0].records[0]["arguments"] = {"n": [1.5, math.nan, -math.inf]}
    unusual = rows(first, 3)[0]["records"][0]["arguments"]
    assert unusual == {"n": [1.5, "nan", "-inf"]}
    means = summary(first)
    assert means["unscored"] == pytest.approx(1 / 3)
    assert means["reward_mean"] == pytest.approx(sum(r["score"] for r in table) / 9)
    contexts = [None, TextContext(" tea"), None]
    taught = evaluate(engine, codec(ENDS), ScriptDomain(), plan, contexts)
    longer = [len(t.head) > len(f.head) for t, f in zip(taught, first, strict=True)]
    assert longer == [False, True, False] * 3


def test_a_saved_model_loads_again(tmp_path: Path) -> None:
    policy = backbone()
    save_model(tmp_path / "m", policy.model, tokenizer())
    save_model(tmp_path / "m", policy.model, tokenizer())
    assert [f.name for f in tmp_path.iterdir()] == ["m"]
    loaded = load_backbone(tmp_path / "m")
    assert same(dict(loaded.model.state_dict()), dict(policy.model.state_dict()))
    assert loaded.eos_ids == policy.eos_ids
    text = "Task Completed <|im_end|>"
    assert loaded.tokenizer.encode(text) == tokenizer().encode(text)
    assert loaded.tokenizer.chat_template == tokenizer().chat_template
    for path, dtype, match in (
        (tmp_path / "none", "float32", "no such folder"),
        (tmp_path / "m", "float8", "allowed: float32, bfloat16, float16"),
    ):
        with pytest.raises(UserError, match=match):
            load_backbone(path, dtype)


def test_seeds_are_the_same_everywhere() -> None:
    # The first 8 bytes of SHA-256 of "1/rollout/0", big-endian, halved.
    assert derive_seed(1, "rollout", 0) == 6476273082794714350
    assert derive_seed(1, "a") != derive_seed(1, "b") and derive_seed(1, 23) != derive_seed(12, 3)
    assert derive_seed(2**70) < 2**63
