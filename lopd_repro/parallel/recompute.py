"""Activation checkpointing: a layer keeps its input and runs again in the backward pass.

The layer's own `forward` is replaced, so that the names of its weights stay as they are and FSDP's
hooks, which sit around the layer, gather its weights once for both. A layer may run again long
after an adapter has been switched: its adapters are then, for that time, as they were.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from peft.tuners.tuners_utils import BaseTunerLayer
from torch.utils.checkpoint import checkpoint

from lopd_repro.parallel.sharding import decoder_layers


def recompute_layers(model: Any) -> None:
    """Keep no activations inside the layers of a causal language model, in place.

    Its passes cannot fill a key-value cache that gradients flow through from then on.
    """
    for layer in decoder_layers(model):
        _recompute(layer)
    model.whole_sequences = True


def _recompute(layer: Any) -> None:
    plain = layer.forward
    adapters = [module for module in layer.modules() if isinstance(module, BaseTunerLayer)]

    def contexts() -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
        return nullcontext(), _switched(adapters, [_switches(module) for module in adapters])

    def forward(*args: Any, **kwargs: Any) -> Any:
        if not torch.is_grad_enabled():
            return plain(*args, **kwargs)
        # Nothing is drawn in a layer: dropout is off throughout.
        return checkpoint(
            plain,
            *args,
            use_reentrant=False,
            preserve_rng_state=False,
            context_fn=contexts,
            **kwargs,
        )

    layer.forward = forward


def _switches(module: Any) -> tuple[bool, Any]:
    return module._disable_adapters, module._active_adapter


@contextmanager
def _switched(adapters: list[Any], states: list[tuple[bool, Any]]) -> Iterator[None]:
    # peft's own switches would also set requires_grad of every adapter.
    before = [_switches(module) for module in adapters]
    _switch(adapters, states)
    try:
        yield
    finally:
        _switch(adapters, before)


def _switch(adapters: list[Any], states: list[tuple[bool, Any]]) -> None:
    for module, (off, active) in zip(adapters, states, strict=True):
        module._disable_adapters, module._active_adapter = off, active
