"""What an episode loop asks of a rollout engine.

Token ids (or ids with embeddings over a span) go in; sampled ids and their log-probabilities
come out, one assistant turn at a time. The engine keeps whatever cache it likes between the
turns of an episode. There are two: `hf_engine.HFEngine` on a transformers model, and
`vllm_engine.VLLMEngine`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from lopd_repro.errors import UserError


@dataclass(frozen=True)
class SamplingParams:
    """How tokens are drawn and when a turn or an episode runs out of tokens.

    `temperature` 0 is greedy. `top_p` 1 and `top_k` 0 switch the filters off.
    `max_turn_tokens` bounds one assistant turn; `max_tail_tokens` bounds everything after the
    head: sampled ids and glue together. `max_episode_tokens` bounds head and tail together, and
    `max_thinking_tokens` the reasoning of a turn (see `thinking`); 0 is no bound.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    max_turn_tokens: int = 64
    max_tail_tokens: int = 512
    max_episode_tokens: int = 0
    max_thinking_tokens: int = 0

    def __post_init__(self) -> None:
        if self.temperature < 0:
            raise UserError(f"sampling.temperature: found {self.temperature}, allowed: 0 or more")
        if not 0 < self.top_p <= 1:
            raise UserError(f"sampling.top_p: found {self.top_p}, allowed: above 0 and up to 1")
        if self.top_k < 0:
            raise UserError(f"sampling.top_k: found {self.top_k}, allowed: 0 (off) or more")
        if self.max_turn_tokens < 1 or self.max_tail_tokens < 1:
            raise UserError("sampling.max_turn_tokens and max_tail_tokens: allowed: 1 or more")
        if self.max_episode_tokens < 0:
            raise UserError("sampling.max_episode_tokens: allowed: 0 (no bound) or more")
        if not 0 <= self.max_thinking_tokens < self.max_turn_tokens:
            raise UserError(
                f"sampling.max_thinking_tokens: found {self.max_thinking_tokens}, allowed: 0 (no "
                f"bound) or more, and less than max_turn_tokens {self.max_turn_tokens}"
            )

    def tail_limit(self, head_tokens: int) -> int:
        """Tokens that may follow a head; `UserError` where it leaves no room for any."""
        if not self.max_episode_tokens:
            return self.max_tail_tokens
        room = self.max_episode_tokens - head_tokens
        if room < 1:
            raise UserError(
                f"sampling.max_episode_tokens: found {self.max_episode_tokens}, but a task's head "
                f"alone has {head_tokens} tokens"
            )
        return min(self.max_tail_tokens, room)


@dataclass(frozen=True)
class Prompt:
    """Head of one episode.

    `embeddings` (`[span, hidden]`) replace the token embeddings of the half-open `span`.
    `seed` fixes the episode's random draws whatever batch it is sampled in.
    """

    ids: tuple[int, ...]
    seed: int
    span: tuple[int, int] | None = None
    embeddings: torch.Tensor | None = None


@dataclass(frozen=True)
class Turn:
    """One sampled assistant turn.

    `logp` are log-probabilities under the distribution drawn from (after temperature, top-k and
    top-p; NaN from an engine that does not tell), `raw_logp` under the model's own at
    temperature 1. `finish` is `eos`, `length` (turn bound), `budget` (tail bound) or `thinking`:
    the turn has reached `max_thinking_tokens` and goes on after the reply's ids, if any.
    """

    ids: list[int]
    logp: list[float]
    raw_logp: list[float]
    finish: str


Reply = list[int] | None
"""Glue ids after which the episode goes on, or None when it has ended."""

OnTurns = Callable[[list[tuple[int, Turn]]], list[Reply]]
"""Takes (prompt index, turn) pairs that ended at the same time; answers each one."""


class RolloutEngine(Protocol):
    """Samples episodes."""

    def run(self, prompts: Sequence[Prompt], sampling: SamplingParams, on_turns: OnTurns) -> None:
        """Sample every prompt's episode to its end, calling `on_turns` after each turn."""

    def sync_weights(self, model: Any) -> None:
        """Sample from these weights from now on; anything cached from older ones is dropped."""

    def reset_cache(self) -> None:
        """Forget cached prefixes."""
