"""Cold start: teach the composer to make latents under which bank trajectories are likely.

Paper eq. 14: negative log-likelihood of the assistant tokens of successful trajectories with
latents injected and the backbone frozen. The clip is 3.0 in the paper; the released config clips
compressor and adapter apart (30.0 and 3.0), which `clip_compressor` offers.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from lopd_repro.errors import UserError
from lopd_repro.experience.bank import Experience
from lopd_repro.experience.pairing import PAIRINGS
from lopd_repro.lopd.latents import LatentSource
from lopd_repro.models.backbone import release
from lopd_repro.models.chat import ChatCodec
from lopd_repro.parallel.ranks import ONE, Ranks
from lopd_repro.parallel.turns import micro_batches, turns
from lopd_repro.rollout.domain import Domain
from lopd_repro.rollout.episodes import Trajectory
from lopd_repro.rollout.heads import build_head
from lopd_repro.training.clip import clip_gradients
from lopd_repro.training.hold import check_holding
from lopd_repro.training.losses import Totals, aggregate
from lopd_repro.training.scoring import sampled_tokens, score
from lopd_repro.training.tasks import TaskStream


@dataclass(frozen=True)
class ColdStartSettings:
    """Length and optimiser of the cold start.

    clip_compressor 0 means one clip over everything. pairing: which experiences a task's
    trajectory is learned with, as in the method (`experience/pairing.py`).
    micro_batch: trajectories of a rank at a time, 0 is all of its share. head_chunk_tokens,
    compute_dtype and activation_checkpointing are those of `StepSettings`.
    """

    steps: int = 1000
    batch: int = 8
    lr: float = 1e-5
    weight_decay: float = 0.01
    clip: float = 3.0
    clip_compressor: float = 0.0
    pairing: str = "retrieved"
    micro_batch: int = 0
    head_chunk_tokens: int = 0
    compute_dtype: str = "engine"
    activation_checkpointing: bool = False

    def __post_init__(self) -> None:
        if self.pairing not in PAIRINGS:
            allowed = ", ".join(PAIRINGS)
            raise UserError(f"cold_start.pairing: found {self.pairing!r}, allowed: {allowed}")
        check_holding(self, "cold_start")


def cold_start(
    source: LatentSource,
    model: Any,
    codec: ChatCodec,
    domain: Domain,
    bank: Sequence[Experience],
    settings: ColdStartSettings,
    seed: int,
    log: Callable[[dict[str, float]], None],
    ranks: Ranks = ONE,
) -> None:
    """Train the source's composer in place. `model` is the frozen backbone that scores.

    Several ranks share each batch; composer and model are then in shards (`training.hold`).
    """
    usable = {e.experience_id: e for e in bank if source.has(e.task_id)}
    if not usable:
        raise UserError("cold start: no bank trajectory has retrieved experiences")
    composer = source.composer
    composer.train_mode(True)
    optimiser = torch.optim.AdamW(
        composer.parameters(), lr=settings.lr, weight_decay=settings.weight_decay
    )
    stream = TaskStream(list(usable), settings.batch, seed)
    for step in range(settings.steps):
        chosen = [usable[i] for i in stream.step(step)]
        optimiser.zero_grad(set_to_none=True)
        nll = 0.0
        for part, weight in _shares(chosen, settings.micro_batch, ranks):
            loss = trajectory_nll(
                source, model, codec, domain, part, settings.head_chunk_tokens, len(chosen)
            )
            (loss if weight == 1.0 else loss * weight).backward()
            nll += float(loss.detach()) * weight
            release(model)
        nll = sum(ranks.gather(nll))
        norm = _clip(source, settings)
        optimiser.step()
        log({"step": step + 1, "nll": nll, "grad_norm": norm})
        if (step + 1) % 50 == 0 and ranks.first:
            print(
                f"cold start step {step + 1}/{settings.steps}: nll {nll:.4f}",
                file=sys.stderr,
                flush=True,
            )
    composer.train_mode(False)


def trajectory_nll(
    source: LatentSource,
    model: Any,
    codec: ChatCodec,
    domain: Domain,
    chosen: Sequence[Experience],
    head_chunk: int = 0,
    count: int = 0,
) -> torch.Tensor:
    """Mean over trajectories of the mean token NLL under the latent head, scalar.

    count: trajectories of the whole batch, of which `chosen` is then a part; 0 is these.
    """
    contexts = source.contexts([e.task_id for e in chosen])
    heads = [
        build_head(codec, domain.opening(e.task_id), context)
        for e, context in zip(chosen, contexts, strict=True)
    ]
    trajectories = [
        Trajectory(e.task_id, i, head.head.ids, list(e.tail), list(e.supervised))
        for i, (e, head) in enumerate(zip(chosen, heads, strict=True))
    ]
    tokens, row = sampled_tokens(trajectories)
    scores = score(model, heads, trajectories, codec.pad_id, head_chunk=head_chunk)
    nll = -scores.logp(tokens.to(model.device))
    totals = Totals(0, count, count) if count and count != len(chosen) else None
    return aggregate(nll, row.to(model.device), len(chosen), "seq_mean_token_mean", totals=totals)


def _shares(
    chosen: Sequence[Experience], size: int, ranks: Ranks
) -> list[tuple[list[Experience], float]]:
    """This rank's parts of a batch; one that only keeps step with the others' weighs nothing."""
    parts = micro_batches(len(chosen), size or -(-len(chosen) // ranks.size))
    lengths = [len(e.tail) for e in chosen]
    return [
        ([chosen[turn.stand_in]], 0.0)
        if turn.part is None
        else ([chosen[i] for i in turn.part], 1.0)
        for turn in turns(parts, lengths, [True] * len(chosen), ranks.rank, ranks.size)
    ]


def _clip(source: LatentSource, settings: ColdStartSettings) -> float:
    composer = source.composer
    if settings.clip_compressor > 0:
        clip_gradients(composer.compressor_parameters(), settings.clip_compressor)
        return clip_gradients(composer.lora_parameters(), settings.clip)
    return clip_gradients(composer.parameters(), settings.clip)
