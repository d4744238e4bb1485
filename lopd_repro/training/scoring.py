"""Log-probabilities of a trajectory's supervised tokens under a model and a head.

Sequences are right-padded and run with the causal mask alone; the output projection is applied
to supervised positions only. Results are flat over the batch: row by row, in token order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from lopd_repro.models.backbone import fits_window, lm_head
from lopd_repro.models.padding import distinct
from lopd_repro.rollout.episodes import Trajectory
from lopd_repro.rollout.heads import BuiltHead
from lopd_repro.training.shared_heads import head_key, supervised_hidden


class TokenScores:
    """Next-token distributions at N supervised positions, computed when asked for.

    hidden: `[N, d]`; weight: `[vocabulary, d]`. Log-probabilities are natural, float32 or wider.
    forwarded: tokens that the model read for them, padding left out.
    """

    def __init__(
        self,
        hidden: torch.Tensor,
        weight: torch.Tensor,
        temperature: float = 1.0,
        forwarded: int = 0,
    ) -> None:
        self.hidden = hidden
        self.weight = weight
        self.temperature = temperature
        self.forwarded = forwarded
        self._log_probs: torch.Tensor | None = None

    def __len__(self) -> int:
        return self.hidden.shape[0]

    def log_probs(self) -> torch.Tensor:
        """Full log-distributions `[N, vocabulary]`."""
        if self._log_probs is None:
            logits = self.hidden @ self.weight.T
            if logits.dtype in (torch.bfloat16, torch.float16):
                logits = logits.float()
            self._log_probs = (logits / self.temperature).log_softmax(-1)
        return self._log_probs

    def logp(self, ids: torch.Tensor) -> torch.Tensor:
        """Log-probability of one id per position: `[N]` for ids `[N]`."""
        return self.log_probs().gather(-1, ids.unsqueeze(-1)).squeeze(-1)

    def logp_at(self, ids: torch.Tensor) -> torch.Tensor:
        """Log-probabilities of several ids per position: `[N, k]` for ids `[N, k]`."""
        return self.log_probs().gather(-1, ids)

    def topk(self, k: int) -> tuple[torch.Tensor, torch.Tensor]:
        """The k most likely ids per position: (log-probabilities, ids), both `[N, k]`."""
        values, ids = self.log_probs().topk(min(k, self.weight.shape[0]), dim=-1)
        return values, ids

    def select(self, mask: torch.Tensor) -> TokenScores:
        """Scores of the positions where `mask` `[N]` is true; these themselves if all are."""
        if bool(mask.all()):
            return self
        return TokenScores(self.hidden[mask], self.weight, self.temperature)


def score(
    model: Any,
    heads: Sequence[BuiltHead],
    trajectories: Sequence[Trajectory],
    pad_id: int,
    temperature: float = 1.0,
) -> TokenScores:
    """Score each trajectory's tail after its head.

    Gradients flow to the model's parameters and to the heads' latents as far as they require
    them. N counts the supervised tokens of all trajectories; none gives empty scores. Where two
    or more trajectories share each head on average, a head is run once (`shared_heads`).
    """
    device = model.device
    lengths = [len(h.head.ids) + len(t.tail) for h, t in zip(heads, trajectories, strict=True)]
    if not any(t.n_sampled for t in trajectories):
        weight = lm_head(model)
        return TokenScores(weight.new_zeros(0, weight.shape[1]), weight, temperature)
    places, index = distinct([head_key(head) for head in heads])
    if len(places) * 2 <= len(heads) and fits_window(model, max(lengths)):
        different = [heads[place] for place in places]
        hidden = supervised_hidden(model, different, index, trajectories, pad_id)
        read = sum(len(h.head.ids) for h in different) + sum(len(t.tail) for t in trajectories)
        return TokenScores(hidden, lm_head(model), temperature, read)
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
    if any(head.latents is not None for head in heads):
        embeddings = embed_with_latents(model, ids, heads)
        output = model.base_model(inputs_embeds=embeddings, use_cache=False)
    else:
        output = model.base_model(input_ids=ids, use_cache=False)
    hidden = output.last_hidden_state[chosen]
    return TokenScores(hidden, lm_head(model), temperature, sum(lengths))


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
