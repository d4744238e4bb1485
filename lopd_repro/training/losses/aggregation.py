"""From per-token values to one scalar, so that micro-batches and ranks add up.

Published code divides by whatever it has at hand (tokens of the micro-batch, padded width, rows
with or without tokens), so the same loss means different things at different batch layouts. Here
every denominator is explicit: `Totals` describes the whole optimiser step, and the scalars of its
micro-batches sum to the scalar of the full batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

AggregationMode = Literal[
    "token_mean",
    "seq_mean_token_mean",
    "seq_mean_token_sum",
    "seq_mean_token_sum_norm",
    "seq_sum_token_sum_norm",
]
AVERAGING: dict[str, AggregationMode] = {
    "trajectory_mean": "seq_mean_token_mean",
    "token_mean": "token_mean",
}
"""The paper's mean over tokens and then trajectories, and the released code's over all tokens."""

AGGREGATION_MODES: tuple[str, ...] = get_args(AggregationMode)

EmptyRows = Literal["exclude", "count"]


@dataclass(frozen=True)
class Totals:
    """Sizes of one optimiser step over all its micro-batches and ranks.

    tokens: supervised tokens; rows: trajectories with at least one of them; all_rows: all
    trajectories. world_size: ranks whose gradients are averaged afterwards; the scalar is
    multiplied by it, so that the average over ranks is the sum over them.
    """

    tokens: float
    rows: float
    all_rows: float
    world_size: int = 1


def row_token_counts(row: Tensor, n_rows: int) -> Tensor:
    """Supervised tokens per trajectory: `LongTensor [N] -> LongTensor [n_rows]`."""
    return torch.bincount(row, minlength=n_rows)


def token_totals(row: Tensor, n_rows: int, world_size: int = 1) -> Totals:
    """`Totals` of a batch that is held whole: `row` is `LongTensor [N]`."""
    rows = int((row_token_counts(row, n_rows) > 0).sum())
    return Totals(tokens=row.numel(), rows=rows, all_rows=n_rows, world_size=world_size)


def row_mean(
    values: Tensor, row: Tensor, n_rows: int, *, row_tokens: Tensor | None = None, eps: float = 0.0
) -> Tensor:
    """Mean over each trajectory's tokens: `[N] -> [n_rows]`; 0 for one without tokens.

    `row_tokens [n_rows]` gives the counts where a trajectory is split over micro-batches (the
    result is then this micro-batch's share of the mean). `eps` is added to the counts (verl: 1e-8).
    """
    counts = row_token_counts(row, n_rows) if row_tokens is None else row_tokens
    sums = values.new_zeros(n_rows).index_add(0, row, values)
    return sums / (counts.clamp(min=1).to(values.dtype) + eps)


def aggregate(
    per_token: Tensor,
    row: Tensor,
    n_rows: int,
    mode: AggregationMode = "token_mean",
    *,
    totals: Totals | None = None,
    row_tokens: Tensor | None = None,
    empty_rows: EmptyRows = "exclude",
    norm: float | None = None,
    eps: float = 0.0,
    empty: Literal["zero", "nan"] = "zero",
) -> Tensor:
    """Reduce `per_token [N]` with trajectory index `row [N]` in 0..n_rows-1 to a scalar.

    Modes:
    - `token_mean`: sum / tokens. verl token-mean, TRL bnpo; with the step's global token count
      as `totals.tokens`, DAPO.
    - `seq_mean_token_mean`: mean over trajectories of the mean over their tokens (LOPD eq. 10;
      verl seq-mean-token-mean, TRL grpo, SDFT).
    - `seq_mean_token_sum`: mean over trajectories of the sum over their tokens.
    - `seq_mean_token_sum_norm`: sum / (`norm` * trajectories). Dr. GRPO, with `norm` the longest
      completion allowed.
    - `seq_sum_token_sum_norm`: sum / `norm`. verl's 'seq-mean-token-sum-norm', which divides by
      the padded width and not by the number of trajectories.

    totals: the optimiser step's sizes; the default is this batch alone.
    empty_rows: whether trajectories without tokens are left out of the mean over trajectories
    ("exclude", verl) or count as zeros ("count", TRL and SDFT). Dr. GRPO counts them.
    eps: added to a trajectory's token count in `seq_mean_token_mean` (verl: 1e-8).
    empty: a step without any supervised token gives an exact 0 attached to the graph with zero
    gradient ("zero"), or the 0/0 of the reference code ("nan").
    """
    if per_token.shape != row.shape or per_token.dim() != 1:
        raise ValueError(
            f"per_token {tuple(per_token.shape)} and row {tuple(row.shape)} must be equal and flat"
        )
    sizes = token_totals(row, n_rows) if totals is None else totals
    counted_rows = sizes.all_rows if empty_rows == "count" else sizes.rows
    if mode == "seq_mean_token_mean":
        total = row_mean(per_token, row, n_rows, row_tokens=row_tokens, eps=eps).sum()
    else:
        total = per_token.sum()
    if mode == "token_mean":
        denominator = sizes.tokens
    elif mode in ("seq_mean_token_mean", "seq_mean_token_sum"):
        denominator = counted_rows
    elif mode in ("seq_mean_token_sum_norm", "seq_sum_token_sum_norm"):
        if norm is None or norm <= 0:
            raise ValueError(f"{mode} needs a positive norm, got {norm}")
        denominator = norm * (counted_rows if mode == "seq_mean_token_sum_norm" else 1.0)
    else:
        raise ValueError(f"unknown aggregation {mode!r}; allowed: {', '.join(AGGREGATION_MODES)}")
    if denominator == 0:
        if per_token.numel():
            raise ValueError(f"{per_token.numel()} tokens, but the totals count none: {sizes}")
        return total * 0.0 if empty == "zero" else total / 0.0
    return total * sizes.world_size / denominator


def skip_first_tokens(row: Tensor, n_rows: int, n: int) -> Tensor:
    """Mask `[N]` that drops the first `n` supervised tokens of each trajectory.

    Tokens of a trajectory must stand in order; trajectories may be interleaved. SDFT's option
    `num_loss_tokens_to_skip`.
    """
    order = torch.argsort(row, stable=True)
    counts = row_token_counts(row, n_rows)
    starts = counts.cumsum(0) - counts
    rank = torch.empty_like(row)
    rank[order] = torch.arange(row.numel(), device=row.device) - starts[row[order]]
    return rank >= n
