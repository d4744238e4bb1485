"""How a run's models are held: in shards over its ranks, in a compute dtype, layers recomputed.

Called once, before the optimisers are built: parameters are exchanged for their shards.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import torch

from lopd_repro.errors import UserError
from lopd_repro.models.backbone import copy_model, freeze
from lopd_repro.parallel.ranks import Ranks
from lopd_repro.training.method import Method

COMPUTE_DTYPES = ("engine", "bfloat16")


class Holding(Protocol):
    """The settings that say how; those of a step and of the cold start have them.

    compute_dtype: of forward and backward passes; `engine` is the weights' own, `bfloat16` leaves
    float32 weights, gradients and moments. activation_checkpointing: keep a layer's input alone and
    run the layer again in the backward pass.
    """

    @property
    def compute_dtype(self) -> str: ...

    @property
    def activation_checkpointing(self) -> bool: ...


def check_holding(settings: Holding, where: str) -> None:
    """Refuse what is not known."""
    if settings.compute_dtype not in COMPUTE_DTYPES:
        raise UserError(
            f"{where}.compute_dtype: found {settings.compute_dtype!r}, allowed: "
            f"{', '.join(COMPUTE_DTYPES)}"
        )


def needs_shards(settings: Holding) -> bool:
    """Whether the settings ask for what FSDP does even where there is one rank."""
    return settings.compute_dtype != "engine"


def hold_models(policy: Any, method: Method, settings: Holding, ranks: Ranks) -> None:
    """Hold the policy, the teacher's copy of it and the method's modules, in place."""
    copied = method.teacher.kind in ("frozen", "ema") and method.teacher_model is None
    if copied and (settings.activation_checkpointing or ranks.mesh is not None):
        method.teacher_model = freeze(copy_model(policy))
    if method.teacher_model is not None:
        learns = method.teacher.needs_grad
        hold_frozen(method.teacher_model, method.modules(), learns, settings, ranks)
    if settings.activation_checkpointing:
        _recompute(policy)
    if ranks.mesh is not None:
        from lopd_repro.parallel.sharding import shard_model

        shard_model(policy, ranks.mesh, _compute(policy, settings))
        if ranks.mesh.device_type == "cuda":
            # The whole models' memory; an engine that starts next looks at what is free.
            torch.cuda.empty_cache()


def hold_frozen(
    model: Any, modules: Sequence[torch.nn.Module], learns: bool, settings: Holding, ranks: Ranks
) -> None:
    """Hold a frozen model and small modules beside it, in place.

    The model is kept in the compute dtype (what is averaged in float32 is not this copy but
    `teachers.Teacher`'s average), adapters in it in float32. learns: whether gradients pass through
    it.
    """
    if settings.activation_checkpointing and learns:
        _recompute(model)
    if ranks.mesh is None:
        return
    from lopd_repro.parallel.sharding import shard_model, shard_module

    compute = _compute(model, settings)
    if compute is not None:
        for name, parameter in model.named_parameters():
            if "lora_" not in name:
                parameter.data = parameter.data.to(compute)
    shard_model(model, ranks.mesh, compute)
    for module in modules:
        shard_module(module, ranks.mesh)


def _recompute(model: Any) -> None:
    from lopd_repro.parallel.recompute import recompute_layers

    recompute_layers(model)


def _compute(model: Any, settings: Holding) -> torch.dtype | None:
    if settings.compute_dtype == "engine":
        return None
    if model.dtype != torch.float32:
        held = str(model.dtype).removeprefix("torch.")
        raise UserError(
            f"compute_dtype: found {settings.compute_dtype} with engine.dtype {held}, allowed: "
            "with float32 (the weights that are updated)"
        )
    return torch.bfloat16
