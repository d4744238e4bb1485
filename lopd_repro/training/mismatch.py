"""What the sampling engine and the trainer disagree on: a sampled token's log-probability.

An engine with kernels and a precision of its own samples from a policy that is not quite the one
the trainer differentiates. The gap is measured in every step. Truncated importance weights,
min(exp(trainer - engine), cap) per token, correct for it where a loss is an estimate from the
sampled tokens (`Batch.weighted`: GRPO, and both terms of Skill-SD). Divergences over the vocabulary
(SDFT, OPSD, LOPD) are exact at every prefix, whichever token came next, so that token's weight is
not theirs; which prefixes are met stays uncorrected. SDPO has its own published weight, `is_clip`,
and is left to it.
"""

from __future__ import annotations

import torch

from lopd_repro.training.token_scores import TokenScores

_EXPONENT_LIMIT = 20.0


def logp_gap(student: TokenScores, tokens: torch.Tensor, engine_logp: torch.Tensor) -> torch.Tensor:
    """Trainer's less engine's log-probability of the sampled tokens at temperature 1, `[N]`.

    No gradient. NaN where the engine's is unknown.
    """
    if student.temperature == 1.0:
        # With gradients on: the scores keep what is computed here for the loss.
        ours = student.logp(tokens).detach()
    else:
        plain = student.detached(temperature=1.0)
        ours = plain.logp(tokens)
    return ours.float() - engine_logp


def truncated_weights(gap: torch.Tensor, cap: float) -> torch.Tensor:
    """Importance weights `[N]`, at most `cap`; 1 where the gap is unknown."""
    return gap.nan_to_num(nan=0.0).clamp(max=_EXPONENT_LIMIT).exp().clamp(max=cap)


def gap_metrics(
    gap: torch.Tensor, weights: torch.Tensor | None, cap: float, tokens: float
) -> dict[str, float]:
    """A micro-batch's share of the step's metrics; `tokens` are the whole step's.

    All add up over micro-batches, but for `logp_gap_max`, of which the largest counts.
    """
    known = gap[~gap.isnan()].abs()
    found = {
        "logp_gap_mean": float(known.sum()) / max(1.0, tokens),
        "logp_gap_max": float(known.max()) if len(known) else 0.0,
    }
    if weights is not None:
        found["importance_mean"] = float(weights.sum()) / max(1.0, tokens)
        found["importance_capped"] = float((weights >= cap).sum()) / max(1.0, tokens)
    return found
