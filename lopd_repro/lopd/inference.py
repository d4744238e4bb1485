"""Latents at inference: contexts for tasks that the composer was not trained on.

The method never does this, its student acts alone. It is what 'base + composer' in the paper's
Table 3 rolls out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import torch

from lopd_repro.errors import UserError
from lopd_repro.experience.bank import Experience
from lopd_repro.lopd.composer import Composer
from lopd_repro.lopd.latents import Framing, LatentSource
from lopd_repro.lopd.saved import composer_settings
from lopd_repro.models.backbone import Backbone, copy_model, freeze
from lopd_repro.rollout.heads import LatentContext

_TASKS_AT_ONCE = 8


@torch.no_grad()
def latent_contexts(
    weights: Path,
    backbone: Backbone,
    bank: Mapping[str, Experience],
    assigned: Mapping[str, Sequence[str]],
    texts: Mapping[str, str],
    framing: Framing,
) -> list[LatentContext | None]:
    """Context of each task of `texts` (id -> text), in that order; None without experiences.

    `weights` is a composer saved beside its shape; `assigned` holds experience ids, best first.
    The backbone is left as it is.
    """
    if not weights.is_file():
        raise UserError(f"{weights}: no such composer")
    frozen = freeze(copy_model(backbone.model))
    composer = Composer(frozen, backbone.tokenizer, composer_settings(weights), 0, "composer")
    composer.load(weights)
    composer.train_mode(False)
    source = LatentSource(composer, bank, assigned, texts.__getitem__, framing)
    tasks = list(texts)
    return [
        context
        for start in range(0, len(tasks), _TASKS_AT_ONCE)
        for context in source.contexts(tasks[start : start + _TASKS_AT_ONCE])
    ]
