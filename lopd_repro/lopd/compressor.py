"""Perceiver compressor: a text's hidden states to K latent tokens.

As memory/qformer.py of the released code: K learned queries, `depth` cross-attention layers that
share one set of weights, keys and values from [hidden states; queries], feed-forward with exact
GELU, linear projections in and out, a final LayerNorm; the attention softmax runs in float32.
Departs by taking a key mask again (the first release had one), so that texts of different
lengths run in one batch.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


class CrossAttention(nn.Module):
    """Queries attend to normed hidden states and to themselves."""

    def __init__(self, width: int, heads: int, head_size: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_states = nn.LayerNorm(width)
        self.norm_queries = nn.LayerNorm(width)
        self.to_q = nn.Linear(width, heads * head_size, bias=False)
        self.to_kv = nn.Linear(width, 2 * heads * head_size, bias=False)
        self.to_out = nn.Linear(heads * head_size, width, bias=False)

    def forward(self, states: Tensor, queries: Tensor, mask: Tensor | None) -> Tensor:
        """`[B, n, d]`, `[B, K, d]`, mask `[B, n]` (true = keep) -> `[B, K, d]`."""
        normed = self.norm_queries(queries)
        keys_values = self.to_kv(torch.cat([self.norm_states(states), normed], dim=1))
        keys, values = (self._split(part) for part in keys_values.chunk(2, dim=-1))
        query = self._split(self.to_q(normed))
        # Scaling both sides keeps half-precision products small.
        scale = query.shape[-1] ** -0.25
        weights = (query * scale) @ (keys * scale).transpose(-1, -2)
        if mask is not None:
            own = mask.new_ones(mask.shape[0], queries.shape[1])
            keep = torch.cat([mask, own], dim=1)[:, None, None, :]
            weights = weights.masked_fill(~keep, torch.finfo(weights.dtype).min)
        attention = weights.float().softmax(-1).to(values.dtype)
        out: Tensor = self.to_out((attention @ values).transpose(1, 2).flatten(2))
        return out

    def _split(self, rows: Tensor) -> Tensor:
        batch, length, _ = rows.shape
        return rows.view(batch, length, self.heads, -1).transpose(1, 2)


class Compressor(nn.Module):
    """`[B, n, width]` hidden states to `[B, n_latents, width]` latent tokens."""

    def __init__(
        self,
        width: int,
        heads: int,
        head_size: int,
        n_latents: int,
        depth: int = 8,
        ff_mult: int = 4,
    ) -> None:
        super().__init__()
        self.depth = depth
        self.latents = nn.Parameter(torch.randn(1, n_latents, width) * width**-0.5)
        self.proj_in = nn.Linear(width, width)
        self.attention = CrossAttention(width, heads, head_size)
        self.feed_forward = nn.Sequential(
            nn.LayerNorm(width),
            nn.Linear(width, width * ff_mult, bias=False),
            nn.GELU(),
            nn.Linear(width * ff_mult, width, bias=False),
        )
        self.proj_out = nn.Linear(width, width)
        self.norm_out = nn.LayerNorm(width)

    def forward(self, states: Tensor, mask: Tensor | None = None) -> Tensor:
        """Compress; `mask` `[B, n]` marks real positions."""
        states = self.proj_in(states)
        latents = self.latents.expand(states.shape[0], -1, -1)
        for _ in range(self.depth):
            latents = latents + self.attention(states, latents, mask)
            latents = latents + self.feed_forward(latents)
        out: Tensor = self.norm_out(self.proj_out(latents))
        return out
