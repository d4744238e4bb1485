"""Padded reference arrays `[B, T]` to the flat form of this project's losses."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from lopd_repro.training.losses import (
    AggregationMode,
    Totals,
    aggregate,
    token_totals,
)


class Flat(NamedTuple):
    """A mask `[B, T]` as indices: `take` gathers `[B, T, ...] -> [N, ...]`, `row` is `[N]`."""

    mask: Tensor
    row: Tensor
    n_rows: int
    width: int

    def take(self, values: Tensor) -> Tensor:
        """The supervised entries, in row order."""
        return values[self.mask]


def flat(mask: Tensor) -> Flat:
    """Index form of a padded mask."""
    mask = mask.bool()
    return Flat(mask, mask.nonzero()[:, 0], mask.shape[0], mask.shape[1])


def gather(logp: Tensor, ids: Tensor) -> Tensor:
    """Log-probability of one id per position: `[..., V], [...] -> [...]`."""
    return logp.gather(-1, ids.unsqueeze(-1)).squeeze(-1)


VERL_MODES: dict[str, AggregationMode] = {
    "token-mean": "token_mean",
    "seq-mean-token-mean": "seq_mean_token_mean",
    "seq-mean-token-sum": "seq_mean_token_sum",
    "seq-mean-token-sum-norm": "seq_sum_token_sum_norm",
}


def verl_aggregate(
    per_token: Tensor,
    where: Flat,
    mode: str,
    *,
    world_size: int = 1,
    tokens: int | None = None,
    rows: int | None = None,
    norm: float | None = None,
) -> Tensor:
    """verl's agg_loss: `per_token [N]`, global sizes where a case gives them; 0/0 is NaN."""
    own = token_totals(where.row, where.n_rows)
    ours = VERL_MODES[mode]
    totals = Totals(
        tokens=own.tokens if tokens is None else tokens,
        rows=own.rows if rows is None else rows,
        all_rows=where.n_rows,
        world_size=1 if ours == "seq_sum_token_sum_norm" else world_size,
    )
    return aggregate(
        per_token,
        where.row,
        where.n_rows,
        ours,
        totals=totals,
        norm=where.width if norm is None else norm,
        eps=1e-8,
        empty="nan",
    )


def log_softmax(logits: Tensor) -> Tensor:
    """Log-probabilities over the last axis."""
    return torch.log_softmax(logits, dim=-1)
