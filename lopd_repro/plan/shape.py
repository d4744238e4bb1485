"""A transformer's sizes: parameters, FLOPs of a token, bytes of its cached keys and values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lopd_repro.errors import UserError


@dataclass(frozen=True)
class Shape:
    """Sizes of a decoder with grouped attention and a gated feed-forward part."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head: int
    feed_forward: int
    vocabulary: int
    tied: bool

    @property
    def matrices(self) -> int:
        """Parameters that a token is multiplied with, the output projection among them."""
        attention = self.hidden * self.head * (2 * self.heads + 2 * self.kv_heads)
        block = attention + 3 * self.hidden * self.feed_forward
        return self.layers * block + self.hidden * self.vocabulary

    @property
    def parameters(self) -> int:
        """All weights but the norms."""
        return self.matrices + (0 if self.tied else self.hidden * self.vocabulary)

    def forward_flops(self, context: float) -> float:
        """FLOPs of one token that attends to `context` others: two for each product."""
        return 2.0 * self.matrices + 4.0 * self.layers * self.heads * self.head * context

    def cache_bytes(self, width: int = 2) -> int:
        """Keys and values of one token; `width` bytes an entry."""
        return 2 * self.layers * self.kv_heads * self.head * width


def backbone_shape(name: str, backbone: Mapping[str, Any], known: Mapping[str, Any]) -> Shape:
    """The shape of a configured backbone; `known` is assumptions.yaml."""
    if backbone["source"] == "tiny":
        own = backbone["shape"]
        heads = own["hidden"] // 32
        sizes = (own["layers"], own["hidden"], heads, heads, 32, own["feed_forward"])
        return Shape(*sizes, vocabulary=known["tiny_vocabulary"], tied=True)
    key = backbone.get("model", backbone["source"])
    if key not in known["models"]:
        raise UserError(
            f"backbones.{name}: the size of {key!r} is not in lopd_repro/plan/assumptions.yaml, "
            f"known: {', '.join(known['models'])}"
        )
    return Shape(**known["models"][key])
