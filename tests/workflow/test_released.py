"""Checkpoints that others trained: named in the configuration, linked, and rows of their own."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from safetensors.numpy import save_file

from lopd_repro.cli import main
from lopd_repro.doctor.checks import released_folders
from lopd_repro.errors import UserError
from lopd_repro.files import read_json
from lopd_repro.workflow.fetched import needed, released_folder
from lopd_repro.workflow.released import check_names, released

CONFIG: dict[str, Any] = yaml.safe_load(
    (Path(__file__).resolve().parents[2] / "config/tiny.yaml").read_text()
)
SIZES = {"model_type": "qwen3", "hidden_size": 4, "num_hidden_layers": 1, "num_attention_heads": 2}


def with_released(**values: Any) -> dict[str, Any]:
    """The tiny scale with a checkpoint of others under one backbone."""
    config = copy.deepcopy(CONFIG)
    config["backbones"]["tiny-96"]["released"] = {"theirs": {"label": "Theirs", **values}}
    return config


def model(folder: Path, tokenizer: bool = True, **sizes: Any) -> Path:
    """A folder like a model's, of 6 weights."""
    folder.mkdir()
    save_file({"w": np.zeros((2, 3), np.float32)}, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps({**SIZES, **sizes}))
    for name in ("tokenizer.json", "tokenizer_config.json") if tokenizer else ():
        (folder / name).write_text(f'{{"of": "{folder.name}"}}')
    return folder


def bring(folder: Path, base: Path, out: Path, *more: str) -> int:
    where = ["--out", str(out / "checkpoint"), "--report", str(out / "released.json")]
    places = ["--folder", str(folder), "--backbone", str(base)]
    return main(["import-released", *places, *where, *more])


def test_where_a_checkpoint_comes_from() -> None:
    revision = "0" * 40
    config = with_released(model="some/one", revision=revision, paper_method="LOPD")
    (one,) = released(config)
    assert (one.backbone, one.name, one.paper_method) == ("tiny-96", "theirs", "LOPD")
    assert list(needed({"tool_use": config})) == ["some--one-000000000000"]
    assert released_folder(config, one) == "data/some--one-000000000000"
    config = with_released(path="/somewhere/else")
    (one,) = released(config)
    assert released_folder(config, one) == "/somewhere/else"
    assert needed({"tool_use": config}) == {}
    (finding,) = released_folders({"tool_use": config})
    assert (finding.state, finding.topic) == ("problem", "data")
    for values in ({}, {"model": "qwen3-8b-lopd", "path": "x"}):
        with pytest.raises(UserError, match=r"tiny-96\.released\.theirs: allowed: one of `model`"):
            released(with_released(**values))


def test_a_checkpoint_has_no_methods_name_or_label() -> None:
    found = released(with_released(path="x"))
    check_names(found, ["lopd", "LOPD"])
    for name in ("theirs", "Theirs"):
        with pytest.raises(UserError, match=f"a method has the name '{name}'"):
            check_names(found, ["lopd", name])


def test_it_is_put_where_a_runs_checkpoint_is(tmp_path: Path) -> None:
    theirs, base = model(tmp_path / "theirs"), model(tmp_path / "base")
    (theirs / "training_args.bin").write_bytes(b"no part of a model")
    assert bring(theirs, base, tmp_path / "run") == 0
    found = sorted((tmp_path / "run/checkpoint").iterdir())
    assert [p.name for p in found] == [
        "config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json",
    ]  # fmt: skip
    # A harness that is confined to this folder has to find it all there.
    assert not any(p.is_symlink() for p in found)
    assert all(p.read_bytes() == (theirs / p.name).read_bytes() for p in found)
    assert found[1].samefile(theirs / "model.safetensors")
    report = read_json(tmp_path / "run/released.json")
    assert report["parameters"] == 6 and len(report["sha256"]["model.safetensors"]) == 64
    # No manifest: it is no training run of ours.
    assert sorted(p.name for p in (tmp_path / "run").iterdir()) == ["checkpoint", "released.json"]


def test_the_backbones_tokenizer_stands_in_where_that_is_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    theirs, base = model(tmp_path / "theirs", tokenizer=False), model(tmp_path / "base")
    assert bring(theirs, base, tmp_path / "run") == 2
    assert "has no tokenizer.json; `tokenizer: backbone`" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
    assert bring(theirs, base, tmp_path / "run", "--tokenizer", "backbone") == 0
    checkpoint = tmp_path / "run/checkpoint"
    assert (checkpoint / "tokenizer.json").read_text() == '{"of": "base"}'
    assert (checkpoint / "model.safetensors").samefile(theirs / "model.safetensors")


def test_what_is_no_checkpoint_of_the_backbone_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base = model(tmp_path / "base")
    wide = model(tmp_path / "wide", hidden_size=8)
    empty = tmp_path / "empty"
    empty.mkdir()
    for folder, complaint in (
        (wide, "hidden_size is 8, the backbone's is 4"),
        (empty, "has no config.json"),
        (tmp_path / "none", "no such folder"),
    ):
        assert bring(folder, base, tmp_path / "run") == 2
        error = capsys.readouterr().err
        assert complaint in error and error.count("\n") == 1
    assert not (tmp_path / "run").exists()
