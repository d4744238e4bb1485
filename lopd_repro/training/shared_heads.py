"""Scoring trajectories that share heads: each distinct head is run once, its tails after it.

A group's rollouts have one head between them, often longer than their tails. The head's keys and
values are computed once and repeated, gradients included, so the result is that of running every
sequence whole, up to rounding.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import torch
from transformers.cache_utils import DynamicCache

from lopd_repro.models.padding import left_pad
from lopd_repro.rollout.episodes import Trajectory
from lopd_repro.rollout.heads import BuiltHead


def head_key(head: BuiltHead) -> Hashable:
    """Heads are the same if their ids are equal and their latents are one tensor."""
    return head.head.ids, head.head.span, None if head.latents is None else id(head.latents)


def supervised_hidden(
    model: Any,
    heads: Sequence[BuiltHead],
    index: Sequence[int],
    trajectories: Sequence[Trajectory],
    pad_id: int,
) -> torch.Tensor:
    """Hidden states `[N, d]` from which the supervised tokens are predicted, row by row.

    heads: the different ones; `index[i]` is the place of trajectory i's head among them.
    """
    device = model.device
    rows = torch.tensor(index, device=device)
    cache: Any = DynamicCache()
    last, head_mask = _run_heads(model, heads, pad_id, cache)
    for layer in cache.layers:
        layer.keys, layer.values = layer.keys[rows], layer.values[rows]
    width = max(len(t.tail) for t in trajectories)
    ids = torch.full((len(trajectories), width), pad_id)
    chosen = torch.zeros(len(trajectories), width, dtype=torch.bool)
    for i, trajectory in enumerate(trajectories):
        ids[i, : len(trajectory.tail)] = torch.tensor(trajectory.tail)
        chosen[i, : len(trajectory.tail)] = torch.tensor(trajectory.supervised)
    causal = torch.ones(width, width, dtype=torch.bool, device=device).tril()
    before = head_mask[rows][:, None, :].expand(-1, width, -1)
    mask = torch.cat([before, causal.expand(len(rows), -1, -1)], dim=2)
    lengths = head_mask.sum(-1)[rows]
    output = model.base_model(
        input_ids=ids.to(device),
        attention_mask=mask[:, None],
        position_ids=lengths[:, None] + torch.arange(width, device=device),
        past_key_values=cache,
        use_cache=True,
    ).last_hidden_state
    # The distribution of tail[j] is read at the position before it: the head's last for j = 0.
    shifted = torch.cat([last[rows][:, None], output[:, :-1]], dim=1)
    return shifted[chosen.to(device)]


def _run_heads(
    model: Any, heads: Sequence[BuiltHead], pad_id: int, cache: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    """Fill the cache with left-padded heads; last hidden states `[U, d]` and mask `[U, width]`."""
    padded = left_pad([head.head.ids for head in heads], pad_id, model.device)
    embeddings = model.get_input_embeddings()(padded.ids)
    if any(head.latents is not None for head in heads):
        embeddings = torch.stack(
            [_with_latents(row, head) for row, head in zip(embeddings, heads, strict=True)]
        )
    hidden = model.base_model(
        inputs_embeds=embeddings,
        attention_mask=padded.attention,
        position_ids=padded.positions,
        past_key_values=cache,
        use_cache=True,
    ).last_hidden_state
    return hidden[:, -1], padded.mask


def _with_latents(row: torch.Tensor, head: BuiltHead) -> torch.Tensor:
    if head.latents is None or head.head.span is None:
        return row
    offset = len(row) - len(head.head.ids)
    start, stop = (offset + place for place in head.head.span)
    return torch.cat([row[:start], head.latents.to(row.dtype), row[stop:]])
