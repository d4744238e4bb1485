from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
from small import make_model, tokenizer

from lopd_repro.commands.wiring import parts
from lopd_repro.errors import UserError
from lopd_repro.rollout.hf_engine import HFEngine
from lopd_repro.training.checkpoint import save_model

WITH_VLLM = importlib.util.find_spec("vllm") is not None
TEXTS = (
    "system user latent_before latent_after reference_before reference_after demonstration_before "
    "demonstration_after sibling_before sibling_after skill_works skill_avoid skill_workflow "
    "skill_after skill_request composer_task composer_trace"
)
SETTINGS: dict[str, Any] = {
    "prompts": dict.fromkeys(TEXTS.split(), ""),
    "environment": {"workers": 1},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: Any) -> Path:
    path: Path = tmp_path_factory.mktemp("backbone") / "model"
    save_model(path, make_model(), tokenizer())
    return path


def test_the_engine_is_made_once_and_only_when_asked_for(folder: Path) -> None:
    with parts({**SETTINGS, "engine": {"max_batch": 3}}, folder) as p:
        assert "engine" not in vars(p)
        assert isinstance(p.engine, HFEngine) and p.engine.max_batch == 3
        assert p.engine is p.engine and p.engine.model is p.backbone.model


@pytest.mark.skipif(WITH_VLLM, reason="vLLM is installed here")
def test_vllm_is_asked_for_where_it_is_not_installed(folder: Path) -> None:
    with (
        parts({**SETTINGS, "engine": {"name": "vllm"}}, folder) as p,
        pytest.raises(UserError, match=r"engine\.name: vllm is not installed beside lopd-repro"),
    ):
        _ = p.engine


@pytest.mark.parametrize(
    ("engine", "match"),
    [
        ({"name": "sglang"}, r"engine\.name: found 'sglang', allowed: hf, vllm"),
        ({"vllm": {"fraction": 0.5}}, r"engine\.vllm\.fraction: unknown key"),
        ({"name": "vllm", "vllm": {"sleep": 1}}, r"engine\.vllm\.sleep: found 1, allowed: bool"),
    ],
)
def test_engine_settings_are_checked(engine: dict[str, Any], match: str, folder: Path) -> None:
    with pytest.raises(UserError, match=match), parts({**SETTINGS, "engine": engine}, folder):
        pass
