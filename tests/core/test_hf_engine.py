from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from small import (
    KINDS,
    ScriptDomain,
    ScriptedEngine,
    codec,
    end_ids,
    full_logits,
    make_model,
    tokenizer,
)

from lopd_repro.errors import UserError
from lopd_repro.rollout.engine import Prompt, Reply, SamplingParams, Turn
from lopd_repro.rollout.episodes import EpisodeRequest, collect
from lopd_repro.rollout.hf_engine import HFEngine
from lopd_repro.rollout.sampling import draw, filtered_log_probs, uniforms_for

PAD = int(tokenizer().pad_token_id)
GLUE = [5, 9, 33]


def prompts(n: int, seed: int = 0) -> list[Prompt]:
    """Heads of different lengths, 4 to 4 + n."""
    generator = torch.Generator().manual_seed(seed)
    return [
        Prompt(tuple(torch.randint(4, 300, (4 + i,), generator=generator).tolist()), 100 + i)
        for i in range(n)
    ]


def play(
    engine: HFEngine,
    given: list[Prompt],
    sampling: SamplingParams,
    n_turns: Callable[[int], int] = lambda _: 2,
    glue: list[int] = GLUE,
) -> list[list[Turn]]:
    """Run episodes; prompt i has `n_turns(i)` turns unless its budget ends it sooner."""
    turns: list[list[Turn]] = [[] for _ in given]
    tails = [0] * len(given)

    def on_turns(ended: list[tuple[int, Turn]]) -> list[Reply]:
        replies: list[Reply] = []
        for index, turn in ended:
            turns[index].append(turn)
            tails[index] += len(turn.ids)
            over = turn.finish == "budget" or len(turns[index]) >= n_turns(index)
            over = over or tails[index] + len(glue) >= sampling.max_tail_tokens
            replies.append(None if over else glue)
            tails[index] += 0 if over else len(glue)
        return replies

    engine.run(given, sampling, on_turns)
    return turns


def positions(prompt: Prompt, turns: list[Turn]) -> tuple[list[int], list[int]]:
    """All ids of an episode, and the places of the sampled ones among them."""
    ids = list(prompt.ids)
    sampled: list[int] = []
    for n, turn in enumerate(turns):
        ids += GLUE if n else []
        sampled += range(len(ids), len(ids) + len(turn.ids))
        ids += turn.ids
    return ids, sampled


@pytest.mark.parametrize("kind", KINDS)
def test_greedy_turns_are_those_of_transformers_generate(kind: str) -> None:
    model, ends = make_model(kind), end_ids(60)
    sampling = SamplingParams(temperature=0, max_turn_tokens=7, max_tail_tokens=60)
    given = prompts(5)
    turns = play(HFEngine(model, ends, PAD), given, sampling, n_turns=lambda _: 3)
    finishes = set()
    for prompt, own in zip(given, turns, strict=True):
        ids = list(prompt.ids)
        for n, turn in enumerate(own):
            ids += GLUE if n else []
            expected = model.generate(
                torch.tensor([ids]),
                attention_mask=torch.ones(1, len(ids), dtype=torch.long),
                do_sample=False,
                max_new_tokens=7,
                eos_token_id=list(ends),
                pad_token_id=PAD,
            )[0, len(ids) :].tolist()
            assert turn.ids == expected
            assert turn.finish == ("eos" if expected[-1] in ends else "length")
            assert turn.logp == [0.0] * len(expected)
            finishes.add(turn.finish)
            ids += expected
    assert len(turns[0]) == 3 and finishes >= {"length"}


def reference_filter(logits: torch.Tensor, params: SamplingParams) -> np.ndarray[Any, Any]:
    """Probabilities after temperature, top-k, top-p: one token at a time, in float64."""
    p = np.exp(logits.double().numpy() / params.temperature)
    p /= p.sum()
    order = np.argsort(-p, kind="stable")
    kept, mass = [], 0.0
    limit = params.top_k or len(p)
    total = p[order[:limit]].sum()
    for i in order[:limit]:
        kept.append(i)
        mass += p[i] / total
        if params.top_p < 1 and mass >= params.top_p:
            break
    out = np.zeros_like(p)
    out[kept] = p[kept] / p[kept].sum()
    return out


@pytest.mark.parametrize("kind", KINDS)
def test_log_probs_are_those_of_a_fresh_forward_pass(kind: str) -> None:
    model = make_model(kind)
    sampling = SamplingParams(0.8, 0.9, 12, max_turn_tokens=6, max_tail_tokens=40)
    given = prompts(4)
    for prompt, turns in zip(
        given, play(HFEngine(model, end_ids(40), PAD), given, sampling), strict=True
    ):
        ids, sampled = positions(prompt, turns)
        logits = full_logits(model, ids)
        logp = [p for turn in turns for p in turn.logp]
        raw = [p for turn in turns for p in turn.raw_logp]
        for place, own, own_raw in zip(sampled, logp, raw, strict=True):
            before, token = logits[place - 1], ids[place]
            assert own_raw == pytest.approx(float(before.log_softmax(-1)[token]), abs=2e-5)
            assert own == pytest.approx(
                math.log(reference_filter(before, sampling)[token]), abs=1e-4
            )


@pytest.mark.parametrize("kind", ["qwen3", "olmo3"])
def test_an_episode_does_not_depend_on_its_batch(kind: str) -> None:
    model, given = make_model(kind), prompts(9)
    sampling = SamplingParams(1.3, max_turn_tokens=9, max_tail_tokens=48)

    def turns_of(index: int) -> int:
        return 1 + index % 4  # rows end at different times, so that the batch shrinks

    whole = play(HFEngine(model, end_ids(30), PAD, 64), given, sampling, turns_of)
    assert len({sum(len(t.ids) for t in turns) for turns in whole}) > 4
    for size in (1, 2, 4):
        parts = play(HFEngine(model, end_ids(30), PAD, size), given, sampling, turns_of)
        for one, other in zip(whole, parts, strict=True):
            assert [t.ids for t in one] == [t.ids for t in other]
            assert [t.finish for t in one] == [t.finish for t in other]
            for left, right in zip(one, other, strict=True):
                np.testing.assert_allclose(left.raw_logp, right.raw_logp, atol=3e-5)
    order = [4, 0, 8, 2]
    some = play(
        HFEngine(model, end_ids(30), PAD),
        [given[i] for i in order],
        sampling,
        lambda place: turns_of(order[place]),
    )
    assert [[t.ids for t in turns] for turns in some] == [[t.ids for t in whole[i]] for i in order]


FILTERS = [
    SamplingParams(),
    SamplingParams(temperature=0.5),
    SamplingParams(top_k=5),
    SamplingParams(top_p=0.7),
    SamplingParams(1.4, 0.8, 9),
]


@pytest.mark.parametrize("params", FILTERS)
def test_draws_follow_the_exact_distribution(params: SamplingParams) -> None:
    torch.manual_seed(3)
    logits, n = torch.randn(1, 40) * 2, 40_000
    expected = reference_filter(logits[0], params)
    np.testing.assert_allclose(
        filtered_log_probs(logits, params).exp()[0].numpy(), expected, atol=1e-6
    )
    ids, logp, raw = draw(logits.expand(n, -1), params, uniforms_for(7, n))
    counts = np.bincount(ids.numpy(), minlength=40)
    assert not counts[expected == 0].any()
    # Each count is binomial: 4.5 standard deviations, over 40 tokens, fail by chance in 3e-4.
    spread = np.sqrt(n * expected * (1 - expected))
    assert (np.abs(counts - n * expected) <= 4.5 * spread + 1).all()
    np.testing.assert_allclose(logp[:50].exp().numpy(), expected[ids[:50].numpy()], rtol=1e-4)
    np.testing.assert_allclose(raw[:50].numpy(), logits[0].log_softmax(-1)[ids[:50]], atol=1e-6)


def test_the_engine_draws_from_the_models_distribution() -> None:
    model, n = make_model(), 3000
    head = prompts(1)[0].ids
    sampling = SamplingParams(top_k=6, max_turn_tokens=1, max_tail_tokens=4)
    turns = play(
        HFEngine(model, end_ids(), PAD, 1000),
        [Prompt(head, seed) for seed in range(n)],
        sampling,
        lambda _: 1,
    )
    counts = np.bincount([turn[0].ids[0] for turn in turns], minlength=len(tokenizer()))
    expected = reference_filter(full_logits(model, head)[-1], sampling)
    spread = np.sqrt(n * expected * (1 - expected))
    assert (np.abs(counts - n * expected) <= 4.5 * spread + 1).all()


def test_extreme_uniforms_stay_inside_the_support() -> None:
    logits = torch.tensor([[-5.0, 3.0, 2.0, -9.0]])
    for u, expected in ((0.0, 1), (1 - 2**-24, 2)):
        ids, _, _ = draw(logits, SamplingParams(top_k=2), torch.tensor([u]))
        assert ids.item() == expected


def test_top_k_keeps_ties_and_top_p_keeps_at_least_one() -> None:
    tied = torch.tensor([[1.0, 1.0, 1.0, 0.0]])
    assert torch.isfinite(filtered_log_probs(tied, SamplingParams(top_k=2))).sum() == 3
    assert torch.isfinite(filtered_log_probs(tied, SamplingParams(top_p=1e-9))).sum() == 1
    assert torch.isfinite(filtered_log_probs(tied, SamplingParams(top_k=99))).all()


def test_how_turns_finish() -> None:
    model, given = make_model(), prompts(12)
    sampling = SamplingParams(1.5, max_turn_tokens=6, max_tail_tokens=20)
    every = play(HFEngine(model, end_ids(40), PAD), given, sampling, lambda _: 99)
    flat = [turn for turns in every for turn in turns]
    assert {turn.finish for turn in flat} == {"eos", "length", "budget"}
    for turns in every:
        for turn in turns:
            ended = turn.ids[-1] in end_ids(40)
            assert ended == (turn.finish == "eos")
            assert not any(i in end_ids(40) for i in turn.ids[:-1])
            assert (len(turn.ids) == 6) or turn.finish != "length"
        used = sum(len(t.ids) for t in turns) + len(GLUE) * (len(turns) - 1)
        # An episode goes on until its budget is spent or the next glue would not fit.
        assert used == 20 if turns[-1].finish == "budget" else 20 - len(GLUE) <= used < 20


def test_the_budget_counts_glue_and_cannot_be_overrun() -> None:
    engine = HFEngine(make_model(), end_ids(), PAD)
    given = prompts(1)
    sampling = SamplingParams(0, max_turn_tokens=4, max_tail_tokens=9)
    (turns,) = play(engine, given, sampling, lambda _: 99)
    # 4 sampled, 3 glue, 2 sampled: the tail is full
    assert [(len(t.ids), t.finish) for t in turns] == [(4, "length"), (2, "budget")]
    for reply in ([1] * 5, [1] * 6):
        with pytest.raises(UserError, match="token budget is spent"):
            engine.run(given, sampling, lambda ended, r=reply: [r for _ in ended])  # type: ignore[misc]


@pytest.mark.parametrize("kind", KINDS)
def test_known_embeddings_in_the_span_act_like_their_tokens(kind: str) -> None:
    model, given = make_model(kind), prompts(4)
    table = model.get_input_embeddings().weight.detach()
    spans = [(1, 3), (0, 4), (2, 6), (3, 4)]
    hidden = []
    for prompt, (start, stop) in zip(given, spans, strict=True):
        ids = list(prompt.ids)
        known = table[torch.tensor(ids[start:stop])]
        ids[start:stop] = [PAD] * (stop - start)
        hidden.append(Prompt(tuple(ids), prompt.seed, (start, stop), known))
    sampling = SamplingParams(0, max_turn_tokens=8, max_tail_tokens=30)
    engine = HFEngine(model, end_ids(40), PAD)
    plain = play(engine, given, sampling)
    latent = play(engine, hidden, sampling)
    mixed = play(engine, [given[0], hidden[1], given[2], hidden[3]], sampling)
    for one, other, third in zip(plain, latent, mixed, strict=True):
        assert [t.ids for t in one] == [t.ids for t in other] == [t.ids for t in third]
        for left, right in zip(one, other, strict=True):
            np.testing.assert_allclose(left.raw_logp, right.raw_logp, atol=1e-5)
    other_text = [Prompt(p.ids, p.seed, p.span, table[: p.span[1] - p.span[0]]) for p in hidden]  # type: ignore[index]
    assert [t[0].raw_logp for t in play(engine, other_text, sampling)] != [
        t[0].raw_logp for t in plain
    ]


def test_what_the_engine_refuses_and_leaves_alone() -> None:
    model = make_model("olmo3")
    engine = HFEngine(model, end_ids(), PAD)
    with pytest.raises(UserError, match="attention window of 256"):
        engine.run(prompts(1), SamplingParams(max_tail_tokens=253), lambda _: [])
    model.train()
    play(engine, prompts(2), SamplingParams(max_turn_tokens=2, max_tail_tokens=9))
    assert model.training
    eager = make_model()
    eager.set_attn_implementation("eager")
    with pytest.raises(UserError, match="attention implementation 'eager'"):
        HFEngine(eager, end_ids(), PAD)
    for bad in ({"temperature": -1.0}, {"top_p": 0.0}, {"top_k": -1}, {"max_turn_tokens": 0}):
        with pytest.raises(UserError, match="sampling"):
            SamplingParams(**bad)


def test_new_weights_are_sampled_from_at_once() -> None:
    first, second = make_model(seed=0), make_model(seed=1)
    engine = HFEngine(first, end_ids(), PAD)
    sampling = SamplingParams(0, max_turn_tokens=6, max_tail_tokens=8)
    before = play(engine, prompts(2), sampling, lambda _: 1)
    engine.sync_weights(second)
    after = play(engine, prompts(2), sampling, lambda _: 1)
    expected = play(HFEngine(second, end_ids(), PAD), prompts(2), sampling, lambda _: 1)
    assert after == expected and after != before


def test_an_episode_out_of_tokens_is_cut_and_keeps_the_call_that_ran() -> None:
    coder = codec()
    end = coder.eos_ids[0]
    domain = ScriptDomain(n_turns=9, answer="word " * 30)
    engine = ScriptedEngine(lambda _, n: ([20, 21, end], "eos"))
    sampling = SamplingParams(max_turn_tokens=9, max_tail_tokens=30)
    (done,) = collect(engine, coder, domain, [EpisodeRequest("a", 0, 1, 1)], sampling)
    assert domain.was_cut == [0] and done.status == "step_cap" and done.reward == 0.0
    assert done.tail == [20, 21, end] and len(done.records) == 1
    assert done.records[0]["executed"] is True and done.records[0]["tokens"] == 3
    spent = ScriptedEngine(lambda _, n: ([20] * 30, "budget"))
    (cut,) = collect(spent, coder, domain, [EpisodeRequest("a", 0, 1, 1)], sampling)
    assert cut.records == [{"tokens": 30}] and not domain.seen[1]


def test_trajectories_come_back_in_the_order_of_their_requests() -> None:
    model = make_model()
    domain, coder = ScriptDomain(), codec(60)
    requests = [EpisodeRequest(f"t{i}", i // 2, 50 + i, i) for i in range(6)]
    sampling = SamplingParams(1.2, max_turn_tokens=5, max_tail_tokens=60)
    engine = HFEngine(model, coder.eos_ids, coder.pad_id, 3)
    done = collect(engine, coder, domain, requests, sampling)
    assert [(t.task_id, t.group) for t in done] == [(r.task_id, r.group) for r in requests]
    for one in done:
        assert len(one.tail) == len(one.supervised) == len(one.logp) == len(one.raw_logp)
        logits = full_logits(model, [*one.head, *one.tail]).log_softmax(-1)
        for j, (token, kept) in enumerate(zip(one.tail, one.supervised, strict=True)):
            own = float(logits[len(one.head) + j - 1, token]) if kept else 0.0
            assert one.raw_logp[j] == pytest.approx(own, abs=2e-5)
    assert collect(engine, coder, domain, [], sampling) == []
