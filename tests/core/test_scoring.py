from __future__ import annotations

import numpy as np
import pytest
import torch
from small import KINDS, codec, full_logits, make_model, tokenizer, trajectory

from lopd_repro.errors import UserError
from lopd_repro.models.chat import Head
from lopd_repro.rollout.domain import Opening
from lopd_repro.rollout.heads import BuiltHead, LatentContext, build_head
from lopd_repro.training.scoring import sampled_tokens, score

PAD = int(tokenizer().pad_token_id)
TURNS = [
    [("ab", True), ("\nc", False), ("Task Completed", True)],
    [("d", True)],
    [("long " * 12, True), ("\n", False), ("x", True), ("yz", False)],
]
HEADS = [(5, 6, 7, 8), (9, 10), (11, 12, 13)]
CASES = [trajectory(f"t{i}", h, t) for i, (h, t) in enumerate(zip(HEADS, TURNS, strict=True))]
BUILT = [BuiltHead(Head(h)) for h in HEADS]


@pytest.mark.parametrize("kind", KINDS)
def test_scores_are_flat_over_the_supervised_tokens_in_order(kind: str) -> None:
    model = make_model(kind)
    model.requires_grad_(False)
    tokens, row = sampled_tokens(CASES)
    expected, counts = [], []
    for case in CASES:
        table = full_logits(model, [*case.head, *case.tail]).log_softmax(-1)
        places = [j for j, kept in enumerate(case.supervised) if kept]
        expected += [float(table[len(case.head) + j - 1, case.tail[j]]) for j in places]
        counts.append(len(places))
    scores = score(model, BUILT, CASES, PAD)
    assert len(scores) == len(tokens) == sum(counts)
    assert row.tolist() == [i for i, n in enumerate(counts) for _ in range(n)]
    np.testing.assert_allclose(scores.logp(tokens).numpy(), expected, atol=3e-5)
    top, ids = scores.topk(5)
    np.testing.assert_array_equal(top.numpy(), scores.logp_at(ids).numpy())
    assert scores.topk(9999)[0].shape == (len(tokens), len(tokenizer()))
    kept = row == 2
    torch.testing.assert_close(scores.select(kept).log_probs(), scores.log_probs()[kept])


@torch.no_grad()
def test_padding_and_neighbours_have_no_effect() -> None:
    model = make_model(dtype=torch.float64)
    together = score(model, BUILT, CASES, PAD).log_probs()
    alone = torch.cat(
        [score(model, [h], [c], PAD).log_probs() for h, c in zip(BUILT, CASES, strict=True)]
    )
    torch.testing.assert_close(together, alone, rtol=0, atol=1e-12)
    other_pad = score(model, BUILT, CASES, 17).log_probs()
    torch.testing.assert_close(together, other_pad, rtol=0, atol=1e-12)


@torch.no_grad()
def test_temperature_divides_the_logits() -> None:
    model = make_model(dtype=torch.float64)
    warm = score(model, BUILT[:1], CASES[:1], PAD, temperature=2.0)
    logits = full_logits(model, [*CASES[0].head, *CASES[0].tail])
    first = (logits[len(HEADS[0]) - 1] / 2.0).log_softmax(-1)
    torch.testing.assert_close(warm.log_probs()[0], first)


def test_half_precision_is_widened_before_the_softmax() -> None:
    scores = score(make_model(dtype=torch.bfloat16), BUILT, CASES, PAD)
    assert scores.log_probs().dtype == torch.float32


def test_nothing_supervised_gives_empty_scores() -> None:
    case = trajectory("t", (1, 2), [("ab", False)])
    scores = score(make_model(), [BuiltHead(Head((1, 2)))], [case], PAD)
    assert len(scores) == 0 and scores.log_probs().shape == (0, len(tokenizer()))


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_known_embeddings_in_the_span_score_like_their_tokens(kind: str) -> None:
    model = make_model(kind)
    table = model.get_input_embeddings().weight
    hidden = []
    for head, (start, stop) in zip(HEADS, [(1, 3), (0, 2), (2, 3)], strict=True):
        ids = list(head)
        ids[start:stop] = [PAD] * (stop - start)
        hidden.append(BuiltHead(Head(tuple(ids), (start, stop)), table[list(head[start:stop])]))
    plain = score(model, BUILT, CASES, PAD).log_probs()
    torch.testing.assert_close(
        score(model, hidden, CASES, PAD).log_probs(), plain, atol=1e-5, rtol=0
    )
    mixed = score(model, [BUILT[0], hidden[1], BUILT[2]], CASES, PAD).log_probs()
    torch.testing.assert_close(mixed, plain, atol=1e-5, rtol=0)


def test_gradients_reach_the_latents_and_are_right() -> None:
    model, coder = make_model(dtype=torch.float64), codec()
    model.requires_grad_(False)
    torch.manual_seed(1)
    latents = torch.randn(2, 32, dtype=torch.float64, requires_grad=True)
    tokens, _ = sampled_tokens(CASES[:1])

    def loss(values: torch.Tensor) -> torch.Tensor:
        built = build_head(coder, Opening("", "tea"), LatentContext(values, "<", ">"))
        return score(model, [built], CASES[:1], PAD).logp(tokens).sum()

    torch.autograd.backward(loss(latents))
    assert latents.grad is not None
    # The models' norms run in float32, so the step cannot be tiny.
    with torch.no_grad():
        for place in ((0, 0), (0, 9), (1, 31)):
            shift = torch.zeros_like(latents)
            shift[place] = 2e-3
            slope = (loss(latents + shift) - loss(latents - shift)) / 4e-3
            assert float(latents.grad[place]) == pytest.approx(float(slope), rel=5e-3)
    assert all(parameter.grad is None for parameter in model.parameters())


def test_an_output_projection_with_a_bias_is_refused() -> None:
    model = make_model("llama")
    model.lm_head = torch.nn.Linear(32, len(tokenizer()))
    with pytest.raises(UserError, match="bias"):
        score(model, BUILT, CASES, PAD)
