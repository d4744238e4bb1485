"""The latent context composer: a LoRA encoder on the frozen backbone, then the compressor.

The adapter is active only while encoding: the same frozen backbone is the teacher between two
encodings, and `encode` leaves it with every adapter off.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lopd_repro.errors import UserError
from lopd_repro.files import write_bytes
from lopd_repro.lopd.compressor import Compressor
from lopd_repro.models.backbone import forward_pass, gathered

LORA_TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
SCALES = ("unit", "embedding_rms")
TASK_TEXTS = ("shown", "hidden")


@dataclass(frozen=True)
class ComposerSettings:
    """Shape of the composer.

    n_latents: K, latent tokens per experience. latent_scale: how large latents start out: `unit`
    is the final LayerNorm's own gain, `embedding_rms` starts them at the size of the backbone's
    token embeddings.
    """

    n_latents: int = 32
    depth: int = 8
    ff_mult: int = 4
    lora_rank: int = 8
    lora_alpha: int = 16
    latent_scale: str = "unit"
    task_prompt: str = "Task to solve:\n"
    trace_prompt: str = "\n\nReference past trajectory:\n"
    task_text: str = "shown"

    def __post_init__(self) -> None:
        if self.latent_scale not in SCALES:
            raise UserError(
                f"composer.latent_scale: found {self.latent_scale!r}, allowed: {', '.join(SCALES)}"
            )
        if self.task_text not in TASK_TEXTS:
            raise UserError(
                f"composer.task_text: found {self.task_text!r}, allowed: {', '.join(TASK_TEXTS)}"
            )
        if self.n_latents < 1:
            raise UserError(f"composer.n_latents: found {self.n_latents}, allowed: 1 or more")


class Composer:
    """Maps (task, trace) pairs to latent tokens `[K, d]`.

    model: a frozen backbone; adapters of several composers can live on it under different
    names. seed: initial weights.
    """

    def __init__(
        self, model: Any, tokenizer: Any, settings: ComposerSettings, seed: int, name: str
    ) -> None:
        from peft import LoraConfig

        self.model = model
        self.tokenizer = tokenizer
        self.settings = settings
        self.name = name
        config = model.config
        heads = config.num_attention_heads
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.compressor = Compressor(
                config.hidden_size,
                heads,
                config.hidden_size // heads,
                settings.n_latents,
                settings.depth,
                settings.ff_mult,
            ).to(model.device)
            with self._flags_kept():
                model.add_adapter(
                    LoraConfig(
                        r=settings.lora_rank,
                        lora_alpha=settings.lora_alpha,
                        lora_dropout=0.0,
                        target_modules=list(LORA_TARGETS),
                    ),
                    adapter_name=name,
                )
                model.disable_adapters()
        self.train_mode(True)
        if settings.latent_scale == "embedding_rms":
            rms = model.get_input_embeddings().weight.detach().float().square().mean().sqrt()
            with torch.no_grad():
                self.compressor.norm_out.weight.fill_(float(rms))

    def encode(self, pairs: Sequence[tuple[str, str]]) -> Tensor:
        """Latents `[len(pairs), K, d]` of (task, trace) pairs; adapters are off afterwards."""
        ids = [self._ids(task, trace) for task, trace in pairs]
        width = max(len(row) for row in ids)
        pad = self.tokenizer.pad_token_id or 0
        device = self.model.device
        batch = torch.tensor([row + [pad] * (width - len(row)) for row in ids], device=device)
        lengths = torch.tensor([len(row) for row in ids], device=device)
        mask = torch.arange(width, device=device) < lengths[:, None]
        with self._adapter_on():
            hidden = forward_pass(
                self.model,
                lambda: self.model.base_model(input_ids=batch, use_cache=False).last_hidden_state,
            )
        latents: Tensor = self.compressor(hidden.to(self.compressor.latents.dtype), mask)
        return latents

    def lora_parameters(self) -> list[torch.nn.Parameter]:
        """The encoder adapter's parameters."""
        return [p for _, p in self._lora_named()]

    def compressor_parameters(self) -> list[torch.nn.Parameter]:
        """The compressor's parameters."""
        return list(self.compressor.parameters())

    def parameters(self) -> list[torch.nn.Parameter]:
        """Everything the composer trains (paper: phi = (psi, chi))."""
        return [*self.compressor_parameters(), *self.lora_parameters()]

    def train_mode(self, on: bool) -> None:
        """Let gradients reach the composer's parameters, or freeze them."""
        for parameter in self.parameters():
            parameter.requires_grad_(on)

    def state_dict(self) -> dict[str, Tensor]:
        """Weights of adapter and compressor under stable names."""
        state = {f"compressor.{k}": v.detach() for k, v in self.compressor.state_dict().items()}
        marker = f".{self.name}."
        for name, parameter in self._lora_named():
            state[f"encoder.{name.replace(marker, '.')}"] = parameter.detach()
        return state

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Take back weights; missing, extra or misshapen ones are refused."""
        own = self.state_dict()
        if own.keys() != state.keys() or any(own[k].shape != state[k].shape for k in own):
            raise UserError("composer: the saved weights do not fit composer settings or backbone")
        with torch.no_grad():
            for name, target in own.items():
                target.copy_(state[name])

    def dump(self) -> bytes:
        """The weights as the content of a safetensors file; of shards, every rank must ask."""
        from safetensors.torch import save

        state = self.state_dict()
        return save({name: gathered(value).contiguous() for name, value in state.items()})

    def save(self, path: Path) -> None:
        """Write the weights as one safetensors file."""
        write_bytes(path, self.dump())

    def load(self, path: Path | str) -> None:
        """Read weights written by `save`."""
        from safetensors.torch import load_file

        self.load_state_dict(load_file(str(path)))

    def _ids(self, task: str, trace: str) -> list[int]:
        # The two parts are tokenised apart and joined, as in the released code.
        shown = task if self.settings.task_text == "shown" else ""
        prefix = self.settings.task_prompt + shown + self.settings.trace_prompt
        encode = self.tokenizer.encode
        return [
            *encode(prefix, add_special_tokens=False),
            *encode(trace, add_special_tokens=False),
        ]

    @contextmanager
    def _adapter_on(self) -> Iterator[None]:
        """This composer's adapter active inside, every adapter off afterwards."""
        with self._flags_kept():
            self.model.enable_adapters()
            self.model.set_adapter(self.name)
        try:
            yield
        finally:
            with self._flags_kept():
                self.model.disable_adapters()

    @contextmanager
    def _flags_kept(self) -> Iterator[None]:
        # peft's switches set requires_grad of every adapter: off with the adapter, so that a
        # later backward would skip the encoder. Only `train_mode` decides what is trained.
        flags = [(p, p.requires_grad) for p in self.model.parameters()]
        try:
            yield
        finally:
            for parameter, flag in flags:
                parameter.requires_grad_(flag)

    def _lora_named(self) -> list[tuple[str, torch.nn.Parameter]]:
        marker = f".{self.name}."
        return [(n, p) for n, p in self.model.named_parameters() if "lora_" in n and marker in n]
