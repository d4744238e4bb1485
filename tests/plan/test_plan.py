"""The model of cost: sizes, counts, prices worked out by hand, and what a finished run replaces."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from lopd_repro.cli import main
from lopd_repro.errors import UserError
from lopd_repro.files import write_jsonl
from lopd_repro.plan import bill, calibrate, graph
from lopd_repro.plan.cost import Device, Rates, forward_passes, sampling_seconds, seconds
from lopd_repro.plan.shape import Shape
from lopd_repro.plan.work import Estimator, Tokens, Work, benchmark_tasks
from lopd_repro.workflow import variants
from lopd_repro.workflow.configuration import load

ROOT = Path(__file__).resolve().parents[2]
KNOWN: dict[str, Any] = yaml.safe_load((ROOT / "lopd_repro/plan/assumptions.yaml").read_text())
DRY_RUN = """
[Mon Nov 30 20:00:00 2026]
localrule fetch:
    output: data/qwen3-4b
    jobid: 7
    wildcards: source=qwen3-4b
    resources: tmpdir=/tmp

[Mon Nov 30 20:00:00 2026]
rule train_lopd:
    input: a, b
    jobid: 3
    wildcards: domain=tool_use, backbone=qwen3-4b, seed=1
Job stats:
rule of thumb
"""


@pytest.fixture(scope="module")
def paper() -> Estimator:
    config = load([ROOT / "config/paper.yaml"])
    variants.expand(config)
    return Estimator(config, KNOWN)


@pytest.mark.parametrize(
    "name, billions",
    # Printed on the models' pages.
    [("qwen3-0.6b", 0.6), ("qwen3-4b", 4.0), ("qwen3-8b", 8.2), ("olmo3-7b-think", 7.3),
     ("smollm2-package", 0.1345)],
)  # fmt: skip
def test_sizes_give_the_published_numbers_of_parameters(name: str, billions: float) -> None:
    assert Shape(**KNOWN["models"][name]).parameters == pytest.approx(billions * 1e9, rel=0.01)


def test_flops_and_cache_of_a_small_shape() -> None:
    shape = Shape(2, 8, 2, 1, 4, 16, 10, tied=False)
    # Queries and outputs 8*4*2 each, keys and values 8*4*1 each, three of 8*16; output 8*10.
    assert shape.matrices == 2 * (2 * 64 + 2 * 32 + 3 * 128) + 80
    assert shape.parameters == shape.matrices + 80
    assert shape.forward_flops(5) == 2 * shape.matrices + 4 * 2 * 2 * 4 * 5
    assert shape.cache_bytes() == 2 * 2 * 1 * 4 * 2


def test_jobs_are_those_of_the_dry_run() -> None:
    first, second = graph.parse(DRY_RUN)
    assert (first.rule, first.get("source")) == ("fetch", "qwen3-4b")
    assert (second.rule, second.get("backbone"), second.get("seed")) == (
        "train_lopd",
        "qwen3-4b",
        "1",
    )
    assert second.get("method") == ""


def job(rule: str, **names: str) -> graph.Job:
    return graph.Job(rule, tuple(names.items()))


def test_what_a_training_does(paper: Estimator) -> None:
    names = {"domain": "tool_use", "backbone": "qwen3-4b", "seed": "0"}
    lopd, grpo = (paper.work(job(f"train_{m}", **names)) for m in ("lopd", "grpo"))
    # 50 steps of 32, and 150 validation tasks at step 0 and after each ten steps.
    assert lopd.rollouts == grpo.rollouts == 50 * 32 + 6 * 150
    total = 3500 + (0.25 + 0.1) * 40960
    assert grpo.trained == pytest.approx(1600 * total)
    assert grpo.scored == 0
    # Three passes through the teacher, and through the encoder of three experiences.
    assert lopd.scored == pytest.approx(1600 * (3 * total + 3 * 3 * 1500))
    frozen = paper.work(job("train_variant", method="lopd_frozen", **names))
    assert frozen.scored == pytest.approx(1600 * (total + 3 * 1500))
    vanilla = paper.work(job("train_vanilla", **names))
    assert (vanilla.rollouts, vanilla.trained) == (150, 0)
    # Of LOPD, GRPO and Skill-SD every validated checkpoint is kept for the curves, on one backbone.
    assert lopd.disk == 6 * vanilla.disk == 6 * 4 * Shape(**KNOWN["models"]["qwen3-4b"]).parameters
    names["backbone"] = "qwen3-8b"
    assert len({paper.work(job(f"train_{m}", **names)).disk for m in ("lopd", "vanilla")}) == 1


def test_what_other_jobs_do(paper: Estimator) -> None:
    names = {"backbone": "qwen3-8b", "method": "lopd", "seed": "0"}
    assert paper.work(job("base_rollouts", backbone="qwen3-8b")).rollouts == 2 * (2550 - 350)
    assert paper.work(job("evaluate_envscaler", **names)).rollouts == 200
    assert paper.work(job("evaluate_candidates", **names)).rollouts == 5 * 200
    assert paper.work(job("evaluate_bfcl", **names)).rollouts == 800
    assert paper.work(job("evaluate_acebench", **names)).rollouts == 3 * 50
    code = {**names, "backbone": "olmo3-7b-code"}
    assert paper.work(job("evaluate_livecodebench", **code)).rollouts == 279 + 131
    assert paper.work(job("evaluate_evalplus", **code)).rollouts == 164 + 378
    assert paper.work(job("fetch", source="qwen3-4b")).moved == 8.06e9
    assert paper.work(job("table1")).tokens == 0
    with pytest.raises(UserError, match=r"backbones.x: the size of 'org/model'"):
        from lopd_repro.plan.shape import backbone_shape

        backbone_shape("x", {"source": "hub", "model": "org/model"}, KNOWN)


def test_parts_of_benchmarks() -> None:
    assert benchmark_tasks("bfcl", {"tasks_per_category": 25}) == 100
    assert benchmark_tasks("evalplus", {"suite": "humaneval_base"}) == 164
    assert benchmark_tasks("livecodebench", {"limit": 60, "windows": ["v6"]}) == 60


SHAPE = Shape(1, 2, 1, 1, 2, 4, 4, tied=True)  # 2*2*4 + 3*2*4 + 2*4 = 48 weights
DEVICE = Device(flops=1000.0, bandwidth=100.0, memory=1e6)


def test_sampling_is_bound_by_what_is_read() -> None:
    work = Work("rollouts", SHAPE, batch=4, rollouts=100, sampled=10, context=10)
    # 96 bytes of weights and 4 sequences of 10 tokens with 8 bytes, for 4 tokens.
    assert sampling_seconds(work, DEVICE) == pytest.approx((96 + 4 * 80) / 100 / 4)
    # A memory that holds two sequences beside the weights.
    small = Device(flops=1000.0, bandwidth=100.0, memory=(96 + 160) / 0.9)
    assert sampling_seconds(work, small) == pytest.approx((96 + 2 * 80) / 100 / 2)


def test_training_is_bound_by_flops() -> None:
    work = Work("train", SHAPE, scored=3, trained=5, context=0)
    # Forward, twice that backward, and the recomputed forward pass.
    assert forward_passes(work, KNOWN) == 3 + 4 * 5
    expected = 60 + 23 * 96 / 0.35 / 1000
    assert seconds(work, "train_x", DEVICE, KNOWN, Rates()) == pytest.approx(expected)
    measured = Rates(fixed={"train": 2.0}, sample={}, score={"train": 0.1})
    assert seconds(work, "train_x", DEVICE, KNOWN, measured) == pytest.approx(2 + 0.1 * 23)


@pytest.fixture
def finished(tmp_path: Path) -> Path:
    """Two seeds of GRPO on a tiny backbone: 20 and 22 s, of which 8 s sampling and 10 s scoring."""
    for seed, wall in ((0, 20.0), (1, 22.0)):
        place = f"tool_use/tiny-128/grpo/seed{seed}"
        times = tmp_path / f"benchmarks/train/{place}.tsv"
        times.parent.mkdir(parents=True, exist_ok=True)
        times.write_text(f"s\th:m:s\n{wall}\t0:00:20\n")
        rows = [
            {"kind": "validation", "tokens_mean": 30.0, "seconds": {"validation": 3.0}},
            {"kind": "train", "generations": 32, "tokens": 640, "forwarded_student": 1600.0,
             "seconds": {"rollout": 5.0, "backward": 10.0}},
        ]  # fmt: skip
        write_jsonl(tmp_path / f"runs/{place}/metrics.jsonl", rows)
    return tmp_path


def test_a_finished_run_replaces_assumptions(finished: Path) -> None:
    tokens = calibrate.measured_tokens(finished)
    # 640 of 32 rollouts; the rest of 1,600 tokens was read.
    assert tokens["tool_use", "rollout"] == Tokens(30.0, 20.0)
    assert tokens["tool_use", "validation"] == Tokens(0.0, 30.0)
    config = load([ROOT / "config/tiny.yaml"])
    variants.expand(config)
    estimator = Estimator(config, KNOWN, tokens)
    jobs = calibrate.measured_jobs(finished)
    rates = calibrate.fit([jobs[0]], estimator)
    assert rates.fixed["train"] == pytest.approx(2.0)
    work = estimator.work(jobs[1].job)
    predicted = seconds(work, "train_grpo", DEVICE, KNOWN, rates)
    assert predicted == pytest.approx(20.0)  # the other seed took 22
    with pytest.raises(UserError, match="no benchmarks"):
        calibrate.measured_jobs(finished / "runs")


def test_the_bill_sums_by_rule(paper: Estimator) -> None:
    names = {"domain": "tool_use", "backbone": "qwen3-4b"}
    jobs = [job("train_grpo", **names, seed=str(s)) for s in range(2)] + [job("table1")]
    device = Device(**{k: float(v) for k, v in KNOWN["devices"]["h100"].items() if k != "source"})
    found = bill.make(jobs, paper, device, Rates())
    grpo = next(line for line in found.lines if line.rule == "train_grpo")
    assert (grpo.jobs, grpo.rollouts, grpo.device) == (2, 5000, True)
    one = seconds(paper.work(jobs[0]), "train_grpo", device, KNOWN, Rates())
    assert grpo.hours == pytest.approx(2 * one / 3600)
    assert found.total().jobs == 3
    printed = bill.text(found, KNOWN, "h100", 8, "")
    assert "1 rules without a model" in printed and "3 jobs" in printed


def test_the_command_prints_json(
    tmp_path: Path, finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "dry.txt").write_text(
        "rule train_grpo:\n    wildcards: domain=tool_use, backbone=tiny-128, seed=0\n"
    )
    command = ["plan", "--config", str(ROOT / "config/tiny.yaml"), "--json"]
    command += ["--dry-run", str(tmp_path / "dry.txt"), "--calibrate", str(finished)]
    assert main(command) == 0
    said = json.loads(capsys.readouterr().out)
    row = said["predicted_and_measured"][0]
    assert (row["rule"], row["jobs"], row["measured_seconds"]) == ("train_grpo", 1, 22.0)
    assert row["predicted_seconds"] == pytest.approx(20.0)
    assert main([*command, "--device", "abacus"]) == 2
    assert "--device: found 'abacus', allowed: a100-80gb" in capsys.readouterr().err
