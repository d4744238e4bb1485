"""Log-probabilities of a trajectory's supervised tokens under a model and a head.

Sequences are right-padded and run with the causal mask alone; the output projection is applied
to supervised positions only. Results are flat over the batch: row by row, in token order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from lopd_repro.models.backbone import fits_window, forward_pass, lm_head, shares_heads
from lopd_repro.models.padding import distinct
from lopd_repro.rollout.episodes import Trajectory
from lopd_repro.rollout.heads import BuiltHead
from lopd_repro.training.chunked_scores import token_scores
from lopd_repro.training.shared_heads import head_key, supervised_hidden
from lopd_repro.training.token_scores import TokenScores


def score(
    model: Any,
    heads: Sequence[BuiltHead],
    trajectories: Sequence[Trajectory],
    pad_id: int,
    temperature: float = 1.0,
    head_chunk: int = 0,
) -> TokenScores:
    """Score each trajectory's tail after its head.

    Gradients flow to the model's parameters and to the heads' latents as far as they require
    them. N counts the supervised tokens of all trajectories; none gives empty scores. Where two
    or more trajectories share each head on average, a head is run once (`shared_heads`).
    head_chunk: tokens to which the output projection is applied at a time; 0 is all.
    """
    device = model.device
    tokens = sampled_tokens(trajectories)[0].to(device)
    lengths = [len(h.head.ids) + len(t.tail) for h, t in zip(heads, trajectories, strict=True)]
    if not any(t.n_sampled for t in trajectories):
        weight = lm_head(model)
        empty = weight.new_zeros(0, weight.shape[1])
        return token_scores(empty, weight, temperature, 0, tokens, head_chunk)
    places, index = distinct([head_key(head) for head in heads])
    shared = len(places) * 2 <= len(heads) and shares_heads(model)
    if shared and fits_window(model, max(lengths)):
        different = [heads[place] for place in places]
        hidden = supervised_hidden(model, different, index, trajectories, pad_id)
        read = sum(len(h.head.ids) for h in different) + sum(len(t.tail) for t in trajectories)
        return token_scores(hidden, lm_head(model), temperature, read, tokens, head_chunk)
    width = max(lengths)
    ids = torch.full((len(heads), width), pad_id)
    chosen = torch.zeros(len(heads), width, dtype=torch.bool)
    for i, (head, trajectory) in enumerate(zip(heads, trajectories, strict=True)):
        start = len(head.head.ids)
        ids[i, :start] = torch.tensor(head.head.ids)
        ids[i, start : lengths[i]] = torch.tensor(trajectory.tail)
        # The distribution of tail[j] is read at the position before it.
        chosen[i, start - 1 : lengths[i] - 1] = torch.tensor(trajectory.supervised)
    ids, chosen = ids.to(device), chosen.to(device)

    def supervised() -> torch.Tensor:
        if any(head.latents is not None for head in heads):
            embeddings = embed_with_latents(model, ids, heads)
            output = model.base_model(inputs_embeds=embeddings, use_cache=False)
        else:
            output = model.base_model(input_ids=ids, use_cache=False)
        found: torch.Tensor = output.last_hidden_state[chosen]
        return found

    hidden = forward_pass(model, supervised)
    return token_scores(hidden, lm_head(model), temperature, sum(lengths), tokens, head_chunk)


def embed_with_latents(model: Any, ids: torch.Tensor, heads: Sequence[BuiltHead]) -> torch.Tensor:
    """Token embeddings `[batch, width, d]` with each head's span replaced by its latents.

    Rows are rebuilt by concatenating slices, so gradients reach the latents (paper eq. 18).
    """
    embeddings = model.get_input_embeddings()(ids)
    rows = []
    for i, head in enumerate(heads):
        if head.latents is None or head.head.span is None:
            rows.append(embeddings[i])
            continue
        start, stop = head.head.span
        latents = head.latents.to(embeddings.dtype)
        rows.append(torch.cat([embeddings[i, :start], latents, embeddings[i, stop:]]))
    return torch.stack(rows)


def sampled_tokens(trajectories: Sequence[Trajectory]) -> tuple[torch.Tensor, torch.Tensor]:
    """Supervised ids `[N]` and the index `[N]` of the trajectory each belongs to."""
    tokens = [
        token
        for t in trajectories
        for token, kept in zip(t.tail, t.supervised, strict=True)
        if kept
    ]
    counts = torch.tensor([t.n_sampled for t in trajectories], dtype=torch.long)
    rows = torch.repeat_interleave(torch.arange(len(trajectories)), counts)
    return torch.tensor(tokens, dtype=torch.long), rows
