"""The output projection and its softmax, a chunk of tokens at a time, forward and backward.

Memory beyond inputs and results is a few buffers of `[chunk, vocabulary]`, and the gradient of
the projection where it is trained.

`gather_logp` keeps none of a chunk and projects again in the backward pass, because the gradient
of a row depends on what a loss makes of it: one matrix product in four is the price. Where the
projection is not trained (a frozen teacher whose context is) the gradient of a row needs one
product of its distribution with the weights, which the forward pass can make; that costs nothing.
`mean_loss` and `mean_divergence` are told how per-token values become a scalar, so they make
their gradient in the forward pass, as Liger-Kernel's fused losses do.

Why no library does it. `torch.nn.functional.linear_cross_entropy` (2.13, chunked) agrees with
`gather_logp` on one id per row, but its losses have the dtype of its inputs: log-probabilities in
bfloat16 are no use to a ratio. Liger-Kernel 0.8's fused JSD is a plain mean over tokens without
weights of their own (a mean over trajectories needs them), and its cross-entropy with per-token
results projects again in the backward pass as well. Neither has top-k with a tail.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from lopd_repro.training.losses import divergence, temper
from lopd_repro.training.token_scores import Mean, PerToken, log_softmax

HALF = (torch.bfloat16, torch.float16)


def gather_logp(
    hidden: Tensor,
    weight: Tensor,
    ids: Tensor,
    *,
    temperature: float = 1.0,
    chunk: int,
    top: int = 0,
    known: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Log-probabilities `[N, k + top]` of given ids `[N, k]` and of the `top` most likely ones.

    hidden: `[N, d]`; weight: `[vocabulary, d]`. Returns (log-probabilities, ids); those of the
    top are sorted, most likely first. known: the given ids' log-probabilities if they have been
    computed before; they are then returned with the gradient that they would have had.
    """
    grad = torch.is_grad_enabled()
    needs = (grad and hidden.requires_grad, grad and weight.requires_grad)
    logp, found = _GatherLogp.apply(  # type: ignore[no-untyped-call]
        hidden, weight, ids, temperature, chunk, top, known, needs
    )
    return logp, found


def mean_loss(
    hidden: Tensor,
    weight: Tensor,
    ids: Tensor,
    per_token: PerToken,
    mean: Mean,
    *,
    temperature: float = 1.0,
    chunk: int,
) -> tuple[Tensor, Tensor]:
    """`mean` of a per-token loss of the log-probabilities of `ids` `[N]`, and those `[N]`.

    Gradients flow through the scalar only.
    """
    grad = torch.is_grad_enabled()
    needs = (grad and hidden.requires_grad, grad and weight.requires_grad)
    total, logp = _MeanLoss.apply(  # type: ignore[no-untyped-call]
        hidden, weight, ids, per_token, mean, temperature, chunk, needs
    )
    return total, logp


def mean_divergence(
    student: tuple[Tensor, Tensor, float],
    teacher: tuple[Tensor, Tensor, float],
    tokens: tuple[Tensor, Tensor],
    beta: float,
    mean: Mean,
    temperature: float | None,
    chunk: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """`mean` of the per-token divergence over the vocabulary, as `losses.divergence` names it.

    student, teacher: (hidden `[N, d]`, weight `[vocabulary, d]`, scoring temperature); widths may
    differ. temperature: that of `losses.temper`, applied to both. mean: linear. Returns the
    scalar, and without gradient each side's log-probabilities `[N]` of its `tokens` `[N]`.
    """
    inputs = (student[0], student[1], teacher[0], teacher[1])
    grad = torch.is_grad_enabled()
    needs = tuple(grad and tensor.requires_grad for tensor in inputs)

    def per_token(logits: tuple[Tensor, Tensor]) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        ours, theirs = log_softmax(logits[0], student[2]), log_softmax(logits[1], teacher[2])
        plain = (ours, theirs)
        if temperature is not None:
            ours, theirs = temper(ours, temperature), temper(theirs, temperature)
        return divergence(ours, theirs, beta), plain

    total, ours, theirs = _MeanDivergence.apply(  # type: ignore[no-untyped-call]
        *inputs, *tokens, per_token, mean, chunk, needs
    )
    return total, ours, theirs


class _GatherLogp(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        ids: Tensor,
        temperature: float,
        chunk: int,
        top: int,
        known: Tensor | None,
        needs: tuple[bool, bool],
    ) -> tuple[Tensor, Tensor]:
        n, k = ids.shape
        dtype = torch.float32 if hidden.dtype in HALF else hidden.dtype
        # In half precision `expected` would lose what is left after it is subtracted again.
        makes_expected = needs == (True, False) and hidden.dtype not in HALF and known is None
        expected = torch.empty_like(hidden) if makes_expected else None
        found = torch.cat([ids, ids.new_empty(n, top)], dim=1) if top else ids.clone()
        logp = hidden.new_empty((n, k + top), dtype=dtype) if known is None else known.clone()
        if known is None:
            for part, rows in _log_probs(hidden, weight, temperature, chunk):
                if top:
                    found[part, k:] = rows.topk(top, dim=-1).indices
                torch.gather(rows, -1, found[part], out=logp[part])
                if expected is not None:
                    torch.mm(rows.exp_(), weight, out=expected[part])
        ctx.save_for_backward(hidden, weight, found, expected)
        ctx.options = temperature, chunk, needs
        ctx.mark_non_differentiable(found)
        return logp, found

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, _: Any) -> tuple[Tensor | None, ...]:
        hidden, weight, ids, expected = ctx.saved_tensors
        temperature, chunk, needs = ctx.options
        grad = grad / temperature
        total = grad.sum(-1, keepdim=True)
        if expected is not None:
            picked = torch.nn.functional.embedding_bag(
                ids, weight, per_sample_weights=grad, mode="sum"
            )
            return picked.addcmul_(expected, total, value=-1.0), None, *[None] * 6
        gradients = _Gradients(hidden, weight, *needs)
        for part, rows in _log_probs(hidden, weight, temperature, chunk):
            rows.exp_().mul_(-total[part]).scatter_add_(-1, ids[part], grad[part])
            gradients.add(part, rows)
        return *gradients.results(), *[None] * 6


class _MeanLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        ids: Tensor,
        per_token: PerToken,
        mean: Mean,
        temperature: float,
        chunk: int,
        needs: tuple[bool, bool],
    ) -> tuple[Tensor, Tensor]:
        n = len(hidden)
        dtype = torch.float32 if hidden.dtype in HALF else hidden.dtype
        logp = hidden.new_empty(n, dtype=dtype)
        shape = per_token(logp[:0], slice(0, 0)).shape[1:]
        values = hidden.new_empty((n, *shape), dtype=dtype)
        weights = _coefficients(mean, values)
        gradients = _Gradients(hidden, weight, *needs)
        for part, rows in _log_probs(hidden, weight, temperature, chunk):
            at = ids[part].unsqueeze(-1)
            logp[part] = rows.gather(-1, at).squeeze(-1)
            with torch.set_grad_enabled(gradients.wanted):
                leaf = logp[part].detach().requires_grad_(gradients.wanted)
                found = per_token(leaf, part)
            values[part] = found.detach()
            if gradients.wanted:
                (slope,) = torch.autograd.grad(found, leaf, weights[part])
                slope = slope.unsqueeze(-1) / temperature
                gradients.add(part, rows.exp_().mul_(-slope).scatter_add_(-1, at, slope))
        ctx.gradients = [gradients]
        ctx.mark_non_differentiable(logp)
        return _linear(mean, values, weights), logp

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, _: Any) -> tuple[Tensor | None, ...]:
        return *_taken(ctx, grad), *[None] * 6


class _MeanDivergence(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        student: Tensor,
        student_weight: Tensor,
        teacher: Tensor,
        teacher_weight: Tensor,
        student_tokens: Tensor,
        teacher_tokens: Tensor,
        per_token: Callable[..., tuple[Tensor, tuple[Tensor, Tensor]]],
        mean: Mean,
        chunk: int,
        needs: tuple[bool, bool, bool, bool],
    ) -> tuple[Tensor, Tensor, Tensor]:
        sides = ((student, student_weight), (teacher, teacher_weight))
        tokens = (student_tokens, teacher_tokens)
        dtype = torch.float32 if student.dtype in HALF else student.dtype
        values = student.new_empty(len(student), dtype=dtype)
        logp = [torch.empty_like(values) for _ in sides]
        weights = _coefficients(mean, values)
        gradients = [
            _Gradients(hidden, weight, *needs[2 * i : 2 * i + 2])
            for i, (hidden, weight) in enumerate(sides)
        ]
        for part in _parts(len(student), chunk):
            logits = tuple(hidden[part] @ weight.T for hidden, weight in sides)
            leaves = [i for i in range(2) if gradients[i].wanted]
            with torch.set_grad_enabled(bool(leaves)):
                for i in leaves:
                    logits[i].requires_grad_()
                found, plain = per_token(logits)
            values[part] = found.detach()
            for i in range(2):
                picked = plain[i].detach().gather(-1, tokens[i][part].unsqueeze(-1))
                logp[i][part] = picked.squeeze(-1)
            del plain
            if leaves:
                rows = torch.autograd.grad(found, [logits[i] for i in leaves], weights[part])
                del found, logits
                for i, row in zip(leaves, rows, strict=True):
                    gradients[i].add(part, row)
        ctx.gradients = gradients
        ctx.mark_non_differentiable(*logp)
        return _linear(mean, values, weights), logp[0], logp[1]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
        return *_taken(ctx, grad), *[None] * 6


class _Gradients:
    """Gradients of hidden states `[N, d]` and weight `[vocabulary, d]` from those of logits."""

    def __init__(self, hidden: Tensor, weight: Tensor, hidden_too: bool, weight_too: bool) -> None:
        self._inputs = hidden, weight
        self._hidden = torch.empty_like(hidden) if hidden_too else None
        # Chunks are many: sums of bfloat16 would lose the later ones.
        dtype = torch.float32 if weight.dtype in HALF else weight.dtype
        self._weight = torch.zeros_like(weight, dtype=dtype) if weight_too else None

    @property
    def wanted(self) -> bool:
        return self._hidden is not None or self._weight is not None

    def add(self, part: slice, logits: Tensor) -> None:
        """Take a chunk's gradient of the logits `[n, vocabulary]`."""
        hidden, weight = self._inputs
        rows = logits.to(hidden.dtype)
        if self._hidden is not None:
            torch.mm(rows, weight, out=self._hidden[part])
        if self._weight is None:
            return
        if self._weight.dtype == hidden.dtype:
            self._weight.addmm_(rows.T, hidden[part])
        else:
            self._weight += rows.T @ hidden[part]

    def results(self) -> tuple[Tensor | None, Tensor | None]:
        weight = None if self._weight is None else self._weight.to(self._inputs[1].dtype)
        return self._hidden, weight


def _log_probs(
    hidden: Tensor, weight: Tensor, temperature: float, chunk: int
) -> Iterator[tuple[slice, Tensor]]:
    """Chunks of log-distributions in a buffer that the caller may overwrite."""
    n, vocabulary = len(hidden), weight.shape[0]
    size = (min(n, chunk), vocabulary)
    projected = hidden.new_empty(size)
    half = hidden.dtype in HALF
    logits = hidden.new_empty(size, dtype=torch.float32) if half else projected
    result = torch.empty_like(logits)
    for part in _parts(n, chunk):
        width = part.stop - part.start
        torch.mm(hidden[part], weight.T, out=projected[:width])
        if half:
            logits[:width].copy_(projected[:width])
        if temperature != 1.0:
            logits[:width].div_(temperature)
        torch.log_softmax(logits[:width], -1, out=result[:width])
        yield part, result[:width]


def _parts(n: int, chunk: int) -> Iterator[slice]:
    return (slice(start, min(start + chunk, n)) for start in range(0, n, chunk))


def _taken(ctx: Any, grad: Tensor) -> list[Tensor | None]:
    """Gradients made in the forward pass, times that of the scalar; their memory is given up."""
    if ctx.gradients is None:
        raise RuntimeError("the gradient of a chunked loss can be taken once only")
    found = [g for side in ctx.gradients for g in side.results()]
    ctx.gradients = None
    if float(grad) != 1.0:
        found = [None if g is None else g.mul_(grad) for g in found]
    return found


def _linear(mean: Mean, values: Tensor, weights: Tensor) -> Tensor:
    """`mean` of the values, if it is the sum of them times its weights."""
    total = mean(values)
    shares = weights * values
    if abs(float(total) - float(shares.sum())) > 1e-4 * float(shares.abs().sum()) + 1e-30:
        raise ValueError("the mean of a chunked loss must be linear in the per-token values")
    return total


def _coefficients(mean: Mean, values: Tensor) -> Tensor:
    """What a linear map multiplies each of its inputs by, in their shape."""
    with torch.enable_grad():
        probe = torch.zeros_like(values, requires_grad=True)
        result = mean(probe)
        (found,) = torch.autograd.grad(result, probe)
    return found
