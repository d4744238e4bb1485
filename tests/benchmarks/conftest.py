"""A small checkpoint on disk, for tests that serve one."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "core"))


@pytest.fixture(scope="session")
def served_checkpoint(tmp_path_factory):
    from small import make_model, tokenizer

    from lopd_repro.training.checkpoint import save_model

    folder = tmp_path_factory.mktemp("checkpoint") / "model"
    save_model(folder, make_model("qwen3"), tokenizer())
    return folder
