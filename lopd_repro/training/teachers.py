"""Teacher weights: frozen start, EMA of the policy's effective weights, or the policy itself."""

from __future__ import annotations

from typing import Any

import torch
from peft.tuners.tuners_utils import BaseTunerLayer

from lopd_repro.errors import UserError
from lopd_repro.models.backbone import copy_model, freeze
from lopd_repro.training.losses import ema_update_
from lopd_repro.training.method import TeacherSpec


class Teacher:
    """Holds the weights a `TeacherSpec` asks for; `held`, a frozen copy of the policy as it starts,
    serves as the frozen or averaged teacher if given.

    The EMA is kept in float32 and of effective weights: a policy trained through an adapter is
    refused, because an average of its factors is no average of the weights they make.
    """

    def __init__(self, spec: TeacherSpec, policy: Any, held: Any = None) -> None:
        self.spec = spec
        self._policy = policy
        self.model: Any = None
        self._average: dict[str, torch.Tensor] = {}
        if spec.kind in ("frozen", "ema") and held is not None:
            self.model = held
        elif spec.kind in ("frozen", "ema"):
            self.model = freeze(copy_model(policy))
        elif spec.kind == "current":
            self.model = policy
        if spec.kind == "ema":
            if any(isinstance(module, BaseTunerLayer) for module in policy.modules()):
                raise UserError("teacher ema: the policy has an adapter; merge it before training")
            self._average = {
                name: value.detach().float().clone() for name, value in policy.named_parameters()
            }

    def update(self) -> None:
        """Move the EMA by its rate towards the policy; other kinds stay as they are."""
        if self.spec.kind != "ema":
            return
        ema_update_(self._average, dict(self._policy.named_parameters()), self.spec.rate)
        self._publish()

    def state_dict(self) -> dict[str, torch.Tensor]:
        """The EMA's float32 weights, empty for other kinds."""
        return dict(self._average)

    def load_state_dict(self, state: dict[str, torch.Tensor]) -> None:
        """Take back saved EMA weights."""
        if self.spec.kind != "ema":
            return
        with torch.no_grad():
            for name, value in state.items():
                self._average[name].copy_(value)
        self._publish()

    @torch.no_grad()
    def _publish(self) -> None:
        """Copy the float32 average into the model that does the forward pass."""
        for name, target in self.model.named_parameters():
            target.copy_(self._average[name])


def assert_plain_forward(model: Any) -> None:
    """Raise unless a teacher pass is deterministic: evaluation mode, no active adapter."""
    if any(module.training for module in model.modules() if _has_dropout(module)):
        raise RuntimeError("teacher pass with dropout active")
    for module in model.modules():
        if isinstance(module, BaseTunerLayer) and not module.disable_adapters:
            raise RuntimeError("teacher pass with an adapter active")


def _has_dropout(module: Any) -> bool:
    # Attention layers of transformers hold their rate as a number.
    dropout = isinstance(module, torch.nn.Dropout) and module.p > 0
    return dropout or bool(getattr(module, "attention_dropout", 0.0))
