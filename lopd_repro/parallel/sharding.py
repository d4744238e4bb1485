"""Weights, gradients and moments in shards: FSDP2 with a layer as its unit.

A layer is gathered while it runs, in the forward and again in the backward pass. What stands
outside the layers (embeddings, last norm, output projection, tied or not) is one further unit. It
stays gathered from a pass to the end of its backward pass, because losses read the projection
itself (`lm_head`) after the model has returned; `models.backbone.release` lets go of it where no
backward pass follows, and so keeps an updated model from being run with the values before.

Gradients are summed over ranks, not averaged: losses are shares of a step's loss.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard

from lopd_repro.errors import UserError
from lopd_repro.models.backbone import gathered


def decoder_layers(model: Any) -> list[Any]:
    """The layers of a causal language model, first to last."""
    found = getattr(model.base_model, "layers", None)
    if found is None:
        raise UserError(f"backbone {type(model).__name__}: found no `layers` to hold in shards")
    return list(found)


def shard_model(model: Any, mesh: Any, compute: torch.dtype | None = None) -> None:
    """Hold a causal language model in shards over the mesh, in place.

    compute: dtype of the forward and backward pass, None that of the weights. Weights, reduced
    gradients and moments keep the weights' own. From now on everything that reads the weights
    goes through `models.backbone.forward_pass`.
    """
    for layer in decoder_layers(model):
        fully_shard(layer, mesh=mesh, mp_policy=_precision(compute))
    plain = model.forward

    def forward(*args: Any, call: Callable[[], Any] | None = None, **kwargs: Any) -> Any:
        return plain(*args, **kwargs) if call is None else call()

    model.forward = forward
    fully_shard(model, mesh=mesh, mp_policy=_precision(compute), reshard_after_forward=False)
    # A rank whose loss never reads the projection still takes part in summing its gradient.
    model.set_reduce_scatter_unused_params(True, recurse=False)
    _sum_gradients(model)
    model.whole_sequences = True
    model.run_gathered = lambda call: model(call=call)


def shard_module(module: torch.nn.Module, mesh: Any) -> None:
    """Hold a small module in shards as one unit that computes in its own dtype, in place."""
    fully_shard(module, mesh=mesh, reshard_after_forward=True)
    _sum_gradients(module)


def whole_state(model: Any, keep: bool = True) -> dict[str, torch.Tensor]:
    """A model's weights gathered into this process's memory, one after the other.

    Tied weights stay one tensor. Every rank must ask; without `keep` it is left with nothing.
    """
    known: dict[int, torch.Tensor] = {}
    found: dict[str, torch.Tensor] = {}
    for name, parameter in model.state_dict(keep_vars=True).items():
        if id(parameter) not in known:
            values = gathered(parameter)
            known[id(parameter)] = values.to("cpu", copy=True) if keep else values[:0]
        if keep:
            found[name] = known[id(parameter)]
    return found


def _precision(compute: torch.dtype | None) -> MixedPrecisionPolicy:
    reduced = None if compute is None else torch.float32
    return MixedPrecisionPolicy(
        param_dtype=compute, reduce_dtype=reduced, cast_forward_inputs=False
    )


def _sum_gradients(module: Any) -> None:
    for part in module.modules():
        if isinstance(part, FSDPModule):
            part.set_gradient_divide_factor(1.0)
            # gloo has no sum of scaled values; a factor of 1 needs none.
            part.set_force_sum_reduction_for_comms(True)
