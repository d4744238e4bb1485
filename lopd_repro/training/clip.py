"""Clipping of gradients, whole or in shards."""

from __future__ import annotations

from collections.abc import Iterable

import torch


def clip_gradients(parameters: Iterable[torch.nn.Parameter], limit: float) -> float:
    """Scale gradients in place to a norm of at most `limit`; their norm before, over all shards."""
    norm = torch.nn.utils.clip_grad_norm_(parameters, limit)
    gather = getattr(norm, "full_tensor", None)
    return float(norm if gather is None else gather())
