"""Settings of an optimiser step, and the clock of its phases."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from lopd_repro.errors import UserError
from lopd_repro.training.hold import check_holding


@dataclass(frozen=True)
class StepSettings:
    """lr, weight decay and gradient clip of the policy; trajectories per micro-batch.

    `compute_dtype` and `activation_checkpointing` say how models are held (`hold`).
    `importance_cap` switches on truncated importance weights (`mismatch`); `max_logp_gap` is a
    mean gap between engine and trainer above which training stops. 0 is off for both.
    """

    lr: float = 1e-5
    weight_decay: float = 0.01
    clip: float = 1.0
    micro_batch: int = 32
    scoring_temperature: float = 1.0
    warmup_steps: int = 0
    head_chunk_tokens: int = 0
    importance_cap: float = 0.0
    max_logp_gap: float = 0.0
    compute_dtype: str = "engine"
    activation_checkpointing: bool = False

    def __post_init__(self) -> None:
        check_holding(self, "optimiser")
        if self.importance_cap and self.importance_cap < 1:
            raise UserError(
                f"optimiser.importance_cap: found {self.importance_cap}, allowed: 0 (off), or 1 or "
                "more"
            )
        if self.max_logp_gap < 0:
            raise UserError(
                f"optimiser.max_logp_gap: found {self.max_logp_gap}, allowed: 0 (off) or more"
            )


class PhaseClock:
    """Seconds spent by phase."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Add the block's wall time to a phase."""
        start = time.perf_counter()
        try:
            yield
        finally:
            spent = time.perf_counter() - start
            self.seconds[name] = self.seconds.get(name, 0.0) + spent
