"""Variants: grids and controls as runs of a method with other settings."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

from lopd_repro.errors import UserError
from lopd_repro.workflow.slices import domains, method_slice, overrides, refuse_overrides, slice_for
from lopd_repro.workflow.variants import expand

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def config() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((ROOT / "config/tiny.yaml").read_text())
    return loaded


def test_a_grid_runs_lopd_with_one_setting_changed(config: dict[str, Any]) -> None:
    config["analyses"]["margins"] = [0.0, 0.05, 0.1]
    found = expand(config)
    # 0.05 is LOPD's own margin.
    assert found.of("margin") == {"0": "lopd_margin_0", "0.05": "lopd", "0.1": "lopd_margin_0.1"}
    lopd, variant = method_slice(config, "lopd"), method_slice(config, "lopd_margin_0.1")
    assert variant["method"] == {**lopd["method"], "margin": 0.1}
    assert variant["optimiser"] == lopd["optimiser"]


def test_the_number_of_latents_is_the_composers_and_not_the_methods(
    config: dict[str, Any],
) -> None:
    config["analyses"]["latents"] = [8, 16]
    assert expand(config).of("latents") == {"8": "lopd_latents_8", "16": "lopd"}
    assert (
        method_slice(config, "lopd_latents_8")["method"] == method_slice(config, "lopd")["method"]
    )
    assert slice_for(config, "cold_start", "lopd_latents_8")["composer"]["n_latents"] == 8
    assert slice_for(config, "cold_start", "tiny-128")["composer"]["n_latents"] == 16


def test_a_control_may_change_the_retrieval(config: dict[str, Any]) -> None:
    assert "lopd_self_retrieval" in expand(config).names()
    assert overrides(config, "lopd_self_retrieval", "retrieval") == {"self_retrieval": True}
    shared, own = (slice_for(config, "retrieve", n) for n in ("", "lopd_self_retrieval"))
    assert own["retrieval"] == {**shared["retrieval"], "self_retrieval": True}


def test_only_the_named_curves_keep_their_candidates_on_their_backbone(
    config: dict[str, Any],
) -> None:
    expand(config)
    own = config["analyses"]["backbone"]
    assert method_slice(config, "lopd", own)["train"]["keep_candidates"] is True
    (other,) = set(config["backbones"]) - {own}
    assert method_slice(config, "lopd", other)["train"]["keep_candidates"] is False
    code = domains(config)["coding"]
    (name, *_) = code["backbones"]
    assert slice_for(code, "train", "grpo", name)["train"]["keep_candidates"] is False
    for name in ("lopd_margin_0", "lopd_shuffled", "sdft"):
        assert "keep_candidates" not in method_slice(config, name)["train"]


def test_a_control_may_start_from_one_that_is_not_run(config: dict[str, Any]) -> None:
    config["controls"] = ["lopd_shuffled_throughout"]
    (variant, *_) = expand(config).variants
    assert (variant.like, variant.root) == ("lopd_shuffled", "lopd")
    config["method_settings"]["lopd_shuffled"]["like"] = "lopd_shuffled_throughout"
    with pytest.raises(UserError, match=r"lopd_shuffled.like: found 'lopd_shuffled_throughout'"):
        expand(config)


def test_variants_reach_every_domain(config: dict[str, Any]) -> None:
    expand(config)
    assert "lopd_margin_0" in domains(config)["coding"]["method_settings"]


def test_what_cannot_be_is_refused(config: dict[str, Any]) -> None:
    wrong = copy.deepcopy(config)
    wrong["analyses"]["backbone"] = "tiny-7"
    with pytest.raises(UserError, match=r"analyses.backbone: found 'tiny-7', allowed: one of tiny"):
        expand(wrong)
    wrong = copy.deepcopy(config)
    wrong["method_settings"]["lopd"]["composer"] = {"n_latents": 4}
    with pytest.raises(UserError, match=r"method_settings.lopd.composer: found in a method"):
        refuse_overrides(wrong, "lopd")
    wrong = copy.deepcopy(config)
    wrong["method_settings"]["lopd_margin_0"] = {"like": "lopd"}
    with pytest.raises(UserError, match=r"lopd_margin_0: this name belongs to analyses.margins"):
        expand(wrong)


def test_without_analyses_there_are_only_the_controls(config: dict[str, Any]) -> None:
    del config["analyses"]
    config["controls"] = []
    found = expand(config)
    assert found.names() == []
    assert found.of("margin") == {}
