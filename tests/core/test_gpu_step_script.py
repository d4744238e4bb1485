"""`benchmarks/gpu_lopd_step.py` at a small size on a CPU."""

import importlib.util
import json
import math
from pathlib import Path

import pytest
import torch

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "gpu_lopd_step.py"
SMALL = {
    "layers": 2,
    "hidden": 32,
    "heads": 2,
    "kv-heads": 1,
    "head-size": 16,
    "feed-forward": 64,
    "vocabulary": 512,
    "latents": 2,
    "composer-depth": 1,
    "retrieved": 1,
    "rollouts": 3,
    "turn-tokens": 12,
    "micro-batch": 2,
    "head-chunk": 8,
    "steps": 1,
}


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("gpu_lopd_step", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_step_in_bfloat16_is_measured_phase_by_phase(script, tmp_path, capsys):
    options = [f"--{name}={value}" for name, value in SMALL.items()]
    table = tmp_path / "profile.txt"
    options += ["--device", "cpu", "--compute", "bfloat16", "--profile", str(table)]
    assert script.main(options) == 0
    found = json.loads(capsys.readouterr().out)
    (step,) = found["steps"]
    phases = {"rollout", "student", "context", "teacher", "loss", "backward", "optimiser"}
    assert set(step["seconds"]) == {"step", *phases}
    # 3 rollouts of one turn each, 12 tokens at most; an end token can come up among 512.
    assert 3 <= step["tokens"]["sampled"] <= 36
    assert step["tokens"]["scored"] > 2 * step["tokens"]["sampled"]
    assert step["metrics"]["empty_batches"] == 0.0 and step["metrics"]["grad_norm_composer"] > 0.0
    assert math.isfinite(step["metrics"]["loss"]) and step["metrics"]["grad_norm"] > 0.0
    assert found["model"]["compute"] == "bfloat16"
    assert "aten::mm" in table.read_text()


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_without_a_gpu_it_says_so(script, capsys):
    assert script.main([]) == 1
    assert "sees no GPU" in capsys.readouterr().err
