"""Slices of the configuration, source digests, the registry, and the rules themselves."""

from __future__ import annotations

import copy
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from lopd_repro.cli import COMMANDS, main
from lopd_repro.errors import UserError
from lopd_repro.workflow.methods import Registry
from lopd_repro.workflow.slices import method_slice, slice_for
from lopd_repro.workflow.sources import closure, digest

ROOT = Path(__file__).resolve().parents[2]
CONFIG: dict[str, Any] = yaml.safe_load((ROOT / "config/tiny.yaml").read_text())
JOBS = [("tasks", ""), ("base_model", "tiny-128"), ("base_rollouts", ""), ("bank", ""),
        ("skills", ""), ("retrieve", ""), ("cold_start", ""), ("train", "grpo"),
        ("train", "lopd"), ("evaluate", "")]  # fmt: skip


@pytest.mark.parametrize("name", ["tiny", "smol", "small", "paper"])
def test_configurations_fit_the_schema(name: str) -> None:
    schema = yaml.safe_load((ROOT / "config/schema.yaml").read_text())
    config = yaml.safe_load((ROOT / f"config/{name}.yaml").read_text())
    jsonschema.validate(config, schema)
    config["train"]["stepz"] = 1
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(config, schema)


def changed(path: str, value: Any) -> set[tuple[str, str]]:
    """Jobs whose slice differs after a change of the configuration."""
    config = copy.deepcopy(CONFIG)
    *parents, key = path.split("/")
    at = config
    for parent in parents:
        at = at[parent]
    at[key] = value
    return {job for job in JOBS if slice_for(config, *job) != slice_for(CONFIG, *job)}


def test_a_change_reaches_only_the_jobs_that_read_it() -> None:
    assert changed("method_settings/grpo/eps_low", 0.1) == {("train", "grpo")}
    assert changed("method_settings/lopd/margin", 0.1) == {("train", "lopd")}
    assert changed("cold_start/steps", 7) == {("cold_start", "")}
    assert changed("retrieval/self_retrieval", True) == {("retrieve", "")}
    assert changed("bank/embedder", "backbone") == {("retrieve", "")}
    assert changed("bank/per_task", 9) == {("bank", "")}
    readers = {("base_rollouts", ""), ("bank", ""), ("skills", "")}
    assert changed("base_rollouts/per_task", 9) == readers
    assert changed("skills/writer", "endpoint") == {("skills", "")}
    with pytest.raises(UserError, match=r"found 16, allowed: up to 8 \(base_rollouts\.per_task\)"):
        changed("skills/groups", 2)
    assert changed("base_rollouts/task_limit", 9) == {*readers, ("retrieve", "")}
    assert readers <= changed("prompts/user", "{task}!")
    assert not readers & changed("prompts/latent_before", "See:")
    assert not readers & changed("sampling/evaluation/temperature", 0.1)
    assert readers & changed("prompts/skill_request", "Write.") == {("skills", "")}
    assert ("base_rollouts", "") not in changed("environment/trace_chars", 9)
    assert changed("evaluation/repeats", 9) == {("evaluate", "")}
    assert changed("train/steps", 3) == {("train", "grpo"), ("train", "lopd")}
    assert changed("notice", "other words") == set()
    assert changed("backbones/tiny-96/training", {"steps": 9}) == set()


def test_a_method_can_start_from_anothers_settings() -> None:
    control = method_slice(CONFIG, "lopd_shuffled")
    original = method_slice(CONFIG, "lopd")
    assert control["method"] == {**original["method"], "pairing": "shuffled"}
    assert {**control["train"], "keep_candidates": False} == original["train"]
    config = copy.deepcopy(CONFIG)
    config["method_settings"]["lopd_shuffled"]["like"] = "nobody"
    with pytest.raises(UserError, match="like: found 'nobody'"):
        method_slice(config, "lopd_shuffled")


def test_a_digest_follows_imports_and_nothing_else(tmp_path: Path) -> None:
    package = tmp_path / "lopd_repro"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "a.py").write_text("from lopd_repro import b\n")
    (package / "b.py").write_text("import json\n")
    (package / "c.py").write_text("x = 1\n")
    names = [p.name for p in closure(tmp_path, "lopd_repro.a")]
    assert names == ["__init__.py", "a.py", "b.py"]
    first = digest(tmp_path, "lopd_repro.a")
    (package / "c.py").write_text("x = 2\n")
    assert digest(tmp_path, "lopd_repro.a") == first


def test_training_depends_on_losses_and_reports_do_not() -> None:
    train = {str(p.relative_to(ROOT)) for p in closure(ROOT, "lopd_repro.commands.train")}
    table = {str(p.relative_to(ROOT)) for p in closure(ROOT, "lopd_repro.commands.table")}
    assert "lopd_repro/training/losses/policy.py" in train
    assert not any(name.startswith("lopd_repro/lopd/") for name in train)
    evaluate = {str(p.relative_to(ROOT)) for p in closure(ROOT, "lopd_repro.commands.evaluate")}
    assert not any(name.startswith("lopd_repro/lopd/") for name in evaluate)
    assert not any(
        name.startswith(("lopd_repro/training/", "lopd_repro/rollout/")) for name in table
    )


def test_the_registry_orders_and_refuses() -> None:
    registry = Registry({"methods": "all", "controls": ["c"]})
    registry.add("b", "B", "b.py", order=5)
    registry.add("a", "A", "a.py", order=9)
    registry.add("c", "C", "c.py", control=True)
    assert registry.methods() == ["b", "a"]
    assert registry.controls() == ["c"]
    with pytest.raises(UserError, match="two rule files"):
        registry.add("a", "A", "a.py")
    chosen = Registry({"methods": ["z"], "controls": []})
    chosen.add("a", "A", "a.py")
    with pytest.raises(UserError, match="found 'z', allowed: all, or a list of a"):
        chosen.methods()


def test_every_command_prints_its_help(capsys: pytest.CaptureFixture[str]) -> None:
    for name in COMMANDS:
        with pytest.raises(SystemExit) as stop:
            main([name, "--help"])
        assert stop.value.code == 0
        assert f"lopd-repro {name}" in capsys.readouterr().out


def test_bad_input_is_one_line_and_exit_code_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "tasks"
    assert main(["tasks", "--settings", '{"source": "moon"}', "--out", str(out)]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "tasks.seed: missing" in error
    assert main(["tasks", "--settings", "{", "--out", str(out)]) == 2
    assert "--settings: cannot be read" in capsys.readouterr().err


def test_the_graph_resolves_and_bad_configuration_is_refused(tmp_path: Path) -> None:
    snakemake = [sys.executable, "-m", "snakemake", "-n", "--quiet", "rules"]
    done = subprocess.run(
        [*snakemake, "all", "--config", f"results={tmp_path}/results"],
        cwd=ROOT, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    bad = subprocess.run(
        [*snakemake, "all", "--config", "seeds=[]"], cwd=ROOT, capture_output=True, text=True
    )
    assert bad.returncode != 0
    assert "seeds" in bad.stdout + bad.stderr
