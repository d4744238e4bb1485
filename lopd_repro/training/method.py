"""The Method interface: everything a training method may choose, and nothing else.

The loop owns sampling, environments, batching, the optimiser, clipping, validation,
checkpoints, logging and seeds. A method file defines one class derived from `Method` and names
it `METHOD`; a workflow rule names the file.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import torch

from lopd_repro.errors import UserError
from lopd_repro.models.backbone import Backbone
from lopd_repro.models.chat import ChatCodec
from lopd_repro.parallel.ranks import ONE, Ranks
from lopd_repro.rollout.domain import Domain
from lopd_repro.rollout.episodes import Trajectory
from lopd_repro.rollout.heads import Context
from lopd_repro.training.losses import Totals
from lopd_repro.training.token_scores import TokenScores


@dataclass(frozen=True)
class TeacherSpec:
    """Which weights score the privileged head.

    kind: `none`, `frozen` (the starting checkpoint), `ema` (of the policy's effective weights,
    `rate` a step) or `current` (the policy itself, without gradient).
    `needs_grad` lets gradients pass through the teacher's activations to its context.
    """

    kind: str = "none"
    rate: float = 0.0
    needs_grad: bool = False

    def __post_init__(self) -> None:
        kinds = ("none", "frozen", "ema", "current")
        if self.kind not in kinds:
            raise UserError(f"teacher: found {self.kind!r}, allowed: {', '.join(kinds)}")
        if self.kind == "ema" and not 0 < self.rate <= 1:
            raise UserError(f"teacher rate: found {self.rate}, allowed: above 0 and up to 1")


@dataclass
class Batch:
    """One micro-batch: B trajectories with N supervised tokens in all.

    tokens, row, old_logp: `[N]`; rewards: `[B]`; `distilled` `[N]` marks tokens of trajectories
    with a teacher context, and `teacher` holds scores for exactly those. `totals` count the whole
    step, `distilled_totals` its trajectories with a teacher context. `extra` are this
    micro-batch's rows of what `Method.prepare` returned. `old_logp` is the engine's; `importance`
    `[N]` are truncated importance weights against it, None where they are switched off.
    """

    trajectories: list[Trajectory]
    tokens: torch.Tensor
    row: torch.Tensor
    old_logp: torch.Tensor
    rewards: torch.Tensor
    student: TokenScores
    teacher: TokenScores | None
    distilled: torch.Tensor
    contexts: list[Context]
    totals: Totals
    distilled_totals: Totals
    extra: dict[str, torch.Tensor] = field(default_factory=dict)
    importance: torch.Tensor | None = None

    def weighted(self, per_token: torch.Tensor, where: torch.Tensor | None = None) -> torch.Tensor:
        """A per-token loss estimated from the sampled tokens, times the importance weights.

        per_token: `[N]`, or the values where the mask `where` `[N]` is true.
        """
        if self.importance is None:
            return per_token
        return per_token * (self.importance if where is None else self.importance[where])


@dataclass
class Loss:
    """A micro-batch's share of the step's loss, with additive metrics.

    `sums` add up over micro-batches to the step's metrics.
    """

    value: torch.Tensor
    sums: dict[str, float] = field(default_factory=dict)


@dataclass
class Preparation:
    """What a method works out from a whole step's trajectories before scoring.

    `distilled[i]` says that trajectory i will get a teacher context. `extra` values have one
    row per trajectory.
    """

    distilled: list[bool]
    extra: dict[str, torch.Tensor] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)


@dataclass
class Resources:
    """What a run hands to its method.

    Every one of the `ranks` calls the method alike; what might not come out the same on each (the
    answer of an endpoint) goes through `ranks.once`.
    """

    backbone: Backbone
    codec: ChatCodec
    domain: Domain
    seed: int
    base_path: str
    files: dict[str, str] = field(default_factory=dict)
    prompts: dict[str, str] = field(default_factory=dict)
    ranks: Ranks = ONE


@dataclass
class ParameterGroup:
    """Parameters a method trains besides the policy, with their own optimiser settings."""

    name: str
    parameters: list[torch.nn.Parameter]
    lr: float
    clip: float
    weight_decay: float = 0.01


class Method:
    """Base class: a method without teacher and without loss."""

    name: ClassVar[str] = ""
    label: ClassVar[str] = ""
    trains: ClassVar[bool] = True
    defaults: ClassVar[dict[str, Any]] = {}

    teacher_model: Any = None
    """A frozen copy of the policy as it starts, so that the loop keeps no second one."""

    def __init__(self, settings: dict[str, Any], resources: Resources) -> None:
        self.settings = merge_settings(self.name, self.defaults, settings)
        self.resources = resources

    @property
    def teacher(self) -> TeacherSpec:
        """Weights that score the privileged head."""
        return TeacherSpec()

    def prepare(self, trajectories: Sequence[Trajectory]) -> Preparation:
        """Look at a whole step's trajectories: advantages, siblings, retrievals."""
        return Preparation([False] * len(trajectories))

    def contexts(self, trajectories: Sequence[Trajectory]) -> list[Context]:
        """Privileged context of each trajectory of a micro-batch, None where there is none."""
        return [None] * len(trajectories)

    def loss(self, batch: Batch) -> Loss:
        """The micro-batch's share of the loss."""
        raise UserError(f"method {self.name}: it has no loss, so it cannot be trained")

    def parameter_groups(self) -> list[ParameterGroup]:
        """Parameters trained besides the policy."""
        return []

    def modules(self) -> list[torch.nn.Module]:
        """Modules of the method's own beside the teacher, for runs that hold weights in shards."""
        return []

    def after_step(self, metrics: dict[str, float]) -> dict[str, float]:
        """Update dual variables, counts and the like; returns metrics to log."""
        return {}

    def artifacts(self) -> dict[str, bytes]:
        """Files by name that belong to the run's result, as the method stands now.

        The run folder gets those of the selected step.
        """
        return {}

    def state_dict(self) -> dict[str, Any]:
        """State that a resumed run needs."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back what `state_dict` gave."""


def merge_settings(name: str, defaults: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """Defaults overlaid with given settings; unknown keys and wrong types are refused."""
    merged = dict(defaults)
    for key, value in given.items():
        if key not in defaults:
            allowed = ", ".join(sorted(defaults)) or "none"
            raise UserError(f"methods.{name}.{key}: unknown setting, allowed: {allowed}")
        expected = defaults[key]
        number = isinstance(expected, int | float) and not isinstance(expected, bool)
        if number and not (isinstance(value, int | float) and not isinstance(value, bool)):
            raise UserError(f"methods.{name}.{key}: found {value!r}, allowed: a number")
        if isinstance(expected, bool | str) and not isinstance(value, type(expected)):
            kind = "true or false" if isinstance(expected, bool) else "a text"
            raise UserError(f"methods.{name}.{key}: found {value!r}, allowed: {kind}")
        merged[key] = value
    return merged


def choice(name: str, key: str, value: str, allowed: Sequence[str]) -> str:
    """`value` if it is one of `allowed`, else a `UserError` that names the setting."""
    if value not in allowed:
        raise UserError(f"methods.{name}.{key}: found {value!r}, allowed: {', '.join(allowed)}")
    return value


def load_method(path: Path | str) -> type[Method]:
    """The class that a method file names `METHOD`."""
    file = Path(path)
    if not file.is_file():
        raise UserError(f"method file {file}: no such file")
    spec = importlib.util.spec_from_file_location(f"lopd_repro_method_{file.stem}", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found = getattr(module, "METHOD", None)
    if not (isinstance(found, type) and issubclass(found, Method) and found.name):
        raise UserError(f"method file {file}: METHOD must be a named class derived from Method")
    return found
