"""Golden vectors of the compressor and of one composer phase with its dual update."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from lopd_repro.conformance.golden import Golden
from lopd_repro.conformance.outcome import Outcome
from lopd_repro.lopd.compressor import Compressor
from lopd_repro.training.losses import (
    aggregate,
    anchor_distance,
    composer_objective,
    dual_update,
    reverse_kl_topk_tail,
    weighted_privilege,
)

_NAMES = {
    "latents": "latents",
    "proj_in": "proj_in",
    "proj_out": "proj_out",
    "norm_out": "norm_out",
    "layers.0.norm1": "attention.norm_states",
    "layers.0.norm2": "attention.norm_queries",
    "layers.0.to_q": "attention.to_q",
    "layers.0.to_kv": "attention.to_kv",
    "layers.0.to_out": "attention.to_out",
    "layers.1.0": "feed_forward.0",
    "layers.1.1": "feed_forward.1",
    "layers.1.3": "feed_forward.3",
}
