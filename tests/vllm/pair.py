"""A small model with vLLM's engine on it, and how close its runs are to the engine hf's."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small import end_ids, tokenizer
from test_hf_engine import PAD

from lopd_repro.rollout.engine import SamplingParams
from lopd_repro.rollout.hf_engine import HFEngine
from lopd_repro.rollout.vllm_engine import VLLMEngine, VLLMSettings
from lopd_repro.training.checkpoint import save_model

LIMIT = 512
ENDS = end_ids(40)
GREEDY = SamplingParams(0, max_turn_tokens=7, max_tail_tokens=30)


def assert_close_metrics(ours: list[dict[str, Any]], theirs: list[dict[str, Any]]) -> None:
    """Equal rows but for clocks and the gap that only one engine has."""
    for one, other in zip(ours, theirs, strict=True):
        assert one.keys() == other.keys()
        for key in one.keys() - {"seconds", "logp_gap_mean", "logp_gap_max"}:
            expected = other[key]
            if isinstance(expected, float):
                expected = pytest.approx(expected, rel=1e-3, abs=1e-4)
            assert one[key] == expected, key


def assert_close_weights(ours: Any, theirs: Any) -> None:
    """The same parameters, to a thousandth."""
    for name, weight in ours.state_dict().items():
        torch.testing.assert_close(weight, theirs.state_dict()[name], atol=1e-3, rtol=1e-3)


def small_model(kind: str, seed: int = 1) -> Any:
    """Random weights; heads of 32, since vLLM's CPU kernels have no smaller ones."""
    from transformers import Olmo3Config, Olmo3ForCausalLM, Qwen3Config, Qwen3ForCausalLM

    shape: dict[str, Any] = {
        "vocab_size": len(tokenizer()),
        "hidden_size": 64,
        "intermediate_size": 128,
        # Of four layers of Olmo 3 the last attends to everything, the others to a window.
        "num_hidden_layers": 2 if kind == "qwen3" else 4,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "max_position_embeddings": LIMIT,
        "initializer_range": 0.2,
        "bos_token_id": None,
        "eos_token_id": tokenizer().eos_token_id,
        "pad_token_id": tokenizer().pad_token_id,
    }
    torch.manual_seed(seed)
    if kind == "qwen3":
        config = Qwen3Config(**shape, head_dim=32, tie_word_embeddings=True)
        return Qwen3ForCausalLM(config).eval()
    return Olmo3ForCausalLM(Olmo3Config(**shape, sliding_window=64)).eval()


class Pair:
    """A model with vLLM's engine on it, started once for all tests."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind = kind
        self.model = small_model(kind)
        save_model(folder, self.model, tokenizer())
        torch.manual_seed(3)
        random.seed(3)
        np.random.seed(3)
        expected = (torch.rand(1), random.random(), np.random.rand())
        torch.manual_seed(3)
        random.seed(3)
        np.random.seed(3)
        settings = VLLMSettings(max_length=LIMIT, cache_gb=0.25)
        self.engine = VLLMEngine(self.model, str(folder), ENDS, 4, settings)
        self.kept_random_state = (torch.rand(1), random.random(), np.random.rand()) == expected

    def hf(self) -> HFEngine:
        return HFEngine(self.model, ENDS, PAD)

    def change_weights(self, seed: int) -> None:
        with torch.no_grad():
            for ours, other in zip(
                self.model.parameters(), small_model(self.kind, seed).parameters(), strict=True
            ):
                ours.copy_(other)
