"""Remembered beginnings: keys and values of token sequences that were seen before.

The turns of a conversation repeat everything said so far, so a new prompt mostly starts with an
earlier prompt and its answer. Entries are found by the hashes of their whole blocks of tokens;
tokens are compared before anything is reused. The least recently used entries go first.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence

from lopd_repro.serving.slot_cache import Span

_BLOCK = 16


class PrefixStore:
    """At most `limit` bytes of keys and values by token ids; 0 remembers nothing."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self._entries: OrderedDict[int, tuple[tuple[int, ...], Span, int]] = OrderedDict()
        self._by_block: dict[int, int] = {}
        self._next = 0

    def put(self, ids: Sequence[int], span: Span) -> None:
        """Remember the keys and values of `ids`."""
        size = sum(part.nbytes for pair in span for part in pair)
        if size > self.limit or len(ids) < _BLOCK:
            return
        number, self._next = self._next, self._next + 1
        self._entries[number] = (tuple(ids), span, size)
        self.used += size
        for key in _block_keys(ids):
            self._by_block[key] = number
        while self.used > self.limit:
            self._forget(next(iter(self._entries)))

    def find(self, ids: Sequence[int]) -> tuple[int, Span] | None:
        """The remembered entry that shares the longest beginning with `ids`, and how much.

        At least one token is left over, so that there is something to compute.
        """
        best = None
        for key in _block_keys(ids):
            if key not in self._by_block:
                break
            best = self._by_block[key]
        if best is None:
            return None
        known, span, _ = self._entries[best]
        self._entries.move_to_end(best)
        same = 0
        for one, other in zip(known, ids[:-1], strict=False):
            if one != other:
                break
            same += 1
        return (same, span) if same else None

    def _forget(self, number: int) -> None:
        ids, _, size = self._entries.pop(number)
        self.used -= size
        for key in _block_keys(ids):
            if self._by_block.get(key) == number:
                del self._by_block[key]


def _block_keys(ids: Sequence[int]) -> Iterator[int]:
    key = 0
    for end in range(_BLOCK, len(ids) + 1, _BLOCK):
        key = hash((key, *ids[end - _BLOCK : end]))
        yield key
