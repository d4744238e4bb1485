"""Seconds of one device for a job's work.

Scoring and training are bound by FLOPs: seconds = tokens * FLOPs of a token * passes / (peak *
efficiency). Sampling is bound by memory: a step of a batch reads the weights and every sequence's
cache once, and the batch is as large as the settings say and the memory holds. A finished run
replaces all this by measured seconds per token (`Rates`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lopd_repro.plan.work import Work


@dataclass(frozen=True)
class Rates:
    """Measured: by kind of job, fixed seconds and seconds per token of sampling and of scoring (a
    token of one forward pass); by rule, mean seconds of jobs that are not counted in tokens."""

    fixed: Mapping[str, float] = field(default_factory=dict)
    sample: Mapping[str, float] = field(default_factory=dict)
    score: Mapping[str, float] = field(default_factory=dict)
    rules: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Device:
    """Peak FLOP/s, bytes/s and bytes of a device."""

    flops: float
    bandwidth: float
    memory: float
    source: str = ""


def forward_passes(work: Work, known: Mapping[str, Any]) -> float:
    """Tokens of scoring and training in units of one forward pass."""
    passes = known["passes"]
    train = 1.0 + passes["backward"]["value"] + passes["recompute"]["value"]
    return work.scored + float(train) * work.trained


def seconds(work: Work, rule: str, device: Device, known: Mapping[str, Any], rates: Rates) -> float:
    """One job on one device."""
    if rule in rates.rules:
        return rates.rules[rule]
    if work.kind in rates.fixed:
        sampling = rates.sample.get(work.kind, 0.0) * work.sampled
        return (
            rates.fixed[work.kind]
            + sampling
            + rates.score.get(work.kind, 0.0) * forward_passes(work, known)
        )
    fixed = known["fixed_seconds"]
    if work.kind == "download":
        return work.moved / float(known["download_bytes_per_second"]["value"])
    if work.model is None or not work.tokens:
        return float(fixed["other"]["value"])
    share = {name: float(entry["value"]) for name, entry in known["efficiency"].items()}
    per_token = work.model.forward_flops(work.context)
    score = (forward_passes(work, known) / share["train"] + work.read / share["score"]) * per_token
    embedded = 0.0
    if work.embedder is not None:
        embedded = work.embedded * work.embedder.forward_flops(1000.0) / share["score"]
    sampling = work.sampled * sampling_seconds(work, device) / share["sample"]
    return float(fixed["start"]["value"]) + sampling + (score + embedded) / device.flops


def sampling_seconds(work: Work, device: Device) -> float:
    """Seconds of one sampled token at full batch, by bandwidth or by FLOPs."""
    assert work.model is not None
    weights = 2.0 * work.model.parameters
    sequence = work.model.cache_bytes() * max(work.context, 1.0)
    room = max(device.memory * 0.9 - weights, sequence)
    batch = max(1.0, min(float(work.batch), room / sequence, work.rollouts))
    read = (weights + batch * sequence) / device.bandwidth / batch
    return max(read, work.model.forward_flops(work.context) / device.flops)
