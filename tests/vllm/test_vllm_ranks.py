"""Two ranks, each with a vLLM of its own, and a policy in shards between them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from rank_worlds import in_world, load, save
from small import ScriptDomain, tokenizer

from lopd_repro.models.backbone import copy_model
from lopd_repro.models.chat import ChatCodec
from lopd_repro.parallel.ranks import Ranks
from lopd_repro.rollout.divided import DividedEngine
from lopd_repro.rollout.engine import RolloutEngine
from lopd_repro.rollout.episodes import EpisodeRequest, collect
from lopd_repro.rollout.hf_engine import HFEngine
from lopd_repro.training.checkpoint import save_model


def sampled(engine: RolloutEngine) -> list[list[int]]:
    """Greedy tails of five episodes."""
    from pair import ENDS, GREEDY

    requests = [EpisodeRequest(f"t{i}", i, i, i) for i in range(5)]
    domain, codec = ScriptDomain(), ChatCodec(tokenizer(), ENDS)
    return [t.tail for t in collect(engine, codec, domain, requests, GREEDY)]


def both(ranks: Ranks, folder: Path) -> None:
    """Sample, change the weights, sample again."""
    from pair import ENDS, LIMIT, small_model
    from torch.distributed.tensor import Shard, distribute_tensor

    from lopd_repro.parallel.sharding import shard_model
    from lopd_repro.rollout.vllm_engine import VLLMEngine, VLLMSettings

    model = small_model("qwen3")
    save_model(folder / "model", model, tokenizer(), ranks)
    twin = copy_model(model)
    shard_model(model, ranks.mesh)
    settings = VLLMSettings(max_length=LIMIT, cache_gb=0.1)
    engine = DividedEngine(VLLMEngine(model, str(folder / "model"), ENDS, 4, settings), ranks)
    plain = HFEngine(twin, ENDS, int(tokenizer().pad_token_id))
    found: dict[str, Any] = {"before": (sampled(engine), sampled(plain))}
    with torch.no_grad():
        other = small_model("qwen3", seed=5)
        for parts in zip(model.parameters(), twin.parameters(), other.parameters(), strict=True):
            parts[0].copy_(distribute_tensor(parts[2].detach(), ranks.mesh, [Shard(0)]))
            parts[1].copy_(parts[2])
    with pytest.raises(RuntimeError, match="sync_weights comes first"):
        sampled(engine)
    engine.sync_weights(model)
    found["after"] = sampled(engine), sampled(plain)
    save(ranks, folder, "found", found)


def test_two_ranks_sample_what_hf_does_and_share_the_episodes(tmp_path: Path) -> None:
    assert in_world(2, both, tmp_path) == ["", ""]
    found = load(tmp_path, "found")
    for ours, expected in found.values():
        assert ours == expected and len(ours) == 5
    assert found["before"][0] != found["after"][0]
