"""Latent contexts of test tasks, for `lopd-repro evaluate --composer`.

`evaluate` loads this module by name, so that its other uses do not depend on the composer's code:
a change there reruns no other method's evaluation.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lopd_repro.commands.wiring import AnyTaskSet, Parts, training_tasks
from lopd_repro.errors import UserError
from lopd_repro.experience.bank import read_bank
from lopd_repro.experience.embed import make_embedder
from lopd_repro.experience.retrieval import RetrievalSettings, retrieve_for
from lopd_repro.files import digest_file
from lopd_repro.lopd.inference import latent_contexts
from lopd_repro.lopd.latents import Framing
from lopd_repro.rollout.heads import Context
from lopd_repro.settings import build

PURPOSE = "base model with latents at inference; illustrative, not a clean ablation"


def composer_contexts(
    p: Parts, tasks: AnyTaskSet, splits: str, composer: Path, bank: Path
) -> tuple[Sequence[Context], dict[str, Any]]:
    """A context for each task, and what the footer says about them.

    Settings: `retrieval`, `embedder`, `n_retrieved`. The bank may hold training tasks only.
    """
    for key in ("retrieval", "embedder", "n_retrieved"):
        if key not in p.settings:
            raise UserError(f"{key}: missing, but --composer needs it")
    n_retrieved = int(p.settings["n_retrieved"])
    entries = read_bank(bank, set(training_tasks(p.settings, splits).tasks))
    domain = p.domain(tasks)
    texts = {task: domain.task_text(task) for task in tasks.tasks}
    found = retrieve_for(
        entries,
        texts,
        make_embedder(p.settings["embedder"], p.backbone),
        build(RetrievalSettings, p.settings["retrieval"], "retrieval"),
    )
    contexts = latent_contexts(
        composer,
        p.backbone,
        {entry.experience_id: entry for entry in entries},
        {task: names[:n_retrieved] for task, names in found.items()},
        texts,
        Framing(p.prompts.latent_before, p.prompts.latent_after),
    )
    return contexts, {
        "purpose": PURPOSE,
        "composer": str(composer),
        "composer_sha256": digest_file(composer),
        "bank_sha256": digest_file(bank),
        "n_retrieved": n_retrieved,
        "without_latents": sum(context is None for context in contexts),
    }
