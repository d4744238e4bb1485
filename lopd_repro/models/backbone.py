"""Loading of backbones: a causal language model, its tokenizer and its end tokens."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from lopd_repro.errors import UserError

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass
class Backbone:
    """A model with the tokenizer it was trained with."""

    model: Any
    tokenizer: Any
    eos_ids: tuple[int, ...]

    @property
    def hidden_size(self) -> int:
        """Width of the residual stream, which is also the width of a latent token."""
        return int(self.model.config.hidden_size)


def load_backbone(path: Path | str, dtype: str = "float32", device: str = "cpu") -> Backbone:
    """Load a local folder or a hub name in Hugging Face form.

    A path that looks local (starts with `.` or `/`, or exists) must exist: it is never looked up
    on the hub by accident.
    """
    from transformers import AutoModelForCausalLM, AutoTokenizer

    name = str(path)
    if name.startswith((".", "/")) and not Path(name).is_dir():
        raise UserError(f"backbone {name}: no such folder")
    if dtype not in DTYPES:
        raise UserError(f"dtype: found {dtype!r}, allowed: {', '.join(DTYPES)}")
    try:
        tokenizer = AutoTokenizer.from_pretrained(name)
        model: Any = AutoModelForCausalLM.from_pretrained(name, dtype=DTYPES[dtype])
    except (OSError, ValueError) as error:
        raise UserError(
            f"backbone {name}: cannot be loaded ({str(error).splitlines()[0]})"
        ) from None
    model.to(device)
    model.eval()
    return Backbone(model, tokenizer, end_token_ids(model, tokenizer))


def end_token_ids(model: Any, tokenizer: Any) -> tuple[int, ...]:
    """Every id that ends a turn: the generation config's (one or several) and the tokenizer's."""
    found: list[int] = []
    configured = getattr(model.generation_config, "eos_token_id", None)
    if configured is not None:
        found += configured if isinstance(configured, list) else [configured]
    if tokenizer.eos_token_id is not None:
        found.append(tokenizer.eos_token_id)
    if not found:
        raise UserError("backbone: neither generation config nor tokenizer names an end token")
    return tuple(dict.fromkeys(int(i) for i in found))


def copy_model(model: Any) -> Any:
    """An independent copy with the same weights and no gradient state."""
    import copy

    twin = copy.deepcopy(model)
    for parameter in twin.parameters():
        parameter.grad = None
    return twin


def freeze(model: Any) -> Any:
    """Turn gradients of every parameter off and switch to evaluation mode."""
    model.eval()
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    return model


def lm_head(model: Any) -> torch.Tensor:
    """Weight of the output projection, `[vocabulary, hidden]`; models with a bias are refused."""
    head = model.get_output_embeddings()
    if getattr(head, "bias", None) is not None:
        raise UserError("backbone: an output projection with a bias is not supported")
    weight: torch.Tensor = head.weight
    return weight


def forward_pass(model: Any, call: Callable[[], torch.Tensor]) -> torch.Tensor:
    """`call()`, which reads the model's weights; those of a model held in shards are gathered.

    `lm_head` may be read afterwards, until the backward pass is over.
    """
    run = getattr(model, "run_gathered", None)
    return call() if run is None else run(call)


def gathered(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor's values; of a shard the whole's, which every rank must take part in."""
    values = tensor.detach()
    whole = getattr(values, "full_tensor", None)
    return values if whole is None else whole()


def release(model: Any) -> None:
    """Let go of weights that a model held in shards has gathered; nothing for others, or None.

    A pass without a backward pass leaves some gathered, and an update does not reach them.
    """
    reshard = getattr(model, "reshard", None)
    if reshard is not None:
        reshard()


def shares_heads(model: Any) -> bool:
    """Whether passes may go on from a key-value cache with gradients (not where layers are
    recomputed or gathered)."""
    return not getattr(model, "whole_sequences", False)


def fits_window(model: Any, length: int) -> bool:
    """Whether every layer of the model attends to all of `length` tokens."""
    window = getattr(model.config, "sliding_window", None)
    if window is None or not getattr(model.config, "use_sliding_window", True):
        return True
    return length <= int(window)
