"""Aggregation: hand-derived values, additivity over micro-batches, empty batches."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from lopd_repro.training.losses import (
    AGGREGATION_MODES,
    Totals,
    aggregate,
    row_mean,
    row_token_counts,
    skip_first_tokens,
    token_totals,
)

# Three trajectories: row 0 has 3 tokens, row 1 none, row 2 one.
VALUES = torch.tensor([1.0, 2.0, 6.0, 5.0], dtype=torch.float64)
ROW = torch.tensor([0, 0, 0, 2])

BY_HAND = [
    ("token_mean", "exclude", 14 / 4),
    ("seq_mean_token_mean", "exclude", (3 + 5) / 2),
    ("seq_mean_token_mean", "count", (3 + 5) / 3),
    ("seq_mean_token_sum", "exclude", (9 + 5) / 2),
    ("seq_mean_token_sum", "count", (9 + 5) / 3),
    ("seq_mean_token_sum_norm", "exclude", 14 / (2 * 10)),
    ("seq_mean_token_sum_norm", "count", 14 / (3 * 10)),
    ("seq_sum_token_sum_norm", "exclude", 14 / 10),
]


@pytest.mark.parametrize(("mode", "empty_rows", "expected"), BY_HAND)
def test_by_hand(mode: str, empty_rows: str, expected: float) -> None:
    value = aggregate(VALUES, ROW, 3, mode, empty_rows=empty_rows, norm=10.0)
    assert value.item() == pytest.approx(expected, abs=1e-15)


@pytest.mark.parametrize(("mode", "empty_rows", "expected"), BY_HAND)
def test_micro_batches_and_ranks_sum_to_the_batch(
    mode: str, empty_rows: str, expected: float
) -> None:
    totals = token_totals(ROW, 3)
    assert totals == Totals(tokens=4, rows=2, all_rows=3)
    # micro-batches of one trajectory each, rows renumbered; the middle one has no token at all
    parts = [(VALUES[:3], ROW[:3], 1), (VALUES[:0], ROW[:0], 1), (VALUES[3:], ROW[3:] - 2, 1)]
    sums = [
        aggregate(v, r, n, mode, totals=totals, empty_rows=empty_rows, norm=10.0)
        for v, r, n in parts
    ]
    assert sum(sums).item() == pytest.approx(expected, abs=1e-15)
    # two ranks whose gradients are averaged: the factor makes the average their sum
    ranked = Totals(4, 2, 3, world_size=2)
    scaled = [
        aggregate(v, r, n, mode, totals=ranked, empty_rows=empty_rows, norm=10.0)
        for v, r, n in parts
    ]
    assert (sum(scaled) / 2).item() == pytest.approx(expected, abs=1e-15)


def test_a_trajectory_split_over_micro_batches_adds_up() -> None:
    counts, totals = row_token_counts(ROW, 3), token_totals(ROW, 3)
    parts = [
        aggregate(VALUES[cut], ROW[cut], 3, "seq_mean_token_mean", totals=totals, row_tokens=counts)
        for cut in (slice(0, 2), slice(2, 4))
    ]
    assert sum(parts).item() == pytest.approx(4.0)


@pytest.mark.parametrize("mode", AGGREGATION_MODES)
@pytest.mark.parametrize("with_totals", [False, True])
def test_an_empty_batch_is_an_exact_zero_on_the_graph(mode: str, with_totals: bool) -> None:
    weights = torch.ones(5, dtype=torch.float64, requires_grad=True)
    per_token = weights[torch.zeros(0, dtype=torch.long)]
    totals = Totals(tokens=7, rows=2, all_rows=3) if with_totals else None
    value = aggregate(per_token, ROW[:0], 2, mode, totals=totals, norm=10.0)
    assert value.item() == 0.0
    (gradient,) = torch.autograd.grad(value, weights)
    assert gradient.abs().max() == 0.0


def test_an_empty_batch_can_follow_the_reference() -> None:
    assert math.isnan(aggregate(VALUES[:0], ROW[:0], 2, "token_mean", empty="nan").item())


def mask_rows(mask: Tensor) -> Tensor:
    return mask.nonzero()[:, 0]


@pytest.mark.parametrize("mode", AGGREGATION_MODES)
def test_first_and_last_token_weigh_what_the_mask_says(mode: str) -> None:
    """The gradient reaches exactly the supervised tokens, the first and the last included."""
    mask = torch.tensor([[1, 0, 0, 1], [0, 1, 1, 0], [1, 1, 1, 1]]).bool()
    padded = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    value = aggregate(padded[mask], mask_rows(mask), 3, mode, norm=4.0)
    (gradient,) = torch.autograd.grad(value, padded)
    per_row = {
        "token_mean": [1 / 8] * 3,
        "seq_mean_token_mean": [1 / 6, 1 / 6, 1 / 12],
        "seq_mean_token_sum": [1 / 3] * 3,
        "seq_mean_token_sum_norm": [1 / 12] * 3,
        "seq_sum_token_sum_norm": [1 / 4] * 3,
    }[mode]
    expected = mask * torch.tensor(per_row, dtype=torch.float64).unsqueeze(1)
    torch.testing.assert_close(gradient, expected)


def test_row_mean_of_a_row_without_tokens_is_zero() -> None:
    assert row_mean(VALUES, ROW, 3).tolist() == [3.0, 0.0, 5.0]


def test_skip_first_tokens_counts_within_interleaved_rows() -> None:
    row = torch.tensor([1, 0, 1, 0, 0, 1, 2])
    # row 0 stands at positions 1, 3, 4; row 1 at 0, 2, 5; row 2 at 6
    keep = [False, False, False, False, True, True, False]
    assert skip_first_tokens(row, 3, 2).tolist() == keep
    assert skip_first_tokens(row, 3, 0).all()


def test_bad_arguments() -> None:
    with pytest.raises(ValueError, match="unknown aggregation 'mean'"):
        aggregate(VALUES, ROW, 3, "mean")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="positive norm"):
        aggregate(VALUES, ROW, 3, "seq_sum_token_sum_norm")
    with pytest.raises(ValueError, match="equal and flat"):
        aggregate(VALUES, ROW[:2], 3)
    with pytest.raises(ValueError, match="count none"):
        aggregate(VALUES, ROW, 3, totals=Totals(0, 0, 0))
