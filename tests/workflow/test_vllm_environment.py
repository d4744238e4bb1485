"""vLLM's environment is asked for by the jobs that use it, and only where a rule makes it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from lopd_repro.workflow import slices, vllm_environment

ROOT = Path(__file__).resolve().parents[2]


def config(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((ROOT / f"config/{name}.yaml").read_text())
    return found


def test_which_environment_a_configuration_asks_for() -> None:
    for name in ("small", "paper"):
        domains = slices.domains(config(name))
        for own in domains.values():
            assert vllm_environment.made_folder(own) == ".environments/vllm"
            assert vllm_environment.samples_with_vllm(own)
            assert vllm_environment.serves_with_vllm(own)
        folder = vllm_environment.search_path(domains, Path("/x"))
        assert folder == "/x/.environments/vllm/bin"
    tiny = slices.domains(config("tiny"))
    assert vllm_environment.search_path(tiny, Path("/x")) is None
    own = tiny["tool_use"]
    assert vllm_environment.markers(own, True) == []
    for python in ("/opt/vllm/bin/python", ".environments/bfcl-v3/bin/python", None):
        assert vllm_environment.made_folder({"serve": {"python": python}}) is None


def test_training_and_benchmarks_wait_for_it(tmp_path: Path) -> None:
    """With vLLM's CPU build named, the plan of a training and of an evaluation makes it first."""
    (tmp_path / "vllm.yaml").write_text(
        yaml.safe_dump(
            {
                "engine": {"name": "vllm"},
                "serve": {"engine": "vllm", "python": ".environments/vllm-cpu/bin/python"},
            }
        )
    )
    results = tmp_path / "results"
    run = results / "runs/tool_use/tiny-128/vanilla/seed0"
    planned = subprocess.run(
        [sys.executable, "-m", "snakemake", "-n", "--forceall", "--configfile",
         "config/tiny.yaml", str(tmp_path / "vllm.yaml"), "--config", f"results={results}",
         "--allowed-rules", "vllm_cpu_environment", "train_vanilla", "evaluate_bfcl", "tasks",
         "base_model", "bfcl_environment", "bfcl_conversations", "acebench_conversations", "--",
         f"{run}/selected.json", f"{results}/eval/bfcl/tool_use/tiny-128/vanilla/seed0.jsonl"],
        cwd=ROOT, text=True, capture_output=True,
    )  # fmt: skip
    assert planned.returncode == 0, planned.stderr
    inputs: dict[str, str] = {}
    for line in planned.stdout.splitlines() + planned.stderr.splitlines():
        if line.startswith(("rule ", "localrule ")):
            rule = line.split()[1].rstrip(":")
        elif line.strip().startswith("input:"):
            inputs[rule] = line
    marker = ".environments/vllm-cpu/installed"
    assert {rule for rule, line in inputs.items() if marker in line} == {
        "train_vanilla",
        "evaluate_bfcl",
    }
    assert "requirements.lock" in inputs["vllm_cpu_environment"]
