"""Drawing tokens: temperature, top-k, top-p, by inverse transform from given uniforms."""

from __future__ import annotations

import torch

from lopd_repro.rollout.engine import SamplingParams


def filtered_log_probs(logits: torch.Tensor, params: SamplingParams) -> torch.Tensor:
    """Log-probabilities drawn from: temperature first, then top-k, then top-p.

    logits: `[batch, vocabulary]`; returns the same shape, `-inf` where filtered out. At least
    the most likely token stays. Ties at the top-k threshold stay in.
    """
    scaled = logits.float() / params.temperature
    if params.top_k and params.top_k < scaled.shape[-1]:
        threshold = scaled.topk(params.top_k, dim=-1).values[:, -1:]
        scaled = scaled.masked_fill(scaled < threshold, float("-inf"))
    if params.top_p < 1:
        ordered, order = scaled.sort(dim=-1, descending=True)
        mass = running_sums(ordered.softmax(-1))
        drop = (mass - ordered.softmax(-1)) >= params.top_p
        drop[:, 0] = False
        scaled = scaled.masked_fill(torch.zeros_like(drop).scatter(-1, order, drop), float("-inf"))
    return scaled.log_softmax(-1)


def draw(
    logits: torch.Tensor, params: SamplingParams, uniforms: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Draw one token a row.

    logits: `[batch, vocabulary]`; uniforms: `[batch]` in [0, 1).
    Returns ids, log-probabilities drawn from, and raw log-probabilities, each `[batch]`.
    Greedy draws (temperature 0) have log-probability 0.
    """
    raw = logits.float().log_softmax(-1)
    if params.temperature == 0:
        ids = logits.argmax(-1)
        logp = torch.zeros_like(raw[:, 0])
    else:
        plain = params.temperature == 1 and params.top_p == 1 and not params.top_k
        sampled = raw if plain else filtered_log_probs(logits, params)
        cumulative = running_sums(sampled.double().exp())
        target = uniforms.double().unsqueeze(-1) * cumulative[:, -1:]
        ids = torch.searchsorted(cumulative, target, right=True).squeeze(-1)
        ids = ids.clamp(max=logits.shape[-1] - 1)
        logp = sampled.gather(-1, ids.unsqueeze(-1)).squeeze(-1)
    return ids, logp, raw.gather(-1, ids.unsqueeze(-1)).squeeze(-1)


def running_sums(probabilities: torch.Tensor) -> torch.Tensor:
    """Sums along the last dimension that come out the same every time.

    A GPU adds floats in whatever order its blocks end, which torch refuses where deterministic
    algorithms are asked for; there they are added as integers.
    """
    if probabilities.device.type == "cpu":
        return probabilities.cumsum(-1)
    return integer_sums(probabilities)


def integer_sums(probabilities: torch.Tensor) -> torch.Tensor:
    """Running sums `[batch, vocabulary]` in float64, added in units of 2^-60.

    They never fall, and stand still over a probability of 0 (or below 2^-60).
    """
    units = (probabilities.double() * 2.0**60).long()
    return units.cumsum(-1).double() * 2.0**-60


def uniforms_for(seed: int, count: int) -> torch.Tensor:
    """`count` uniforms of one episode, the same in whatever batch it runs."""
    return torch.rand(count, generator=torch.Generator().manual_seed(seed))
