"""Exponential moving average of effective weights, in float32.

Averaging the two factors of a LoRA adapter apart is no average of the weights they make: merge
first (`lora_effective_weight`), then average. Half precision would lose an update of rate 0.01.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor


@torch.no_grad()
def ema_update(teacher: Tensor, student: Tensor, rate: float) -> Tensor:
    """(1 - rate) * teacher + rate * student as a new float32 tensor."""
    if not 0.0 <= rate <= 1.0:
        raise ValueError(f"EMA rate must lie in [0, 1], got {rate}")
    return teacher.float() * (1.0 - rate) + student.float() * rate


@torch.no_grad()
def ema_update_(teacher: Mapping[str, Tensor], student: Mapping[str, Tensor], rate: float) -> None:
    """Move every teacher tensor towards the student's of the same name, in place.

    The names must agree and the teacher must be float32; the student may have any float dtype.
    """
    if teacher.keys() != student.keys():
        odd = sorted(teacher.keys() ^ student.keys())
        raise ValueError(f"teacher and student weights differ in names: {', '.join(odd[:5])}")
    for name, weight in teacher.items():
        if weight.dtype != torch.float32:
            raise TypeError(f"EMA teacher weight {name} must be float32, got {weight.dtype}")
        weight.copy_(ema_update(weight, student[name].to(weight.device), rate))


@torch.no_grad()
def lora_effective_weight(weight: Tensor, lora_a: Tensor, lora_b: Tensor, scale: float) -> Tensor:
    """weight + scale * B @ A in float32: `[out, in], [r, in], [out, r] -> [out, in]`."""
    return weight.float() + scale * (lora_b.float() @ lora_a.float())
