"""`lopd-repro train` with `engine: vllm`: one whole LOPD run by the command line, beside `hf`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pair import LIMIT, assert_close_metrics, assert_close_weights, small_model
from small import tokenizer
from test_evaluate_command import SETTINGS

from lopd_repro.cli import main
from lopd_repro.data.splits import open_split
from lopd_repro.experience.bank import Experience, write_bank
from lopd_repro.files import read_json, read_jsonl
from lopd_repro.models.backbone import load_backbone
from lopd_repro.models.tiny_tokenizer import EOS
from lopd_repro.training.checkpoint import save_model

ROOT = Path(__file__).resolve().parents[2]
GREEDY = {"temperature": 0.0, "max_turn_tokens": 6, "max_tail_tokens": 60}
ENGINES: dict[str, dict[str, Any]] = {
    "vllm": {"name": "vllm", "max_batch": 4, "vllm": {"max_length": LIMIT, "cache_gb": 0.25}},
    "hf": {"name": "hf", "max_batch": 4},
}
RUN: dict[str, Any] = {
    **{key: SETTINGS[key] for key in ("domain", "prompts", "environment")},
    "sampling": {"rollout": GREEDY, "evaluation": GREEDY},
    "train": {
        "steps": 3, "rollouts_per_step": 4, "group_size": 1, "validate_every": 2,
        "checkpoint_every": 2, "teacher_check_tasks": 2,
    },
    "optimiser": {"lr": 0.003, "weight_decay": 0.0, "importance_cap": 2.0, "max_logp_gap": 0.001},
    "validation": {"repeats": 1, "seed": 100},
    "method": {"composer_lr": 0.01, "beta_start": 0.3, "n_retrieved": 2},
}  # fmt: skip
COMPOSER = {"n_latents": 3, "depth": 2, "ff_mult": 2, "lora_rank": 2, "lora_alpha": 4}


def command(name: str, settings: dict[str, Any], **options: Path) -> list[str]:
    given = [text for key, value in options.items() for text in (f"--{key}", str(value))]
    return [name, "--settings", json.dumps(settings), *given]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tasks, a small model, a bank, what is retrieved from it, and a composer: by the commands."""
    out = tmp_path_factory.mktemp("command")
    sizes = {"train": 24, "validation": 4, "test": 4}
    tasks = {"source": "tiny", "seed": 0, "sizes": sizes}
    assert main(["tasks", "--settings", json.dumps(tasks), "--out", str(out / "tasks")]) == 0
    save_model(out / "model", small_model("qwen3"), tokenizer())
    splits, bank = out / "tasks/splits.json", out / "bank.jsonl"
    tail = tuple(tokenizer().encode("Task Completed" + EOS, add_special_tokens=False))
    chosen = list(open_split(splits, "train", "training").tasks.values())[:6]
    write_bank(
        bank,
        [
            Experience(f"{t.task_id}#1", t.task_id, t.task, f"1. do {i}", 1.0, tail, (True,) * 2)
            for i, t in enumerate(chosen)
        ],
    )
    assert len(tail) == 2
    shared = {key: RUN[key] for key in ("domain", "prompts", "environment")}
    places = {"splits": splits, "backbone": out / "model", "bank": bank}
    retrieve = {**shared, "retrieval": {"depth": 4}, "embedder": "tfidf"}
    assert main(command("retrieve", retrieve, **places, out=out / "retrieved.json")) == 0
    cold = {"steps": 2, "batch": 2, "lr": 0.001}
    settings = {**shared, "sampling": RUN["sampling"], "seed": 0, "n_retrieved": 2,
                "cold_start": cold, "composer": COMPOSER}  # fmt: skip
    places |= {"retrieved": out / "retrieved.json", "report": out / "cold.json"}
    assert main(command("cold-start", settings, **places, out=out / "composer.safetensors")) == 0
    for engine in ENGINES:
        _train(out, engine)
    return out


def _train(out: Path, engine: str) -> None:
    """In a process of its own, as the workflow's rule starts it."""
    given = command(
        "train",
        {**RUN, "engine": ENGINES[engine]},
        splits=out / "tasks/splits.json",
        backbone=out / "model",
        out=out / engine,
        state=out / f"state-{engine}",
    )
    given += ["--method-file", "lopd_repro/lopd/method.py", "--seed", "1"]
    for name in ("bank.jsonl", "retrieved.json", "composer.safetensors"):
        given += ["--input", f"{name.partition('.')[0]}={out / name}"]
    done = subprocess.run(
        [sys.executable, "-m", "lopd_repro", *given],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]


def test_both_engines_leave_the_same_files_and_the_same_run(made: Path) -> None:
    files = [sorted(p.name for p in (made / engine).iterdir()) for engine in ENGINES]
    assert files[0] == files[1]
    assert {"checkpoint", "metrics.jsonl", "selected.json", "composer.safetensors"} <= {*files[0]}
    ours, theirs = (read_jsonl(made / engine / "metrics.jsonl") for engine in ENGINES)
    assert [row["kind"] for row in ours] == [row["kind"] for row in theirs]
    assert [row["kind"] for row in ours].count("train") == 3
    assert_close_metrics(ours, theirs)
    assert_close_weights(*(load_backbone(made / engine / "checkpoint").model for engine in ENGINES))


def test_the_output_says_which_engine_it_was_and_how_far_it_is_from_the_trainer(
    made: Path,
) -> None:
    manifest = read_json(made / "vllm/manifest.json")
    assert manifest["settings"]["engine"] == ENGINES["vllm"]
    trained = [r for r in read_jsonl(made / "vllm/metrics.jsonl") if r["kind"] == "train"]
    for row in trained:
        assert 0 < row["logp_gap_mean"] <= row["logp_gap_max"] < 1e-3
        assert row["importance_mean"] == pytest.approx(1, abs=1e-3)
        assert row["importance_capped"] == 0
