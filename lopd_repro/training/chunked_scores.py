"""Token scores whose output projection is applied in chunks of tokens.

For vocabularies so large that `[tokens, vocabulary]` does not fit. Values and gradients are those
of `TokenScores`, up to rounding.
"""

from __future__ import annotations

import torch

from lopd_repro.errors import UserError
from lopd_repro.training.chunked_head import gather_logp, mean_divergence, mean_loss
from lopd_repro.training.token_scores import Mean, PerToken, TokenScores


class ChunkedScores(TokenScores):
    """`TokenScores` that never hold more than `chunk` rows over the vocabulary.

    tokens `[N]`: the sampled ids. Every pass over the vocabulary gathers theirs as well, and a
    pass's ids and log-probabilities are kept, so that a method which asks for a support and then
    for its sampled tokens costs one pass each for student and teacher.
    """

    def __init__(
        self,
        hidden: torch.Tensor,
        weight: torch.Tensor,
        temperature: float = 1.0,
        forwarded: int = 0,
        *,
        tokens: torch.Tensor,
        chunk: int,
    ) -> None:
        super().__init__(hidden, weight, temperature, forwarded)
        self.tokens = tokens
        self.chunk = chunk
        self._sampled: torch.Tensor | None = None
        self._support: tuple[torch.Tensor, torch.Tensor] | None = None

    def log_probs(self) -> torch.Tensor:
        """Refused: it would be the whole `[N, vocabulary]`."""
        raise UserError(
            f"optimiser.head_chunk_tokens: found {self.chunk}, but this method asks for whole "
            "distributions (log_probs); allowed: 0, or a method that uses logp, logp_at, topk "
            "and mean_divergence"
        )

    def logp(self, ids: torch.Tensor) -> torch.Tensor:
        """Log-probability of one id per position: `[N]` for ids `[N]`."""
        if not torch.equal(ids, self.tokens):
            return self._gather(ids.unsqueeze(-1)).squeeze(-1)
        if self._sampled is None:
            self._sampled = self._gather(ids.unsqueeze(-1)).squeeze(-1)
        return self._sampled

    def logp_at(self, ids: torch.Tensor) -> torch.Tensor:
        """Log-probabilities of several ids per position: `[N, k]` for ids `[N, k]`."""
        if self._support is not None and torch.equal(ids, self._support[0]):
            return self._support[1]
        found = self._gather(torch.cat([self.tokens.unsqueeze(-1), ids], dim=1))
        return self._keep(found, ids)

    def topk(self, k: int) -> tuple[torch.Tensor, torch.Tensor]:
        """The k most likely ids per position: (log-probabilities, ids), both `[N, k]`."""
        top = min(k, self.weight.shape[0])
        found, ids = gather_logp(
            self.hidden,
            self.weight,
            self.tokens.unsqueeze(-1),
            temperature=self.temperature,
            chunk=self.chunk,
            top=top,
        )
        return self._keep(found, ids[:, 1:]), ids[:, 1:]

    def mean_loss(
        self, tokens: torch.Tensor, per_token: PerToken, mean: Mean
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """`mean` of a loss of the log-probabilities of `tokens` `[N]`, and those."""
        total, logp = mean_loss(
            self.hidden,
            self.weight,
            tokens,
            per_token,
            mean,
            temperature=self.temperature,
            chunk=self.chunk,
        )
        if self._sampled is None and torch.equal(tokens, self.tokens):
            self._sampled = self._gather(tokens.unsqueeze(-1), logp).squeeze(-1)
        return total, logp

    def mean_divergence(
        self, teacher: TokenScores, beta: float, mean: Mean, temperature: float | None = None
    ) -> torch.Tensor:
        """`mean` of the per-token divergence over the whole vocabulary, a scalar."""
        assert isinstance(teacher, ChunkedScores)
        sides = (self, teacher)
        student_side, teacher_side = ((s.hidden, s.weight, s.temperature) for s in sides)
        total, *logp = mean_divergence(
            student_side,
            teacher_side,
            (self.tokens, teacher.tokens),
            beta,
            mean,
            temperature,
            self.chunk,
        )
        for side, known in zip(sides, logp, strict=True):
            if side._sampled is None:
                side._sampled = side._gather(side.tokens.unsqueeze(-1), known).squeeze(-1)
        return total

    def select(self, mask: torch.Tensor) -> ChunkedScores:
        """Scores of the positions where `mask` `[N]` is true; these themselves if all are."""
        if bool(mask.all()):
            return self
        return ChunkedScores(
            self.hidden[mask],
            self.weight,
            self.temperature,
            tokens=self.tokens[mask],
            chunk=self.chunk,
        )

    def detached(self, temperature: float) -> ChunkedScores:
        """The same positions at another temperature, without gradient."""
        return ChunkedScores(
            self.hidden.detach(),
            self.weight.detach(),
            temperature,
            tokens=self.tokens,
            chunk=self.chunk,
        )

    def without_head_gradient(self) -> ChunkedScores:
        """The same scores, through which the output projection gets no gradient."""
        return ChunkedScores(
            self.hidden,
            self.weight.detach(),
            self.temperature,
            self.forwarded,
            tokens=self.tokens,
            chunk=self.chunk,
        )

    def _gather(self, ids: torch.Tensor, known: torch.Tensor | None = None) -> torch.Tensor:
        return gather_logp(
            self.hidden,
            self.weight,
            ids,
            temperature=self.temperature,
            chunk=self.chunk,
            known=None if known is None else known.unsqueeze(-1),
        )[0]

    def _keep(self, found: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        """Split a pass's results into the sampled tokens' and the support's."""
        if self._sampled is None:
            self._sampled = found[:, 0]
        self._support = ids, found[:, 1:]
        return found[:, 1:]


def token_scores(
    hidden: torch.Tensor,
    weight: torch.Tensor,
    temperature: float,
    forwarded: int,
    tokens: torch.Tensor,
    chunk: int,
) -> TokenScores:
    """Scores in chunks of `chunk` tokens, or whole with 0."""
    if not chunk:
        return TokenScores(hidden, weight, temperature, forwarded)
    return ChunkedScores(hidden, weight, temperature, forwarded, tokens=tokens, chunk=chunk)
