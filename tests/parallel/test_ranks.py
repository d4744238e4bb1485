"""Several ranks on CPUs against one: losses, weights and states; resumption; failure.

One rank is today's path without a process group. The others hold everything in shards.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from rank_runs import NAMES, build, cold, outcome, whole
from rank_worlds import in_world, load, save
from transformers import AutoModelForCausalLM

from lopd_repro.parallel.ranks import Ranks
from lopd_repro.training.checkpoint import load_state, save_model

TOLERANCE = 1e-6


def differences(left: Any, right: Any, path: str = "") -> list[str]:
    """Places where two outcomes differ by more than rounding of the few values kept in float32."""
    if isinstance(left, dict) and isinstance(right, dict):
        # A head that rollouts share is read once by one rank, and with every rollout by several.
        keys = {k for k in left.keys() | right.keys() if not str(k).startswith("forwarded_")}
        pairs = [(left.get(k, "none"), right.get(k, "none"), f"{path}/{k}") for k in keys]
    elif isinstance(left, list) and isinstance(right, list) and len(left) == len(right):
        pairs = [(a, b, f"{path}/{i}") for i, (a, b) in enumerate(zip(left, right, strict=True))]
    else:
        return [] if close(left, right) else [f"{path}: {left} and {right}"]
    return [found for pair in pairs for found in differences(*pair)]


def close(left: Any, right: Any) -> bool:
    if isinstance(left, torch.Tensor) and isinstance(right, torch.Tensor):
        return torch.allclose(left, right, rtol=TOLERANCE, atol=TOLERANCE, equal_nan=True)
    if isinstance(left, float) and isinstance(right, float):
        both = math.isnan(left) and math.isnan(right)
        return both or math.isclose(left, right, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
    return bool(left == right)


def two(ranks: Ranks, folder: Path) -> None:
    """All methods, a run that one rank began, a cold start, bfloat16."""
    for name in NAMES:
        run = build(name, folder / name, ranks)
        run.run()
        save(ranks, folder, name, outcome(run))
    save_model(folder / "model", run.model, run.method.resources.backbone.tokenizer, ranks)
    finish(ranks, folder, "one")
    save(ranks, folder, "cold", cold(ranks, **COLD))
    narrow = build("lopd", folder / "narrow", ranks, torch.float32, **NARROW)
    narrow._train_step(0)
    sizes = [p.to_local().numel() for p in narrow.model.parameters()]  # type: ignore[attr-defined]
    save(ranks, folder, "narrow", {
        "metrics": narrow.metrics[0],
        "dtypes": dtypes(narrow),
        "moments": whole(narrow.stepper.optimisers.state_dict()["policy"]["state"][0]),
        "teacher": {n: p.dtype for n, p in narrow.method.teacher_model.named_parameters()},
        "share": sum(sizes) / sum(p.numel() for p in narrow.model.parameters()),
    })  # fmt: skip


def four(ranks: Ranks, folder: Path) -> None:
    """All methods, and the run that two ranks began."""
    for name in NAMES:
        run = build(name, folder / name, ranks)
        run.run()
        save(ranks, folder, name, outcome(run))
    finish(ranks, folder, "two")


def finish(ranks: Ranks, folder: Path, other: str) -> None:
    """Go on from the state that another world's run has left after its first step."""
    run = build("lopd", folder.parent / other / "lopd", ranks)
    assert load_state(folder.parent / other / "lopd", run.identity, ranks)["next_step"] == 1  # type: ignore[index]
    run.run()
    save(ranks, folder, "resumed", outcome(run))


COLD: dict[str, Any] = {
    "micro_batch": 1,
    "head_chunk_tokens": 3,
    "activation_checkpointing": True,
}
NARROW: dict[str, Any] = {"compute_dtype": "bfloat16", "activation_checkpointing": True}


def dtypes(run: Any) -> set[Any]:
    trained = [*run.model.parameters(), *run.method.parameter_groups()[0].parameters]
    return {tensor.dtype for p in trained for tensor in (p, p.grad)}


@pytest.fixture(scope="module")
def worlds(tmp_path_factory: Any) -> Path:
    """What worlds of one, two and four ranks leave."""
    folder: Path = tmp_path_factory.mktemp("worlds")
    for name in NAMES:
        run = build(name, folder / "one" / name)
        run.run()
        torch.save(outcome(run), folder / "one" / f"{name}.pt")
    assert in_world(2, two, folder / "two") == ["", ""]
    assert in_world(4, four, folder / "four") == [""] * 4
    return folder


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("size", ["two", "four"])
def test_ranks_end_as_one_does(name: str, size: str, worlds: Path) -> None:
    expected = load(worlds / "one", name)
    steps = [row for row in expected["metrics"] if row["kind"] == "train"]
    assert len(steps) == 2 and all(abs(row["loss"]) > 1e-3 for row in steps)
    kinds = [row["kind"] for row in expected["metrics"]]
    assert ("teacher" in kinds) == (name == "lopd")
    if name != "grpo":
        assert any(0 < row["distilled_tokens"] < row["tokens"] for row in steps)
    assert differences(expected, load(worlds / size, name)) == []


def test_a_run_goes_on_with_another_number_of_ranks(worlds: Path) -> None:
    expected = load(worlds / "one", "lopd")
    assert differences(expected, load(worlds / "two", "resumed")) == []
    assert differences(expected, load(worlds / "four", "resumed")) == []
    left = [f.name for f in (worlds / "two/lopd").iterdir() if f.name.startswith("shards")]
    assert left == ["shards000001"]
    alone = build("lopd", worlds / "two/lopd")
    alone.run()
    assert differences(expected, outcome(alone)) == []


def test_shards_are_saved_as_a_whole_model(worlds: Path) -> None:
    loaded = AutoModelForCausalLM.from_pretrained(worlds / "two/model", dtype=torch.float64)
    expected = load(worlds / "two", NAMES[-1])["weights"]
    assert loaded.config.architectures == ["Qwen3ForCausalLM"]
    assert all(torch.equal(value, expected[key]) for key, value in loaded.state_dict().items())


def test_bfloat16_passes_leave_float32_weights_gradients_and_moments(worlds: Path) -> None:
    found = load(worlds / "two", "narrow")
    assert found["dtypes"] == {torch.float32}
    assert (
        found["moments"]["exp_avg"].dtype == found["moments"]["exp_avg_sq"].dtype == torch.float32
    )
    base = {dtype for name, dtype in found["teacher"].items() if "lora_" not in name}
    adapters = {dtype for name, dtype in found["teacher"].items() if "lora_" in name}
    assert base == {torch.bfloat16} and adapters == {torch.float32}
    assert 0.45 < found["share"] < 0.55, "a rank holds half of the weights"
    (exact,) = [row for row in load(worlds / "one", "lopd")["metrics"] if row["step"] == 1]
    # bfloat16 has 8 bits: a few parts in a hundred, and surely not the same.
    assert found["metrics"]["loss"] == pytest.approx(exact["loss"], rel=0.1)
    assert found["metrics"]["loss"] != pytest.approx(exact["loss"], rel=1e-5)


def test_a_cold_start_of_two_ranks_ends_as_one_does(worlds: Path) -> None:
    expected = cold()
    assert expected["rows"][2]["nll"] < expected["rows"][0]["nll"]
    assert differences(expected, load(worlds / "two", "cold")) == []


@pytest.mark.parametrize("name", NAMES)
def test_recomputed_layers_give_the_same_step(name: str, tmp_path: Path) -> None:
    plain = build(name, tmp_path / "plain")
    recomputed = build(name, tmp_path / "recomputed", activation_checkpointing=True)
    for run in (plain, recomputed):
        run._train_step(0)
    assert differences(outcome(plain), outcome(recomputed)) == []


def fail(ranks: Ranks, folder: Path) -> None:
    """The second rank fails while the first waits for it."""
    if ranks.rank == 1:
        raise ValueError("this rank has no disk left")
    ranks.wait()


def test_a_rank_that_fails_ends_the_others(tmp_path: Path) -> None:
    waiting, failed = in_world(2, fail, tmp_path, seconds=100)
    assert "ValueError: this rank has no disk left" in failed
    assert "RuntimeError" in waiting and waiting != "hangs"
