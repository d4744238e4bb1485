from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from lopd_repro.errors import UserError
from lopd_repro.training.chunked_head import gather_logp
from lopd_repro.training.chunked_scores import ChunkedScores, token_scores
from lopd_repro.training.losses import aggregate, captured_mass, reverse_kl_topk_tail
from lopd_repro.training.token_scores import TokenScores

N, D, V = 7, 5, 23
SIZES = (1, 2, 3, N, 50)


def drawn(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)


def ids(*shape: int, seed: int = 0) -> Tensor:
    return torch.randint(V, shape, generator=torch.Generator().manual_seed(seed))


class Case:
    """Student and teacher of different widths, fresh leaves for every form."""

    def __init__(
        self, chunk: int, temperature: float = 1.0, dtype: torch.dtype = torch.float64
    ) -> None:
        self.hidden = drawn(N, D, seed=1, dtype=dtype).requires_grad_()
        self.weight = drawn(V, D, seed=2, dtype=dtype).requires_grad_()
        self.teacher_hidden = drawn(N, D + 1, seed=3, dtype=dtype).requires_grad_()
        self.teacher_weight = drawn(V, D + 1, seed=4, dtype=dtype)
        self.tokens = ids(N, seed=5)
        self.student = token_scores(self.hidden, self.weight, temperature, 3, self.tokens, chunk)
        self.teacher = token_scores(
            self.teacher_hidden, self.teacher_weight, temperature, 3, self.tokens, chunk
        )

    def leaves(self) -> list[Tensor]:
        return [self.hidden, self.weight, self.teacher_hidden]

    def results(self, loss: Callable[[Case], Tensor]) -> list[Tensor]:
        """Loss and gradients; zeros where there is none."""
        value = loss(self)
        found = torch.autograd.grad(value, self.leaves(), allow_unused=True)
        zeros = zip(found, self.leaves(), strict=True)
        return [value.detach(), *(torch.zeros_like(x) if g is None else g for g, x in zeros)]


WEIGHTS = drawn(N, seed=6)
ROW = torch.tensor([0, 0, 0, 1, 1, 3, 3])


def mean(values: Tensor) -> Tensor:
    return aggregate(values * WEIGHTS.to(values.dtype), ROW, 4, "seq_mean_token_mean")


def sampled(c: Case) -> Tensor:
    return mean(c.student.logp(c.tokens).exp())


def other_ids(c: Case) -> Tensor:
    return mean(c.student.logp(ids(N, seed=9)).square()) + mean(c.student.logp(c.tokens))


def support(c: Case) -> Tensor:
    """Teacher's top-M with tail, both sides trained, and sampled tokens of both: as in LOPD."""
    top, found = c.teacher.topk(4)
    kl = reverse_kl_topk_tail(c.student.logp_at(found), top)
    return mean(kl) + mean(c.teacher.logp(c.tokens).exp()) + mean(c.student.logp(c.tokens) ** 2)


def own_support(c: Case) -> Tensor:
    """Student's top-M, read at the same ids, as in SDPO."""
    _, found = c.student.topk(4)
    return mean(reverse_kl_topk_tail(c.student.logp_at(found), c.teacher.logp_at(found)))


def doubled_ids(c: Case) -> Tensor:
    """An id twice in a row, and the sampled one among them."""
    found = torch.cat([c.tokens[:, None], c.tokens[:, None], ids(N, 2, seed=8)], dim=1)
    logp = c.student.logp_at(found)
    return mean((logp * drawn(N, 4, seed=7, dtype=logp.dtype)).sum(-1).exp())


def full(beta: float, temperature: float | None = None) -> Callable[[Case], Tensor]:
    def loss(c: Case) -> Tensor:
        value = c.student.mean_divergence(c.teacher, beta, mean, temperature)
        return 3.0 * value + mean(c.student.logp(c.tokens).exp() + c.teacher.logp(c.tokens).exp())

    return loss


def of_tokens(c: Case) -> Tensor:
    """Two losses per token with means of their own (Skill-SD), and what is kept of the pass."""
    shift = drawn(N, seed=7, dtype=c.hidden.dtype)

    def losses(logp: Tensor, part: slice) -> Tensor:
        return torch.stack([logp.exp(), (logp - shift[part]).square()], dim=-1)

    def both(values: Tensor) -> Tensor:
        return mean(values[:, 0]) - 0.5 * aggregate(values[2:, 1], ROW[2:], 4, "token_mean")

    value, logp = c.student.mean_loss(c.tokens, losses, both)
    assert not logp.requires_grad
    return 2.0 * value + mean(c.student.logp(c.tokens) * logp) + mean(c.teacher.logp(c.tokens))


LOSSES: dict[str, Callable[[Case], Tensor]] = {
    "sampled": sampled,
    "other_ids": other_ids,
    "support": support,
    "own_support": own_support,
    "of_tokens": of_tokens,
    "doubled_ids": doubled_ids,
    "forward_kl": full(0.0),
    "reverse_kl": full(1.0),
    "jsd": full(0.4),
    "tempered": full(0.0, 1.1),
}


@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("name", LOSSES)
def test_values_and_gradients_are_those_of_the_dense_form(name: str, temperature: float) -> None:
    dense = Case(0, temperature)
    assert type(dense.student) is TokenScores
    expected = dense.results(LOSSES[name])
    assert all(float(g.abs().max()) > 1e-6 for g in expected[:3])
    for chunk in SIZES:
        case = Case(chunk, temperature)
        assert isinstance(case.student, ChunkedScores)
        for found, wanted in zip(case.results(LOSSES[name]), expected, strict=True):
            torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("chunk", [1, 3, 50])
def test_gradients_are_the_slopes_of_the_values(chunk: int) -> None:
    case = Case(chunk)
    found, weight = ids(N, 3, seed=8), case.weight.detach()

    def of_hidden(hidden: Tensor, trained: Tensor) -> Tensor:
        return gather_logp(hidden, trained, found, temperature=0.7, chunk=chunk)[0]

    assert torch.autograd.gradcheck(of_hidden, (case.hidden, case.weight))
    assert torch.autograd.gradcheck(lambda h: of_hidden(h, weight), (case.hidden,))


def test_the_same_support_is_chosen() -> None:
    dense, chunked = Case(0), Case(3)
    for k in (1, 6, V + 5):
        values, found = chunked.teacher.topk(k)
        wanted, wanted_ids = dense.teacher.topk(k)
        assert torch.equal(found, wanted_ids)
        torch.testing.assert_close(values, wanted)
        torch.testing.assert_close(captured_mass(values), captured_mass(wanted))


def test_a_selection_of_positions() -> None:
    mask = torch.tensor([True, False, True, True, False, True, True])

    def chosen(c: Case) -> Tensor:
        class Part:
            student, teacher = c.student.select(mask), c.teacher.select(mask)
            tokens = c.tokens[mask]

        inner = Part()
        return mean_of(inner.student.logp(inner.tokens)) + inner.student.mean_divergence(
            inner.teacher, 0.0, mean_of
        )

    def mean_of(values: Tensor) -> Tensor:
        return aggregate(values, ROW[mask], 4, "token_mean")

    expected = Case(0).results(chosen)
    for found, wanted in zip(Case(2).results(chosen), expected, strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-13)
    case = Case(2)
    assert case.student.select(torch.ones(N, dtype=torch.bool)) is case.student


@pytest.mark.parametrize("chunk", [0, 1, 4])
def test_no_positions(chunk: int) -> None:
    hidden = torch.zeros(0, D, requires_grad=True)
    weight = drawn(V, D, dtype=torch.float32).requires_grad_()
    none = torch.zeros(0, dtype=torch.long)
    scores = token_scores(hidden, weight, 1.0, 0, none, chunk)
    values, found = scores.topk(3)
    assert values.shape == found.shape == (0, 3) and scores.logp(none).shape == (0,)
    assert scores.logp_at(none[:, None]).shape == (0, 1)
    total = scores.mean_divergence(scores.without_head_gradient(), 0.0, torch.sum)
    total = total + scores.mean_loss(none, lambda logp, part: logp, torch.sum)[0]
    (values.sum() + scores.logp(none).sum() + total).backward()
    assert weight.grad is not None and not weight.grad.any()


class Projections:
    """Counts rows projected onto the vocabulary, by watching matrix products."""

    def __init__(self) -> None:
        self.rows = 0

    def __enter__(self) -> Projections:
        from torch.utils._python_dispatch import TorchDispatchMode

        counter = self

        class Watch(TorchDispatchMode):
            def __torch_dispatch__(
                self, func: Any, types: Any, args: Any = (), kwargs: Any = None
            ) -> Any:
                result = func(*args, **(kwargs or {}))
                if func.overloadpacket is torch.ops.aten.mm and result.shape[1] == V:
                    counter.rows += result.shape[0]
                return result

        self._watch = Watch()
        self._watch.__enter__()
        return self

    def __exit__(self, *details: Any) -> None:
        self._watch.__exit__(*details)


@pytest.mark.parametrize(
    ("name", "passes"),
    # Rows projected, in multiples of N. Sampled tokens: forward and backward. Support: two for the
    # student, one for the teacher, whose head is not trained. Own support: the same. Forward KL:
    # one for each side, and one more to train the sampled tokens of each.
    [("sampled", 2), ("support", 3), ("own_support", 3), ("forward_kl", 4)],
)
def test_the_vocabulary_is_passed_over_as_rarely_as_can_be(name: str, passes: int) -> None:
    case = Case(2)
    with Projections() as count:
        case.results(LOSSES[name])
    assert count.rows == passes * N


def test_no_tensor_is_larger_than_a_chunk() -> None:
    from torch.utils._python_dispatch import TorchDispatchMode

    largest: list[int] = []

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            result = func(*args, **(kwargs or {}))
            for one in result if isinstance(result, tuple | list) else [result]:
                if isinstance(one, Tensor) and one.dim() == 2 and one.shape[1] == V:
                    largest.append(one.shape[0])
            return result

    for loss in LOSSES.values():
        case = Case(2)
        with Watch():
            case.results(loss)
    # [d, V] is the transposed weight, never more than d + 1 rows.
    assert {n for n in largest if n not in (D, D + 1)} <= {1, 2}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", LOSSES)
def test_lower_precision_is_as_close_to_float64_as_the_dense_form(
    name: str, dtype: torch.dtype
) -> None:
    exact = Case(0).results(LOSSES[name])
    dense, chunked = (Case(chunk, dtype=dtype).results(LOSSES[name]) for chunk in (0, 3))
    assert dense[0].dtype == chunked[0].dtype == torch.float32
    # Log-probabilities are about -10: their float32 squares are known to a hundred units.
    unit, slack = float(torch.finfo(dtype).eps), 100 if dtype == torch.float32 else 2
    for wanted, whole, parts in zip(exact, dense, chunked, strict=True):
        assert parts.dtype == whole.dtype
        size = max(1.0, float(wanted.abs().max()))
        error, allowed = ((x.double() - wanted).abs().max() / size for x in (parts, whole))
        assert float(error) < 2 * float(allowed) + slack * unit


def test_gradients_of_the_head_do_not_drown_in_many_chunks() -> None:
    # 400 equal rows: the sum of bfloat16 numbers would stop growing at 256 times one of them.
    hidden = torch.ones(400, 1, dtype=torch.bfloat16)
    weight = torch.zeros(2, 1, dtype=torch.bfloat16).requires_grad_()
    tokens = torch.zeros(400, dtype=torch.long)
    token_scores(hidden, weight, 1.0, 0, tokens, 1).logp(tokens).sum().backward()
    assert weight.grad is not None and weight.grad[0].item() == 200.0


def test_torch_agrees_on_sampled_tokens() -> None:
    case, other = Case(3), Case(0)
    options = torch.nn.LinearCrossEntropyOptions(batch_chunk_size=3, chunking_method=None)
    theirs = -torch.nn.functional.linear_cross_entropy(
        other.hidden, other.weight, other.tokens, reduction="none", options=options
    )
    ours = case.student.logp(case.tokens)
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-13)
    mean(ours).backward()
    mean(theirs).backward()
    torch.testing.assert_close(case.hidden.grad, other.hidden.grad, rtol=1e-12, atol=1e-13)
    torch.testing.assert_close(case.weight.grad, other.weight.grad, rtol=1e-12, atol=1e-13)


def test_no_gradient_of_a_head_that_is_not_to_be_trained() -> None:
    case = Case(2)
    case.student.without_head_gradient().logp(case.tokens).sum().backward()
    assert case.weight.grad is None and case.hidden.grad is not None
    with torch.no_grad():
        assert not Case(2).student.logp(case.tokens).requires_grad


def test_misuse_is_named() -> None:
    case = Case(2)
    with pytest.raises(UserError, match=r"optimiser\.head_chunk_tokens: found 2"):
        case.student.log_probs()
    with pytest.raises(ValueError, match="must be linear"):
        case.student.mean_divergence(case.teacher, 0.0, lambda values: values.square().sum())
    with pytest.raises(ValueError, match="must be linear"):
        case.student.mean_loss(case.tokens, lambda logp, part: logp, lambda v: v.exp().sum())
    for value in (
        case.student.mean_divergence(case.teacher, 0.0, torch.sum),
        case.student.mean_loss(case.tokens, lambda logp, part: logp.exp(), torch.sum)[0],
    ):
        value.backward(retain_graph=True)
        with pytest.raises(RuntimeError, match="once only"):
            value.backward()
