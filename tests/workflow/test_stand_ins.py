"""The paper's configuration on tiny stand-ins: what its rules load, from folders, without a host.

`benchmarks/paper_stand_ins.py` runs all of the workflow on them.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from lopd_repro.cli import main
from lopd_repro.files import read_json
from lopd_repro.workflow import fetched, slices
from lopd_repro.workflow.configuration import load

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("pyarrow")
    from stand_ins import make

    return make(tmp_path_factory.mktemp("stand-ins"))


def test_it_is_the_papers_configuration_but_for_what_is_named(config: Path) -> None:
    from stand_ins import CHANGES

    ours, papers = load([config]), load([ROOT / "config/paper.yaml"])
    moved = {"results", "data", "sources", "backbones", "benchmarks"}
    assert {key for key in ours if ours[key] != papers.get(key)} == {*CHANGES, *moved}
    assert ours["prompts"] == papers["prompts"] and ours["chat"] == papers["chat"]


def test_everything_is_fetched_from_folders_and_read(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    assert main(["fetch", "--config", str(config)]) == 0
    domains = slices.domains(load([config]))
    sources = fetched.needed(domains)
    assert len(sources) == 10 and all(source.folder for source in sources.values())
    for domain, own in domains.items():
        out = config.parent / domain
        settings = json.dumps(slices.slice_for(own, "tasks"))
        assert main(["tasks", "--settings", settings, "--out", str(out)]) == 0
        splits = read_json(out / "splits.json")["splits"]
        assert {name: len(ids) for name, ids in splits.items()} == {
            "train": 16, "validation": 4, "test": 4,
        }  # fmt: skip
        ((name, backbone),) = own["backbones"].items()
        place = fetched.place(own, fetched.backbone_source(own, backbone))
        base = ["--out", str(out / name), "--report", str(out / "base.json")]
        assert main(["import-hub", "--fetched", place, *base]) == 0
        assert read_json(out / "base.json")["parameters"] > 100_000
        ((_, released),) = backbone["released"].items()
        folder = config.parent / "data" / released["model"]
        theirs = ["--out", str(out / "theirs"), "--report", str(out / "theirs.json")]
        command = ["import-released", "--folder", str(folder), "--backbone", str(out / name)]
        assert main([*command, *theirs]) == 0


def test_the_workflow_resolves_on_them(config: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "snakemake", "-n", "--quiet", "rules", "--configfile", str(config),
         "--", "all"],
        cwd=ROOT, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    counts = dict(line.split() for line in done.stdout.splitlines() if len(line.split()) == 2)
    assert counts["released_checkpoint"] == "2" and counts["train_lopd"] == "2"
