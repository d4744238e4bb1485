"""The Slurm profile against the workflow's rules, without running anything."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
import yte
from slurm_cluster import ROOT

DEFAULT: dict[str, Any] = yaml.safe_load((ROOT / "profiles/default/config.yaml").read_text())


@pytest.fixture
def profile(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The Slurm profile as Snakemake reads it, started in the project's folder."""
    monkeypatch.chdir(ROOT)
    with Path("profiles/slurm/config.yaml").open() as file:
        found: dict[str, Any] = yte.process_yaml(file, require_use_yte=True)
    return found


@pytest.fixture(scope="module")
def rules() -> set[str]:
    done = subprocess.run(
        [sys.executable, "-m", "snakemake", "--list-rules"],
        cwd=ROOT, text=True, capture_output=True, check=True,
    )  # fmt: skip
    return set(done.stdout.split())


def test_it_names_rules_that_there_are(profile: dict[str, Any], rules: set[str]) -> None:
    assert set(profile["set-resources"]) <= rules
    assert set(profile["groups"]) <= rules
    assert set(profile["group-components"]) <= set(profile["groups"].values())


def test_every_training_and_evaluation_gets_gpus(profile: dict[str, Any], rules: set[str]) -> None:
    heavy = {rule for rule in rules if rule.startswith(("train_", "evaluate_"))}
    assert heavy, "the workflow has no training"
    without = {r for r in heavy if profile["set-resources"].get(r, {}).get("gpu", 0) < 1}
    assert not without, f"profiles/slurm/config.yaml: set-resources lacks {sorted(without)}"


def test_a_training_has_a_rank_for_each_of_its_gpus(profile: dict[str, Any]) -> None:
    found = {rule: own for rule, own in profile["set-resources"].items() if own.get("gpu", 0) > 1}
    assert {"train_lopd", "train_variant", "base_rollouts", "cold_start"} <= set(found)
    assert all(own["ranks"] == own["gpu"] for own in found.values())


def test_memory_grows_with_each_attempt(profile: dict[str, Any]) -> None:
    asked = [profile["default-resources"]["mem_mb"]]
    asked += [own["mem_mb"] for own in profile["set-resources"].values()]
    for text in asked:
        first, second = (eval(text, {"attempt": attempt, "min": min}) for attempt in (1, 2))
        assert first < second, text


def test_the_default_profile_overrides_nothing_of_it(profile: dict[str, Any]) -> None:
    # Snakemake reads profiles/default after --profile: a key in both would be the default's.
    # With `cores` a login node's cores would bound what all nodes together may use.
    assert not set(profile) & set(DEFAULT)
    assert "cores" not in DEFAULT


def test_a_method_that_is_added_trains_on_gpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "baselines").mkdir()
    for name in ("mine", "vanilla"):
        (tmp_path / f"baselines/{name}.smk").touch()
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "profiles/slurm/config.yaml").read_text()
    found = yte.process_yaml(text, require_use_yte=True)["set-resources"]
    assert found["train_mine"]["gpu"] == found["train_lopd"]["gpu"]
    # It validates the base model and trains nothing.
    assert found["train_vanilla"]["gpu"] == 1


def test_a_graph_of_1500_jobs_resolves_in_seconds(tmp_path: Path) -> None:
    (tmp_path / "seeds.yaml").write_text(yaml.safe_dump({"seeds": list(range(10))}))
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, "-m", "snakemake", "-n", "--quiet", "rules", "--profile", "profiles/slurm",
         "--configfile", "config/tiny.yaml", str(tmp_path / "seeds.yaml"),
         "--config", f"results={tmp_path}/results", "--", "all"],
        cwd=ROOT, text=True, capture_output=True,
    )  # fmt: skip
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode == 0, done.stderr
    totals = [line for line in done.stdout.splitlines() if line.startswith("total")]
    assert int(totals[-1].split()[1]) > 1500
    # Of processor time, which does not depend on what else the machine does; 7 s when written.
    assert after.ru_utime - before.ru_utime < 20
