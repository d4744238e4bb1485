"""Key-value cache whose rows come and go one by one.

Every request owns a row ("slot"); position `p` of its tokens lies at place `p` of the row, so a
new request can take the slot of a finished one while the others go on, and a known prefix can be
copied in.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers.cache_utils import Cache

_BLOCK = 128

Span = list[tuple[torch.Tensor, torch.Tensor]]
"""Keys and values of one row's first positions, each `[heads, n, head_size]`, by layer."""


class SlotCache(Cache):
    """Layers of keys and values, each `[slots, heads, capacity, head_size]`.

    `aim` says which slots and positions the next forward pass writes and reads.
    """

    def __init__(self) -> None:
        super().__init__(layers=[])
        self._layers: list[tuple[torch.Tensor, torch.Tensor]] = []
        self._slots = 0
        self._capacity = 0
        self._read: torch.Tensor | slice = slice(0)
        self._width = 0
        self._fresh: torch.Tensor | None = None
        self._at: tuple[torch.Tensor, torch.Tensor] | None = None

    def reserve(self, slots: int, positions: int) -> None:
        """Make room; what is there stays."""
        if slots <= self._slots and positions <= self._capacity:
            return
        self._slots = max(slots, self._slots)
        if positions > self._capacity:
            self._capacity = -(-(positions + positions // 4) // _BLOCK) * _BLOCK
        for index, pair in enumerate(self._layers):
            self._layers[index] = (self._grown(pair[0]), self._grown(pair[1]))

    def aim(
        self,
        read: torch.Tensor | slice,
        width: int,
        at_slots: torch.Tensor,
        at_positions: torch.Tensor,
        fresh: torch.Tensor | None = None,
    ) -> None:
        """Set up the next forward pass.

        read: slots of the pass's rows; width: positions they attend over. The pass's keys and
        values, rows and tokens flattened (and of those only `fresh`, where given), are written to
        (`at_slots`, `at_positions`).
        """
        self._read, self._width = read, width
        self._at, self._fresh = (at_slots, at_positions), fresh

    def update(
        self,
        key_states: torch.Tensor,
        value_states: torch.Tensor,
        layer_idx: int,
        *args: Any,
        **kwargs: Any,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write `[rows, heads, new, head_size]` keys and values; return all that is read."""
        if layer_idx == len(self._layers):
            shape = (self._slots, key_states.shape[1], self._capacity)
            # Zeros: a masked position has weight 0, and 0 times a stray NaN would be NaN.
            self._layers.append(
                (
                    key_states.new_zeros(*shape, key_states.shape[3]),
                    value_states.new_zeros(*shape, value_states.shape[3]),
                )
            )
        return (
            self._store(self._layers[layer_idx][0], key_states),
            self._store(self._layers[layer_idx][1], value_states),
        )

    def copy_out(self, slot: int, length: int) -> Span:
        """An independent copy of a slot's first `length` positions."""
        return [(k[slot, :, :length].clone(), v[slot, :, :length].clone()) for k, v in self._layers]

    def copy_in(self, slot: int, span: Span, length: int) -> None:
        """Write the first `length` positions of a span to the start of a slot."""
        for (keys, values), (k, v) in zip(self._layers, span, strict=True):
            keys[slot, :, :length] = k[:, :length]
            values[slot, :, :length] = v[:, :length]

    def move(self, source: int, target: int, length: int) -> None:
        """Copy the first `length` positions of one slot to another."""
        for part in (part for pair in self._layers for part in pair):
            part[target, :, :length] = part[source, :, :length]

    def _store(self, whole: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
        assert self._at is not None
        flat = new.transpose(1, 2).flatten(0, 1)
        slots, positions = self._at
        whole[slots, :, positions] = flat if self._fresh is None else flat[self._fresh]
        return whole[:, :, : self._width][self._read]

    def _grown(self, old: torch.Tensor) -> torch.Tensor:
        new = old.new_zeros(self._slots, old.shape[1], self._capacity, old.shape[3])
        new[: old.shape[0], :, : old.shape[2]] = old
        return new
