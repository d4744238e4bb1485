"""Next-token distributions at supervised positions: what a method may ask of a model's output.

This is the dense form, which holds `[N, vocabulary]` log-probabilities once they are asked for;
`chunked_scores` answers the same questions in chunks of tokens.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from lopd_repro.training.losses import divergence, temper

Mean = Callable[[torch.Tensor], torch.Tensor]
"""A linear map from per-token values `[N]` to a scalar, such as `aggregate` with its options."""

PerToken = Callable[[torch.Tensor, slice], torch.Tensor]
"""Losses `[n]` or `[n, m]` of the tokens of a slice from their log-probabilities `[n]`.

A token's may depend on its own log-probability only.
"""


class TokenScores:
    """Next-token distributions at N supervised positions, computed when asked for.

    hidden: `[N, d]`; weight: `[vocabulary, d]`. Log-probabilities are natural, float32 or wider.
    forwarded: tokens that the model read for them, padding left out.
    """

    def __init__(
        self,
        hidden: torch.Tensor,
        weight: torch.Tensor,
        temperature: float = 1.0,
        forwarded: int = 0,
    ) -> None:
        self.hidden = hidden
        self.weight = weight
        self.temperature = temperature
        self.forwarded = forwarded
        self._log_probs: torch.Tensor | None = None

    def __len__(self) -> int:
        return self.hidden.shape[0]

    def log_probs(self) -> torch.Tensor:
        """Full log-distributions `[N, vocabulary]`."""
        if self._log_probs is None:
            self._log_probs = log_softmax(self.hidden @ self.weight.T, self.temperature)
        return self._log_probs

    def logp(self, ids: torch.Tensor) -> torch.Tensor:
        """Log-probability of one id per position: `[N]` for ids `[N]`."""
        return self.log_probs().gather(-1, ids.unsqueeze(-1)).squeeze(-1)

    def logp_at(self, ids: torch.Tensor) -> torch.Tensor:
        """Log-probabilities of several ids per position: `[N, k]` for ids `[N, k]`."""
        return self.log_probs().gather(-1, ids)

    def topk(self, k: int) -> tuple[torch.Tensor, torch.Tensor]:
        """The k most likely ids per position: (log-probabilities, ids), both `[N, k]`."""
        values, ids = self.log_probs().topk(min(k, self.weight.shape[0]), dim=-1)
        return values, ids

    def mean_loss(
        self, tokens: torch.Tensor, per_token: PerToken, mean: Mean
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """`mean` of a loss of the log-probabilities of one id per position, `tokens` `[N]`.

        Returns the scalar and, without gradient, the log-probabilities `[N]`. It is the loss that
        `logp` would give; in chunks it costs one pass over the vocabulary less.
        """
        logp = self.logp(tokens)
        return mean(per_token(logp, slice(0, len(self)))), logp.detach()

    def mean_divergence(
        self, teacher: TokenScores, beta: float, mean: Mean, temperature: float | None = None
    ) -> torch.Tensor:
        """`mean` of the per-token `losses.divergence` over the whole vocabulary, a scalar.

        With a temperature, of both distributions at it (`losses.temper`).
        """
        ours, theirs = self.log_probs(), teacher.log_probs()
        if temperature is not None:
            ours, theirs = temper(ours, temperature), temper(theirs, temperature)
        return mean(divergence(ours, theirs, beta))

    def select(self, mask: torch.Tensor) -> TokenScores:
        """Scores of the positions where `mask` `[N]` is true; these themselves if all are."""
        if bool(mask.all()):
            return self
        return TokenScores(self.hidden[mask], self.weight, self.temperature)

    def detached(self, temperature: float) -> TokenScores:
        """The same positions at another temperature, without gradient."""
        return TokenScores(self.hidden.detach(), self.weight.detach(), temperature)

    def without_head_gradient(self) -> TokenScores:
        """The same scores, through which the output projection gets no gradient."""
        return TokenScores(self.hidden, self.weight.detach(), self.temperature, self.forwarded)


def log_softmax(logits: torch.Tensor, temperature: float) -> torch.Tensor:
    """Log-distributions of logits `[..., vocabulary]` at a temperature, float32 or wider."""
    if logits.dtype in (torch.bfloat16, torch.float16):
        logits = logits.float()
    return (logits / temperature).log_softmax(-1)
