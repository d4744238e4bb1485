"""Clipping of gradients, whole or in shards."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from lopd_repro.models.backbone import gathered


def clip_gradients(parameters: Iterable[torch.nn.Parameter], limit: float) -> float:
    """Scale gradients in place to a norm of at most `limit`; their norm before, over all shards."""
    return float(gathered(torch.nn.utils.clip_grad_norm_(parameters, limit)))
