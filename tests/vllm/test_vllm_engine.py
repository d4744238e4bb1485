"""vLLM's engine against the `hf` engine and against plain forward passes. See docs/vllm.md."""

from __future__ import annotations

import math
import threading
import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from pair import GREEDY, LIMIT, Pair
from small import full_logits
from test_hf_engine import GLUE, PAD, play, positions, prompts

from lopd_repro.errors import UserError
from lopd_repro.rollout.engine import OnTurns, Prompt, Reply, SamplingParams, Turn
from lopd_repro.rollout.vllm_engine import VLLMEngine


def long_prompts(n: int) -> list[Prompt]:
    """Heads of two of vLLM's cache blocks and a bit (a block is 128 tokens on a CPU)."""
    generator = torch.Generator().manual_seed(5)
    ids = torch.randint(4, 300, (n, 300), generator=generator)
    return [Prompt(tuple(row[: 270 + i].tolist()), 50 + i) for i, row in enumerate(ids)]


def alike(ours: list[list[Turn]], theirs: list[list[Turn]], atol: float = 2e-4) -> None:
    for one, other in zip(ours, theirs, strict=True):
        assert [(t.ids, t.finish) for t in one] == [(t.ids, t.finish) for t in other]
        for left, right in zip(one, other, strict=True):
            np.testing.assert_allclose(left.raw_logp, right.raw_logp, atol=atol)
            assert left.logp == [0.0] * len(left.ids)


def farthest(pair: Pair, given: list[Prompt], played: list[list[Turn]]) -> float:
    """Largest distance of the engine's log-probabilities from those of fresh forward passes."""
    largest = 0.0
    for prompt, turns in zip(given, played, strict=True):
        ids, sampled = positions(prompt, turns)
        logp = full_logits(pair.model, ids).log_softmax(-1)
        raw = [p for turn in turns for p in turn.raw_logp]
        largest = max(
            [largest]
            + [abs(float(logp[j - 1, ids[j]]) - p) for j, p in zip(sampled, raw, strict=True)]
        )
    return largest


def test_greedy_episodes_are_those_of_the_hf_engine(pair: Pair) -> None:
    given = prompts(6)
    turns = play(pair.engine, given, GREEDY, lambda i: 1 + i % 3)  # type: ignore[arg-type]
    alike(turns, play(pair.hf(), given, GREEDY, lambda i: 1 + i % 3))
    finishes = {t.finish for one in turns for t in one}
    assert finishes >= {"eos", "length"} and max(len(one) for one in turns) == 3
    assert pair.kept_random_state


def test_long_episodes_are_the_models_own_beyond_its_window_too(pair: Pair) -> None:
    given = long_prompts(3)
    sampling = SamplingParams(0, max_turn_tokens=20, max_tail_tokens=100)
    turns = play(pair.engine, given, sampling, lambda _: 3)  # type: ignore[arg-type]
    assert farthest(pair, given, turns) < 1e-3
    for prompt, one in zip(given, turns, strict=True):
        ids, sampled = positions(prompt, one)
        best = full_logits(pair.model, ids).argmax(-1).tolist()
        assert [best[j - 1] for j in sampled] == [ids[j] for j in sampled]


def test_draws_depend_on_the_seed_alone(pair: Pair) -> None:
    given = prompts(6)
    sampling = SamplingParams(0.8, 0.95, 20, max_turn_tokens=8, max_tail_tokens=40)
    first = play(pair.engine, given, sampling)  # type: ignore[arg-type]
    pair.engine.reset_cache()
    second = play(pair.engine, given, sampling)  # type: ignore[arg-type]
    assert [[t.ids for t in one] for one in first] == [[t.ids for t in one] for one in second]
    assert farthest(pair, given, first) < 1e-3
    assert all(math.isnan(p) for one in first for t in one for p in t.logp)
    others = [Prompt(p.ids, p.seed + 1000) for p in given]
    third = play(pair.engine, others, sampling)  # type: ignore[arg-type]
    assert sum(a[0].ids != b[0].ids for a, b in zip(first, third, strict=True)) >= 4
    plain = play(pair.engine, given, SamplingParams(max_turn_tokens=6, max_tail_tokens=30))  # type: ignore[arg-type]
    assert all(t.logp == t.raw_logp for one in plain for t in one)


class SlowEnvironments:
    """The engine, whose turns take some time to be answered; `answering` is set meanwhile."""

    def __init__(self, engine: Any) -> None:
        self.engine = engine
        self.answering = threading.Event()

    def run(self, given: list[Prompt], sampling: SamplingParams, on_turns: OnTurns) -> None:
        def slow(turns: list[tuple[int, Turn]]) -> list[Reply]:
            self.answering.set()
            time.sleep(0.05)
            replies = on_turns(turns)
            self.answering.clear()
            return replies

        self.engine.run(given, sampling, slow)


def test_sampling_goes_on_while_environments_answer(pair: Pair, monkeypatch: Any) -> None:
    given = prompts(6)
    sampling = SamplingParams(0.8, 0.95, 20, max_turn_tokens=8, max_tail_tokens=40)
    slow = SlowEnvironments(pair.engine)
    vllm = pair.engine._llm.llm_engine
    step, meanwhile = vllm.step, []

    def seen() -> Any:
        meanwhile.append(slow.answering.is_set())
        return step()

    monkeypatch.setattr(vllm, "step", seen)
    found = {}
    for overlap in (True, False):
        settings = replace(pair.engine.settings, overlap=overlap)
        monkeypatch.setattr(pair.engine, "settings", settings)
        meanwhile.clear()
        played = play(slow, given, sampling)  # type: ignore[arg-type]
        found[overlap] = [[(t.ids, t.raw_logp) for t in one] for one in played]
        assert any(meanwhile) == overlap
    assert found[True] == found[False]


def test_known_embeddings_in_the_span_act_like_their_tokens(pair: Pair) -> None:
    given = [*prompts(3), *long_prompts(2)]
    table = pair.model.get_input_embeddings().weight.detach()
    spans = [(1, 3), (0, 4), (2, 6), (100, 140), (5, 260)]
    latent, other = [], []
    for prompt, (start, stop) in zip(given, spans, strict=True):
        ids = list(prompt.ids)
        known = table[torch.tensor(ids[start:stop])]
        ids[start:stop] = [PAD] * (stop - start)
        latent.append(Prompt(tuple(ids), prompt.seed, (start, stop), known))
        other.append(Prompt(tuple(ids), prompt.seed, (start, stop), known.flip(0)))
    plain = play(pair.engine, given, GREEDY)  # type: ignore[arg-type]
    alike(play(pair.engine, latent, GREEDY), plain)  # type: ignore[arg-type]
    # Equal ids with other latents, at once: nothing of one may serve the other.
    both = play(pair.engine, [*latent, *other], GREEDY)  # type: ignore[arg-type]
    alike(both[:5], plain)
    alike(both[5:8], play(pair.hf(), other[:3], GREEDY))
    assert all(a[0].raw_logp != b[0].raw_logp for a, b in zip(both[:5], both[5:], strict=True))
    alike(play(pair.engine, other, GREEDY), both[5:])  # type: ignore[arg-type]


def test_later_turns_are_served_from_the_cache(pair: Pair, monkeypatch: Any) -> None:
    cached: list[int] = []
    engine = pair.engine._llm.llm_engine
    step = engine.step

    def watched() -> Any:
        outputs = step()
        cached.extend(output.num_cached_tokens for output in outputs if output.finished)
        return outputs

    monkeypatch.setattr(engine, "step", watched)
    pair.engine.reset_cache()
    table = pair.model.get_input_embeddings().weight.detach()
    (plain,) = long_prompts(1)
    for given in (plain, Prompt(plain.ids, 1, (3, 9), table[:6])):
        cached.clear()
        play(pair.engine, [given], GREEDY, lambda _: 2)  # type: ignore[arg-type]
        assert cached[0] == 0 and cached[1] >= 256
    cached.clear()
    pair.engine.sync_weights(pair.model)
    play(pair.engine, [plain], GREEDY, lambda _: 1)  # type: ignore[arg-type]
    assert cached == [0]


def test_new_weights_are_sampled_from_after_a_sync_and_only_then(pair: Pair) -> None:
    given = [*prompts(2), *long_prompts(2)]
    before = play(pair.engine, given, GREEDY)  # type: ignore[arg-type]
    for seed in (2, 3):
        pair.change_weights(seed)
        with pytest.raises(RuntimeError, match="sync_weights comes first"):
            play(pair.engine, given, GREEDY)  # type: ignore[arg-type]
        pair.engine.sync_weights(pair.model)
        after = play(pair.engine, given, GREEDY)  # type: ignore[arg-type]
        assert farthest(pair, given, after) < 1e-3
        assert [t.ids for t in after[2]] != [t.ids for t in before[2]]
        before = after


def test_a_stale_cache_is_provoked_and_caught(pair: Pair, monkeypatch: Any) -> None:
    given = long_prompts(2)
    play(pair.engine, given, GREEDY)  # type: ignore[arg-type]
    pair.change_weights(4)
    # Neither emptied nor salted anew: vLLM serves what older weights have computed.
    with monkeypatch.context() as patch:
        patch.setattr(pair.engine, "reset_cache", lambda: None)
        pair.engine.sync_weights(pair.model)
        pair.engine._version -= 1
        assert farthest(pair, given, play(pair.engine, given, GREEDY)) > 0.1  # type: ignore[arg-type]
        # The weights' version in the salt is enough, though the cache still has it all.
        pair.engine._version += 1
        assert farthest(pair, given, play(pair.engine, given, GREEDY)) < 1e-3  # type: ignore[arg-type]
        pair.engine._version -= 1
        assert farthest(pair, given, play(pair.engine, given, GREEDY)) > 0.1  # type: ignore[arg-type]
    # Emptying it is enough, too.
    assert farthest(pair, given, play(pair.engine, given, GREEDY)) < 1e-3  # type: ignore[arg-type]
    pair.engine._version += 1
    with monkeypatch.context() as patch:
        patch.setattr(pair.engine._llm, "reset_prefix_cache", lambda: False)
        with pytest.raises(RuntimeError, match="was not emptied"):
            pair.engine.sync_weights(pair.model)


@pytest.mark.parametrize("closing", [[], [5, 9, 33]])
def test_a_turn_goes_on_after_the_bound_of_its_reasoning(pair: Pair, closing: list[int]) -> None:
    given = prompts(3)
    sampling = SamplingParams(
        0, max_turn_tokens=9, max_tail_tokens=60, max_episode_tokens=40, max_thinking_tokens=3
    )

    def run(engine: Any) -> list[list[Turn]]:
        turns: list[list[Turn]] = [[] for _ in given]

        def on_turns(ended: list[tuple[int, Turn]]) -> list[Reply]:
            replies: list[Reply] = []
            for index, turn in ended:
                turns[index].append(turn)
                over = turn.finish == "budget" or len(turns[index]) > 4
                replies.append(None if over else closing if turn.finish == "thinking" else GLUE)
            return replies

        engine.run(given, sampling, on_turns)
        return turns

    ours = run(pair.engine)
    alike(ours, run(pair.hf()))
    assert {"thinking"} < {t.finish for one in ours for t in one}


def test_budgets_and_refusals(pair: Pair) -> None:
    given = long_prompts(1)
    head = len(given[0].ids)
    whole = SamplingParams(
        0, max_turn_tokens=LIMIT, max_tail_tokens=LIMIT, max_episode_tokens=head + 5
    )
    (turns,) = play(VLLMEngineWithoutEnds(pair.engine), given, whole)  # type: ignore[arg-type]
    assert [(len(t.ids), t.finish) for t in turns] == [(5, "budget")]
    with pytest.raises(UserError, match=f"do not fit its {LIMIT}; set sampling"):
        play(pair.engine, given, SamplingParams(max_turn_tokens=9, max_tail_tokens=LIMIT))  # type: ignore[arg-type]
    with pytest.raises(UserError, match="token budget is spent"):
        pair.engine.run(prompts(2), GREEDY, lambda ended: [[1] * 30 for _ in ended])

    def broken(ended: list[tuple[int, Turn]]) -> list[Reply]:
        raise ValueError("environment")

    with pytest.raises(ValueError, match="environment"):
        pair.engine.run(prompts(6), GREEDY, broken)
    alike(play(pair.engine, prompts(6), GREEDY), play(pair.hf(), prompts(6), GREEDY))  # type: ignore[arg-type]


class VLLMEngineWithoutEnds:
    """The same engine, whose turns no token ends."""

    def __init__(self, engine: VLLMEngine) -> None:
        self.engine = engine

    def run(self, *args: Any) -> None:
        kept, self.engine.eos_ids = self.engine.eos_ids, frozenset()
        try:
            self.engine.run(*args)
        finally:
            self.engine.eos_ids = kept
