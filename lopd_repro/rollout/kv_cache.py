"""Key-value cache with room to grow, whose rows can be dropped as episodes end."""

from __future__ import annotations

from typing import Any

import torch
from transformers.cache_utils import Cache, DynamicLayer

_BLOCK = 128


class GrowingLayer(DynamicLayer):
    """One layer's keys and values, written in place into a buffer that grows by blocks.

    The stock dynamic layer copies the whole cache for every token; here a token costs its own
    size, and the copy happens once a block.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)  # type: ignore[no-untyped-call]
        self._buffers: tuple[torch.Tensor, torch.Tensor] | None = None
        self._length = 0

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Append `[batch, heads, new, head_size]` keys and values; return all of them."""
        end = self._length + key_states.shape[-2]
        if self._buffers is None or end > self._buffers[0].shape[-2]:
            self._grow(key_states, value_states, end)
        assert self._buffers is not None
        keys, values = self._buffers
        keys[:, :, self._length : end] = key_states
        values[:, :, self._length : end] = value_states
        self._length = end
        self.keys, self.values = keys[:, :, :end], values[:, :, :end]
        self.is_initialized = True
        return self.keys, self.values

    def get_seq_length(self) -> int:
        """Number of cached positions."""
        return self._length

    def keep_rows(self, rows: torch.Tensor) -> None:
        """Keep these batch rows, in this order; a row may be named more than once."""
        if self._buffers is not None:
            keys, values = self._buffers
            self._buffers = keys[rows], values[rows]
            self.keys = self._buffers[0][:, :, : self._length]
            self.values = self._buffers[1][:, :, : self._length]

    def _grow(self, keys: torch.Tensor, values: torch.Tensor, end: int) -> None:
        capacity = -(-max(end, end + self._length // 2) // _BLOCK) * _BLOCK
        grown = tuple(
            new.new_empty(new.shape[0], new.shape[1], capacity, new.shape[3])
            for new in (keys, values)
        )
        if self._buffers is not None:
            for old, new in zip(self._buffers, grown, strict=True):
                new[:, :, : self._length] = old[:, :, : self._length]
        self._buffers = (grown[0], grown[1])


class GrowingCache(Cache):
    """Cache of `GrowingLayer`s for models whose layers all attend to everything."""

    def __init__(self) -> None:
        super().__init__(layer_class_to_replicate=GrowingLayer)

    def keep_rows(self, rows: torch.Tensor) -> None:
        """Keep these batch rows in every layer, in this order; a row may be named again."""
        for layer in self.layers:
            assert isinstance(layer, GrowingLayer)
            layer.keep_rows(rows)
