"""A new baseline from its command to its table row, in a copy of the project."""

from __future__ import annotations

import csv
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from lopd_repro.cli import main
from lopd_repro.training.method import load_method

ROOT = Path(__file__).resolve().parents[2]
PARTS = ("Snakefile", "pyproject.toml", "lopd_repro", "workflow", "config", "baselines")


def small_config() -> dict[str, Any]:
    """The tiny scale with a model that hardly learns: one backbone, one seed, two steps."""
    config: dict[str, Any] = yaml.safe_load((ROOT / "config" / "tiny.yaml").read_text())
    config["seeds"] = [0]
    config["methods"] = ["vanilla"]
    config["controls"] = []
    config["benchmarks"] = {}
    config["base_model"]["corpus"]["conversations"] = {}
    del config["coding"]
    del config["analyses"]
    config["backbones"] = {"tiny-96": config["backbones"]["tiny-96"]}
    config["backbones"]["tiny-96"]["shape"].update(hidden=32, feed_forward=32)
    config["tasks"]["sizes"] = {"train": 24, "validation": 12, "test": 12}
    config["base_model"]["corpus"]["documents"] = 64
    config["base_model"]["training"].update(steps=3, batch=8)
    config["base_model"]["gate"] = {
        "base_low": 0.0,
        "base_high": 1.0,
        "with_reference": 0.0,
        "attempts": 1,
    }
    config["train"].update(steps=2, rollouts_per_step=4, validate_every=1)
    config["validation"]["repeats"] = 1
    config["evaluation"]["repeats"] = 1
    return config


def snakemake(folder: Path, *arguments: str) -> str:
    """Standard output and error of a call in the copy."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "snakemake",
            "--configfile",
            "small.yaml",
            "--cores",
            "1",
            *arguments,
        ],
        cwd=folder,
        env={**os.environ, "PATH": path, "XDG_CACHE_HOME": str(folder / "cache")},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout + done.stderr


def planned(output: str) -> set[str]:
    """Names of the rules that a dry run would run."""
    lines = [line.split() for line in output.splitlines()]
    return {f[1].rstrip(":") for f in lines if len(f) == 2 and f[0] in ("rule", "localrule")}


def copy_project(folder: Path) -> None:
    for part in PARTS:
        source = ROOT / part
        if source.is_dir():
            shutil.copytree(source, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, folder / part)
    shutil.copytree(ROOT / "paper_tables", folder / "paper_tables")


def write_config(folder: Path, config: dict[str, Any]) -> None:
    (folder / "small.yaml").write_text(yaml.safe_dump(config))


def test_a_new_baseline_reaches_the_table_and_reruns_no_other_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy_project(tmp_path)
    config = small_config()
    write_config(tmp_path, config)
    snakemake(tmp_path, "results/table1.csv")
    monkeypatch.chdir(tmp_path)
    assert main(["new-baseline", "my_method", "--label", "My method"]) == 0

    # With `methods: all`, the new rule is there without any further edit.
    write_config(tmp_path, {**config, "methods": "all"})
    everything = planned(snakemake(tmp_path, "results/table1.csv", "--dry-run"))
    assert {"train_my_method", "train_grpo", "train_lopd"} <= everything
    assert not {"tasks", "base_model", "train_vanilla"} & everything

    # Beside a finished method it is all there is to do.
    write_config(tmp_path, {**config, "methods": ["vanilla", "my_method"]})
    expected = {"train_my_method", "evaluate_envscaler", "table1"}
    assert planned(snakemake(tmp_path, "results/table1.csv", "--dry-run")) == expected
    before = (tmp_path / "results/runs/tool_use/tiny-96/vanilla/seed0/metrics.jsonl").stat()
    snakemake(tmp_path, "results/table1.csv")
    after = (tmp_path / "results/runs/tool_use/tiny-96/vanilla/seed0/metrics.jsonl").stat()
    assert before.st_mtime_ns == after.st_mtime_ns
    with (tmp_path / "results" / "table1.csv").open() as file:
        rows = {row["method"]: row for row in csv.DictReader(file)}
    assert set(rows) == {"Vanilla", "My method"}
    assert 0.0 <= float(rows["My method"]["envscaler"]) <= 100.0
    with (tmp_path / "results" / "comparisons.csv").open() as file:
        assert "my_method" in file.read()
    # The project's own sources are as they were: two new files.
    new = {p.name for p in (tmp_path / "baselines").iterdir() if p.is_file()}
    old = {p.name for p in (ROOT / "baselines").iterdir() if p.is_file()}
    assert new - old == {"my_method.py", "my_method.smk"}


def test_what_new_baseline_writes_and_refuses(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = ["--folder", str(tmp_path)]
    assert main(["new-baseline", "a_b2", *folder]) == 0
    made = load_method(tmp_path / "a_b2.py")
    assert (made.name, made.label, made.__name__) == ("a_b2", "a_b2", "AB2")
    assert len((tmp_path / "a_b2.py").read_text().splitlines()) < 60
    capsys.readouterr()
    for arguments, complaint in (
        (["a_b2", *folder], "exists already"),
        (["lopd", *folder], "exists already"),
        (["Big", *folder], "found name 'Big'"),
        (["class", *folder], "found name 'class'"),
        (["c", "--label", 'x"y', *folder], "found label"),
        (["c", "--folder", str(tmp_path / "none")], "no folder"),
    ):
        assert main(["new-baseline", *arguments]) == 2
        assert complaint in capsys.readouterr().err
    assert sorted(p.name for p in tmp_path.glob("*.*")) == ["a_b2.py", "a_b2.smk"]
