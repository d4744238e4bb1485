"""The configurations of the larger scales: they resolve quickly, and what they fetch."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import pytest

from lopd_repro.errors import UserError
from lopd_repro.workflow.configuration import load
from lopd_repro.workflow.fetched import (
    embedder,
    folders_of,
    needed,
    task_settings,
    task_sources,
)
from lopd_repro.workflow.slices import domains, slice_for

ROOT = Path(__file__).resolve().parents[2]
PAPER = ROOT / "config/paper.yaml"


def test_the_papers_grid_resolves_in_under_20_seconds(tmp_path: Path) -> None:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, "-m", "snakemake", "-n", "--quiet", "rules", "--configfile", str(PAPER),
         "--config", f"results={tmp_path}/results", "--", "all"],
        cwd=ROOT, capture_output=True, text=True,
    )  # fmt: skip
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode == 0, done.stderr
    # Processor time: the machine may be busy with other things.
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 20
    counts = dict(line.split() for line in done.stdout.splitlines() if len(line.split()) == 2)
    # Four backbones and three seeds; each of six trained methods and the untrained one.
    for method in ("vanilla", "grpo", "sdft", "opsd", "sdpo", "skill_sd", "lopd"):
        assert counts[f"train_{method}"] == "12"
    # Six margins, five K and ten n, each less LOPD's own; seven of the controls are variants.
    assert counts["train_variant"] == str(3 * (5 + 4 + 9 + 7))
    assert counts["base_rollouts"] == counts["hub_model"] == "4"
    # The authors' two; each is asked every benchmark of its domain once: 84 and two, 84 and one.
    assert counts["released_checkpoint"] == "2"
    assert counts["evaluate_bfcl"] == "43" and counts["evaluate_evalplus"] == "43"


def test_what_the_papers_scale_needs_from_outside() -> None:
    assert set(needed(domains(load([PAPER])))) == {
        "envscaler-environments", "envscaler-scenarios", "deepcoder-taco", "qwen3-4b", "qwen3-8b",
        "olmo3-7b-think", "qwen3-embedding-8b", "qwen3-8b-lopd", "olmo3-7b-think-lopd",
        "humaneval-plus", "mbpp-plus",
        "livecodebench-data", "livecodebench-repository", "acebench-repository",
    }  # fmt: skip
    assert needed(domains(load([ROOT / "config/tiny.yaml"]))) == {}


def test_fetched_tasks_reach_the_command_as_files() -> None:
    both = domains(load([PAPER]))
    tool_use = task_settings(both["tool_use"])
    assert tool_use["source"] == "files"
    place = "data/envscaler-scenarios/envscaler_rl_scenario_metadata.json"
    assert tool_use["scenarios"] == place
    coding = slice_for(both["coding"], "tasks")["files"]
    assert [Path(f).name[:11] for f in coding] == [f"train-0000{i}" for i in range(4)]
    assert embedder(both["tool_use"]) == "sentence-transformers:data/qwen3-embedding-8b"


def test_files_named_in_the_data_folder_are_fetched_ones() -> None:
    config = {"data": "elsewhere"}
    assert folders_of(config, ["elsewhere/mbpp-plus/MbppPlus.jsonl", "/tmp/own.jsonl"]) == [
        "elsewhere/mbpp-plus"
    ]
    with pytest.raises(UserError, match="source nothing: unknown"):
        folders_of(config, ["elsewhere/nothing/file"])


def test_hub_tasks_need_names() -> None:
    with pytest.raises(UserError, match="needs names of sources"):
        task_sources({"tasks": {"source": "hub"}})


def test_bad_configurations_are_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be read"):
        load([tmp_path / "none.yaml"])
    (tmp_path / "over.yaml").write_text("seeds: []\n")
    with pytest.raises(UserError, match="seeds: ") as error:
        load([PAPER, tmp_path / "over.yaml"])
    assert "\n" not in str(error.value)
    (tmp_path / "over.yaml").write_text("seeds: [7]\ntrain: {steps: 9}\n")
    laid_over = load([PAPER, tmp_path / "over.yaml"])
    assert laid_over["seeds"] == [7] and laid_over["train"]["validate_every"] == 10
