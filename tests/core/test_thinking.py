"""The bound on a turn's reasoning, and the bound on head and tail together."""

from __future__ import annotations

import pytest
from small import ScriptDomain, ScriptedEngine, codec, end_ids, fresh_tokenizer, make_model
from test_hf_engine import PAD, full_logits, prompts

from lopd_repro.errors import UserError
from lopd_repro.models.chat import ChatCodec
from lopd_repro.rollout.engine import Reply, SamplingParams, Turn
from lopd_repro.rollout.episodes import EpisodeRequest, Trajectory, collect
from lopd_repro.rollout.hf_engine import HFEngine
from lopd_repro.rollout.thinking import CLOSING, closing_ids

OPENED = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n<think>\n' }}{% endif %}"
)


def opened() -> ChatCodec:
    """A template that opens the reasoning in the generation prompt, as Olmo 3's does."""
    made = fresh_tokenizer(OPENED)
    return ChatCodec(made, (made.eos_token_id,))


def play(coder: ChatCodec, *turns: tuple[str, str]) -> tuple[Trajectory, ScriptDomain]:
    """One assistant turn, played in these parts."""
    domain = ScriptDomain(n_turns=1)

    def script(_: int, n: int) -> tuple[list[int], str]:
        text, finish = turns[n]
        return coder.encode(text) + ([coder.eos_ids[0]] if finish == "eos" else []), finish

    request = EpisodeRequest("a", 0, 1, 1)
    sampling = SamplingParams(max_turn_tokens=40, max_tail_tokens=200, max_thinking_tokens=3)
    (done,) = collect(ScriptedEngine(script), coder, domain, [request], sampling)
    return done, domain


@pytest.mark.parametrize(
    ("coder", "text", "closed"),
    [
        (codec(), "a plan", False),
        (codec(), "<think>\na plan", True),
        (codec(), "<think>\na plan\n</think>\nyes", False),
        (opened(), "a plan", True),
        (opened(), "a plan\n</think>\nyes", False),
        (opened(), "</think><think>", True),
    ],
)
def test_only_open_reasoning_is_closed(coder: ChatCodec, text: str, closed: bool) -> None:
    assert closing_ids(coder, coder.encode(text)) == (coder.encode(CLOSING) if closed else [])


def test_what_closes_the_reasoning_is_not_supervised_and_the_domain_reads_one_turn() -> None:
    coder = opened()
    done, domain = play(coder, ("tea", "thinking"), ("cup", "eos"))
    tea, cup, closing = (coder.encode(text) for text in ("tea", "cup", CLOSING))
    assert done.tail == [*tea, *closing, *cup, coder.eos_ids[0]]
    expected = [True] * len(tea) + [False] * len(closing) + [True] * (len(cup) + 1)
    assert done.supervised == expected
    assert domain.seen[0] == [f"tea{CLOSING}cup"] and len(done.records) == 1
    assert done.logp[len(tea)] == 0.0 and done.logp[0] == -0.5


def test_a_turn_that_has_thought_enough_goes_on_as_it_is() -> None:
    done, domain = play(codec(), ("tea", "thinking"), ("cup", "eos"))
    assert all(done.supervised) and domain.seen[0] == ["teacup"] and len(done.records) == 1


def test_reasoning_that_leaves_no_room_ends_the_episode() -> None:
    coder = opened()
    domain = ScriptDomain(n_turns=1)
    tail = len(coder.encode("tea")) + len(coder.encode(CLOSING))
    sampling = SamplingParams(max_turn_tokens=tail, max_tail_tokens=tail, max_thinking_tokens=1)
    engine = ScriptedEngine(lambda _, n: (coder.encode("tea"), "thinking"))
    (done,) = collect(engine, coder, domain, [EpisodeRequest("a", 0, 1, 1)], sampling)
    assert done.status == "step_cap" and domain.was_cut == [0] and domain.seen[0] == []
    assert coder.tokenizer.decode(done.tail) == "tea"


@pytest.mark.parametrize("closing", [[], [5, 9, 33]])
def test_the_engine_stops_once_at_the_bound_and_goes_on(closing: list[int]) -> None:
    model, ends, given = make_model(), end_ids(), prompts(3)
    engine = HFEngine(model, ends, PAD)
    sampling = SamplingParams(
        temperature=0, max_turn_tokens=9, max_tail_tokens=60, max_thinking_tokens=4
    )
    turns: list[list[Turn]] = [[] for _ in given]

    def on_turns(ended: list[tuple[int, Turn]]) -> list[Reply]:
        for index, turn in ended:
            turns[index].append(turn)
        return [closing if turn.finish == "thinking" else None for _, turn in ended]

    engine.run(given, sampling, on_turns)
    for prompt, (first, second) in zip(given, turns, strict=True):
        assert (first.finish, second.finish) == ("thinking", "length")
        # What is put in counts as the turn's, too.
        assert (len(first.ids), len(second.ids)) == (4, 5 - len(closing))
        ids = [*prompt.ids, *first.ids, *closing, *second.ids]
        best = full_logits(model, ids).argmax(-1).tolist()
        assert best[len(prompt.ids) - 1 :][:4] == first.ids
        start = len(ids) - len(second.ids)
        assert best[start - 1 : -1] == second.ids


def test_head_and_tail_stay_below_their_common_bound() -> None:
    given = prompts(3)  # heads of 4, 5 and 6 tokens
    sampling = SamplingParams(max_turn_tokens=50, max_tail_tokens=50, max_episode_tokens=12)
    turns: dict[int, Turn] = {}

    def on_turns(ended: list[tuple[int, Turn]]) -> list[Reply]:
        turns.update(ended)
        return [None] * len(ended)

    HFEngine(make_model(), (10**6,), PAD).run(given, sampling, on_turns)
    assert [(len(turns[i].ids), turns[i].finish) for i in range(3)] == [
        (8, "budget"),
        (7, "budget"),
        (6, "budget"),
    ]
    assert sampling.tail_limit(0) == 12 and SamplingParams(max_tail_tokens=5).tail_limit(99) == 5
    with pytest.raises(UserError, match="a task's head alone has 12 tokens"):
        sampling.tail_limit(12)


def test_bounds_are_checked() -> None:
    with pytest.raises(UserError, match=r"max_thinking_tokens: found 64, .* max_turn_tokens 64"):
        SamplingParams(max_thinking_tokens=64)
    with pytest.raises(UserError, match="max_episode_tokens"):
        SamplingParams(max_episode_tokens=-1)
