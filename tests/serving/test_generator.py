"""The server's generator against transformers, the rollout engine, and itself in other orders."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from small import KINDS, end_ids, make_model, tokenizer

from lopd_repro.errors import UserError
from lopd_repro.rollout.engine import Prompt, SamplingParams, Turn
from lopd_repro.rollout.hf_engine import HFEngine
from lopd_repro.serving.generator import Answer, Generation, Generator
from lopd_repro.serving.prefixes import PrefixStore

PAD = int(tokenizer().pad_token_id)
PREFIX_BYTES = 50_000_000
GREEDY = SamplingParams(0)


def words(n: int, seed: int) -> tuple[int, ...]:
    generator = torch.Generator().manual_seed(seed)
    return tuple(torch.randint(4, 300, (n,), generator=generator).tolist())


def conversations(seed: int = 0) -> list[Generation]:
    """40 requests: ten heads that four prompts each go on from, at different temperatures."""
    jobs = []
    for head in range(10):
        ids = words(20 + 7 * head, seed + head)
        for turn in range(4):
            sampling = (GREEDY, SamplingParams(1.2), SamplingParams(0.8, 0.9, 20))[turn % 3]
            jobs.append(Generation(ids, 6 + 3 * turn, sampling, 100 * head + turn))
            ids += words(9 + turn, seed + 50 + 4 * head + turn)
    return jobs


def play(generator: Generator, jobs: list[Generation], rng: random.Random) -> dict[int, Answer]:
    """Let jobs join at random moments; answers by the job's place in `jobs`."""
    place = {id(job): i for i, job in enumerate(jobs)}
    waiting, answers = list(jobs), {}
    while waiting or generator.live:
        n = min(rng.randint(0, 5), generator.room, len(waiting))
        done = []
        if n:
            done += generator.join(waiting[:n])
            del waiting[:n]
        if generator.live:
            done += generator.step()
        answers.update({place[id(job)]: answer for job, answer in done})
    return answers


def by_transformers(model: Any, job: Generation, ends: tuple[int, ...]) -> list[int]:
    made = model.generate(
        torch.tensor([job.ids]),
        attention_mask=torch.ones(1, len(job.ids), dtype=torch.long),
        do_sample=False,
        max_new_tokens=job.max_tokens,
        eos_token_id=list(ends),
        pad_token_id=PAD,
    )
    return list(made[0, len(job.ids) :].tolist())


@pytest.mark.parametrize("kind", KINDS)
def test_greedy_answers_are_those_of_transformers_generate(kind: str) -> None:
    model, ends = make_model(kind, dtype=torch.float64), end_ids(30)
    # 300 tokens go beyond the sliding window of 256 that olmo3's layers have here.
    lengths = (5, 40, 40, 250, 300, 17)
    jobs = [Generation(words(n, i), 12, GREEDY, 0) for i, n in enumerate(lengths)]
    answers = play(Generator(model, ends, 4, PREFIX_BYTES), jobs, random.Random(0))
    for i, job in enumerate(jobs):
        expected = by_transformers(model, job, ends)
        assert answers[i].ids == expected
        assert answers[i].finish == ("end" if expected[-1] in ends else "length")


def test_the_sliding_window_matters_in_that_test() -> None:
    model = make_model("olmo3", dtype=torch.float64)
    generator = Generator(model, end_ids(), 1)
    job = Generation(words(300, 4), 12, GREEDY, 0)
    ((_, windowed),) = run_one(generator, job)
    generator = Generator(model, end_ids(), 1)
    generator._window = None
    ((_, unlimited),) = run_one(generator, job)
    assert windowed.ids != unlimited.ids


def run_one(generator: Generator, job: Generation) -> list[tuple[Generation, Answer]]:
    done = generator.join([job])
    while generator.live:
        done += generator.step()
    return done


@pytest.mark.parametrize("kind", ["qwen3", "olmo3"])
def test_answers_do_not_depend_on_order_batch_or_known_prefixes(kind: str) -> None:
    model, jobs = make_model(kind, dtype=torch.float64), conversations()
    alone = {}
    for i, job in enumerate(jobs):
        ((_, alone[i]),) = run_one(Generator(model, end_ids(20), 1), job)
    assert {answer.finish for answer in alone.values()} == {"end", "length"}
    assert len({tuple(answer.ids) for answer in alone.values()}) > 30
    for size, memory, seed in ((40, 0, 0), (7, PREFIX_BYTES, 1), (16, 60_000, 2)):
        rng = random.Random(seed)
        order = rng.sample(range(len(jobs)), len(jobs))
        generator = Generator(model, end_ids(20), size, memory)
        answers = play(generator, [jobs[i] for i in order], rng)
        assert {i: answers[place] for place, i in enumerate(order)} == alone
        assert (generator.reused_tokens > 0) == (memory > 0)


def test_draws_are_those_of_the_rollout_engine() -> None:
    model = make_model(dtype=torch.float64)
    sampling = SamplingParams(1.1, 0.95, 0, max_turn_tokens=10, max_tail_tokens=10)
    jobs = [Generation(words(8 + i, i), 10, sampling, 40 + i) for i in range(8)]
    answers = play(Generator(model, end_ids(20), 8), jobs, random.Random(3))
    turns: dict[int, Turn] = {}

    def on_turns(ended: list[tuple[int, Turn]]) -> list[None]:
        turns.update(ended)
        return [None for _ in ended]

    prompts = [Prompt(job.ids, job.seed) for job in jobs]
    HFEngine(model, end_ids(20), PAD).run(prompts, sampling, on_turns)  # type: ignore[arg-type]
    assert [answers[i].ids for i in range(8)] == [turns[i].ids for i in range(8)]


def test_a_longer_bound_only_lengthens_an_answer() -> None:
    generator = Generator(make_model(dtype=torch.float64), end_ids(), 4, PREFIX_BYTES)
    ids = words(30, 1)
    ((_, short),) = run_one(generator, Generation(ids, 5, SamplingParams(1.0), 7))
    ((_, long),) = run_one(generator, Generation(ids, 60, SamplingParams(1.0), 7))
    assert short.finish == "length" and len(short.ids) == 5 and long.ids[:5] == short.ids


def test_stop_conditions() -> None:
    model, ids = make_model(dtype=torch.float64), words(12, 5)
    ((_, free),) = run_one(Generator(model, end_ids(), 1), Generation(ids, 20, GREEDY, 0))
    third = free.ids[2]
    first = free.ids.index(third) + 1
    job = Generation(ids, 20, GREEDY, 0, frozenset({third}))
    ((_, by_id),) = run_one(Generator(model, end_ids(), 1), job)
    assert by_id == Answer(free.ids[:first], "stop")
    job = Generation(ids, 20, GREEDY, 0, stopped=lambda out: len(out) == 4)
    ((_, by_rule),) = run_one(Generator(model, end_ids(), 1), job)
    assert by_rule == Answer(free.ids[:4], "stop")


def test_known_prefixes_spare_the_work() -> None:
    generator = Generator(make_model(dtype=torch.float64), end_ids(), 2, PREFIX_BYTES)
    ids = words(64, 9)
    run_one(generator, Generation(ids, 4, GREEDY, 0))
    assert generator.reused_tokens == 0
    run_one(generator, Generation(ids, 4, GREEDY, 0))
    # All but the last token, which has to be computed for its logits.
    assert generator.reused_tokens == 63
    run_one(generator, Generation(ids[:40] + words(30, 10), 4, GREEDY, 0))
    assert generator.reused_tokens == 63 + 40


def span(n: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """200 bytes a position."""
    return [(torch.zeros(5, n, 5), torch.zeros(5, n, 5))]


def test_the_store_forgets_what_was_not_used_for_longest() -> None:
    store = PrefixStore(3 * 32 * 200)
    for i in range(3):
        store.put(words(32, i), span(32))
    assert store.used == 3 * 32 * 200
    assert store.find((*words(32, 0), 5)) is not None
    store.put(words(32, 3), span(32))
    known = [store.find((*words(32, i), 5)) is not None for i in range(4)]
    assert known == [True, False, True, True] and store.used == store.limit
    store.put(words(100, 4), span(100))  # larger than everything together
    assert store.find(words(100, 4)) is None


def test_what_the_generator_refuses() -> None:
    generator = Generator(make_model(), end_ids(), 1)
    jobs = [Generation(words(5, i), 5, GREEDY, 0) for i in range(2)]
    with pytest.raises(ValueError, match="do not fit"):
        generator.join(jobs)
    eager = make_model()
    eager.set_attn_implementation("eager")
    with pytest.raises(UserError, match="allowed: sdpa"):
        Generator(eager, end_ids(), 1)
