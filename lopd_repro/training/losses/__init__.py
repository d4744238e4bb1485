"""Losses as pure functions on flat token tensors.

The training loop gathers the supervised tokens of a (micro-)batch into `[N]`, with a row index
`[N]` that maps each token to its trajectory 0..B-1. Losses come in two steps: a per-token
function `[N, ...] -> [N]` (divergences, clipped policy loss, sampled-token losses), then
`aggregate` to a scalar. Nothing here reads a model, a mask or a configuration, and this package
imports no other part of the project.

Inputs are log-probabilities in float32 or float64; results keep that dtype. No function detaches
its teacher argument: a method that trains the teacher's context needs that gradient, the others
pass detached tensors.
"""

from __future__ import annotations

from lopd_repro.training.losses.aggregation import (
    AGGREGATION_MODES,
    AVERAGING,
    AggregationMode,
    Totals,
    aggregate,
    row_mean,
    row_token_counts,
    skip_first_tokens,
    token_totals,
)
from lopd_repro.training.losses.composer import (
    anchor_distance,
    composer_objective,
    dual_update,
    outcome_weight,
    privilege,
    weighted_privilege,
)
from lopd_repro.training.losses.divergences import (
    divergence,
    divergence_terms,
    entropy,
    forward_kl,
    generalised_jsd,
    reverse_kl,
    reverse_kl_topk_tail,
)
from lopd_repro.training.losses.ema import ema_update, ema_update_, lora_effective_weight
from lopd_repro.training.losses.policy import (
    ClipFlags,
    clip_flags,
    importance_weight,
    k3_kl,
    log_ratio,
    ppo_clip,
    sequence_log_ratio,
)
from lopd_repro.training.losses.sampled import sampled_reverse_kl, score_function_reverse_kl
from lopd_repro.training.losses.support import (
    captured_mass,
    renormalise,
    tail_logp,
    temper,
    with_tail,
)

__all__ = [
    "AGGREGATION_MODES",
    "AVERAGING",
    "AggregationMode",
    "ClipFlags",
    "Totals",
    "aggregate",
    "anchor_distance",
    "captured_mass",
    "clip_flags",
    "composer_objective",
    "divergence",
    "divergence_terms",
    "dual_update",
    "ema_update",
    "ema_update_",
    "entropy",
    "forward_kl",
    "generalised_jsd",
    "importance_weight",
    "k3_kl",
    "log_ratio",
    "lora_effective_weight",
    "outcome_weight",
    "ppo_clip",
    "privilege",
    "renormalise",
    "reverse_kl",
    "reverse_kl_topk_tail",
    "row_mean",
    "row_token_counts",
    "sampled_reverse_kl",
    "score_function_reverse_kl",
    "sequence_log_ratio",
    "skip_first_tokens",
    "tail_logp",
    "temper",
    "token_totals",
    "weighted_privilege",
    "with_tail",
]
