"""Left-padded batches for a prefill whose key-value cache goes on."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True)
class LeftPadded:
    """ids, mask (true on real tokens), positions: `[B, W]`; attention: `[B, 1, W, W]`."""

    ids: torch.Tensor
    mask: torch.Tensor
    positions: torch.Tensor
    attention: torch.Tensor

    def offset(self, length: int) -> int:
        """Where a row of `length` tokens starts."""
        return int(self.ids.shape[1]) - length


def left_pad(rows: Sequence[Sequence[int]], pad_id: int, device: Any) -> LeftPadded:
    """Pad rows of ids on the left; real tokens attend causally to real tokens."""
    width = max(len(row) for row in rows)
    ids = torch.full((len(rows), width), pad_id)
    mask = torch.zeros(len(rows), width, dtype=torch.bool)
    for i, row in enumerate(rows):
        ids[i, width - len(row) :] = torch.tensor(row)
        mask[i, width - len(row) :] = True
    ids, mask = ids.to(device), mask.to(device)
    causal = torch.ones(width, width, dtype=torch.bool, device=device).tril()
    # A padded query attends to itself alone, so that no softmax row is empty.
    alone = torch.eye(width, dtype=torch.bool, device=device)
    attention = (causal & mask[:, None, :]) | alone
    return LeftPadded(ids, mask, (mask.cumsum(-1) - 1).clamp(min=0), attention[:, None])


def distinct(keys: Sequence[Hashable]) -> tuple[list[int], list[int]]:
    """Places of the first of each different key, and for every key the place among those."""
    first: dict[Hashable, int] = {}
    places: list[int] = []
    index = []
    for i, key in enumerate(keys):
        if key not in first:
            first[key] = len(places)
            places.append(i)
        index.append(first[key])
    return places, index
