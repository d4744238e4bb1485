"""How a run's models are held: in shards over its ranks, in a compute dtype, layers recomputed.

Called once, before the optimisers are built: parameters are exchanged for their shards.
"""

from __future__ import annotations

from typing import Any

import torch

from lopd_repro.errors import UserError
from lopd_repro.models.backbone import copy_model, freeze
from lopd_repro.parallel.ranks import Ranks
from lopd_repro.training.method import Method
from lopd_repro.training.step_settings import StepSettings


def needs_shards(settings: StepSettings) -> bool:
    """Whether the settings ask for what FSDP does even where there is one rank."""
    return settings.compute_dtype != "engine"


def hold_models(policy: Any, method: Method, settings: StepSettings, ranks: Ranks) -> None:
    """Shard the policy, the teacher's copy of it and the method's modules, in place.

    The frozen copy is kept in the compute dtype: what is averaged in float32 is not this copy but
    the teacher's average (`teachers.Teacher`). Adapters in it keep float32.
    """
    copied = method.teacher.kind in ("frozen", "ema") and method.teacher_model is None
    if copied and (settings.activation_checkpointing or ranks.mesh is not None):
        method.teacher_model = freeze(copy_model(policy))
    teacher = method.teacher_model
    if settings.activation_checkpointing:
        from lopd_repro.parallel.recompute import recompute_layers

        recompute_layers(policy)
        if teacher is not None and method.teacher.needs_grad:
            recompute_layers(teacher)
    if ranks.mesh is None:
        return
    from lopd_repro.parallel.sharding import shard_model, shard_module

    compute = None
    if settings.compute_dtype == "bfloat16":
        compute = torch.bfloat16
        if policy.dtype != torch.float32:
            held = str(policy.dtype).removeprefix("torch.")
            raise UserError(
                f"optimiser.compute_dtype: found bfloat16 with engine.dtype {held}, allowed: with "
                "float32 (the weights that are updated)"
            )
    if teacher is not None:
        if compute is not None:
            _narrow(teacher, compute)
        shard_model(teacher, ranks.mesh, compute)
    for module in method.modules():
        shard_module(module, ranks.mesh)
    shard_model(policy, ranks.mesh, compute)


def _narrow(model: Any, dtype: torch.dtype) -> None:
    """Cast the weights of a frozen model, but for adapters."""
    for name, parameter in model.named_parameters():
        if "lora_" not in name:
            parameter.data = parameter.data.to(dtype)
