from __future__ import annotations

from typing import Any

import pytest
import torch
from small import ScriptDomain, ScriptedEngine, codec, fresh_tokenizer, tokenizer

from lopd_repro.errors import UserError
from lopd_repro.models.chat import ChatCodec
from lopd_repro.models.tiny_tokenizer import BOS, EOS, PAD
from lopd_repro.rollout.domain import Opening
from lopd_repro.rollout.engine import SamplingParams
from lopd_repro.rollout.episodes import EpisodeRequest, Trajectory, collect
from lopd_repro.rollout.heads import (
    ContextOverflowError,
    LatentContext,
    TextContext,
    build_head,
)

# ChatML without tools, as small instruction models have it, with a default system message.
CHATML = (
    "{%- if messages[0].role != 'system' %}<|im_start|>system\nhello world<|im_end|>\n{%- endif %}"
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
# Drops the reasoning of turns before the last user message and shows tool results as user text.
REASONING = (
    "{%- set ns = namespace(last=-1) %}"
    "{%- for m in messages %}{%- if m.role == 'user' %}{%- set ns.last = loop.index0 %}"
    "{%- endif %}{%- endfor %}"
    "{%- for m in messages %}"
    "{%- if m.role == 'tool' %}"
    "{{- '<|im_start|>user\n<r>' + m.content + '</r><|im_end|>\n' }}"
    "{%- elif m.role == 'assistant' and loop.index0 < ns.last %}"
    "{{- '<|im_start|>assistant\n' + m.content.split('</think>')[-1].strip() + '<|im_end|>\n' }}"
    "{%- else %}{{- '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{%- endif %}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}"
    "{%- if enable_thinking is defined and not enable_thinking %}{{- '<think></think>' }}"
    "{%- endif %}{%- endif %}"
)
SAMPLING = SamplingParams(max_turn_tokens=40, max_tail_tokens=200)


def make(template: str, policy: str = "refuse", **options: Any) -> ChatCodec:
    made = fresh_tokenizer(template)
    return ChatCodec(made, (made.eos_token_id,), policy, options)


def play(coder: ChatCodec, *turns: tuple[list[int], str]) -> tuple[Trajectory, ScriptDomain]:
    domain = ScriptDomain(n_turns=len(turns))
    engine = ScriptedEngine(lambda _, n: turns[n])
    (done,) = collect(engine, coder, domain, [EpisodeRequest("a", 0, 1, 1)], SAMPLING)
    return done, domain


@pytest.mark.parametrize("template", [None, CHATML, REASONING])
def test_an_episode_reads_as_the_template_renders_the_conversation(template: str | None) -> None:
    made = fresh_tokenizer(template)
    coder = ChatCodec(made, (made.eos_token_id,))
    end = made.eos_token_id
    first, second = coder.encode("tea"), coder.encode("cup world")
    done, domain = play(coder, ([*first, end], "eos"), ([*second, end], "eos"))
    conversation = [
        *domain.opening("a").messages(),
        {"role": "assistant", "content": "tea"},
        {"role": "tool", "content": "ok 3"},
        {"role": "assistant", "content": "cup world"},
    ]
    rendered = coder.render(conversation, None, generate=False)
    text = made.decode([*done.head, *done.tail])
    # The template ends a conversation with a newline that no model samples.
    assert text + "\n" == rendered


def test_supervision_starts_and_ends_with_each_turn() -> None:
    coder = codec()
    end = coder.eos_ids[0]
    first, second = coder.encode("ab"), coder.encode("cde")
    done, _ = play(coder, ([*first, end], "eos"), ([*second, end], "eos"))
    # 2 + end, glue, 3 + end
    assert done.supervised[:3] == [True] * 3 and done.supervised[-4:] == [True] * 4
    assert not any(done.supervised[3:-4]) and done.n_sampled == 7
    assert done.tail[2] == end and done.tail[-1] == end
    glue = coder.tokenizer.decode(done.tail[3:-4])
    assert glue == f"\n{BOS}tool\nok 3{EOS}\n{BOS}assistant\n"
    assert done.logp[:3] == [-0.5] * 3 and done.raw_logp[3] == 0.0 and done.logp[3] == 0.0


def test_an_end_token_that_the_template_added_is_not_supervised() -> None:
    coder = codec()
    end = coder.eos_ids[0]
    done, domain = play(coder, (coder.encode("ab"), "length"), ([end], "eos"))
    assert done.tail[2] == end and not done.supervised[2]
    assert done.supervised == [True, True, *[False] * (len(done.tail) - 3), True]
    assert domain.seen[0] == ["ab", ""]


def test_sampled_ids_are_kept_as_sampled() -> None:
    made = fresh_tokenizer()
    coder = ChatCodec(made, (made.eos_token_id,))
    spelled = [coder.encode(letter)[0] for letter in "tea"]
    assert len(coder.encode("tea")) == 1, "read again, the text would be one token"
    done, domain = play(coder, ([*spelled, made.eos_token_id], "eos"), (spelled, "length"))
    assert done.tail[:3] == spelled and done.tail[-3:] == spelled
    assert domain.seen[0] == ["tea", "tea"]


def test_student_and_teacher_share_the_tail_and_differ_in_the_head() -> None:
    coder = codec()
    opening = Opening("be brief", "task a")
    plain = coder.tokenizer.decode(build_head(coder, opening).head.ids)
    for place, expected in (
        ("end_of_first_user", plain.replace("task a", "task a HINT")),
        ("end_of_system", plain.replace("be brief", "be brief HINT")),
    ):
        built = build_head(coder, opening, TextContext(" HINT", place))
        assert coder.tokenizer.decode(built.head.ids) == expected
    without = build_head(coder, Opening("", "task a"), TextContext("HINT", "end_of_system"))
    assert "system\nHINT" in coder.tokenizer.decode(without.head.ids)
    assert build_head(coder, opening, TextContext("")).head == build_head(coder, opening).head


def test_latents_stand_between_the_framing_texts() -> None:
    coder = codec()
    built = build_head(coder, Opening("", "tea"), LatentContext(torch.zeros(3, 32), "<", ">"))
    span = built.head.span
    assert span is not None and span[1] - span[0] == 3
    ids = list(built.head.ids)
    assert ids[span[0] : span[1]] == [coder.pad_id] * 3
    text = coder.tokenizer.decode(ids)
    assert text == f"{BOS}user\ntea<{PAD * 3}>{EOS}\n{BOS}assistant\n"
    with pytest.raises(UserError, match="exactly once"):
        build_head(
            coder, Opening("", "<<latent-context>>"), LatentContext(torch.zeros(1, 32), "", "")
        )


def test_a_head_that_is_too_long_is_an_error_and_never_cut() -> None:
    coder, opening = codec(), Opening("", "task a")
    n = len(build_head(coder, opening).head.ids)
    assert len(build_head(coder, opening, None, n).head.ids) == n
    with pytest.raises(ContextOverflowError, match=f"{n} tokens does not fit the allowed {n - 1}"):
        build_head(coder, opening, None, n - 1)


def test_a_template_that_drops_past_reasoning_is_refused_where_it_does() -> None:
    coder = make(REASONING)
    assert coder.glue("tool", "tea", after_eos=True)
    with pytest.raises(UserError, match="not append-only: before a user message"):
        coder.glue("user", "tea", after_eos=True)
    kept = make(REASONING, "keep_sampled")
    glue = kept.tokenizer.decode(kept.glue("user", "tea", after_eos=False))
    assert glue == f"{EOS}\n{BOS}user\ntea{EOS}\n{BOS}assistant\n"


def test_a_generation_prompt_that_the_history_lacks_is_refused() -> None:
    with pytest.raises(UserError, match="not append-only"):
        make(REASONING, enable_thinking=False).glue("tool", "tea", after_eos=True)
    kept = make(REASONING, "keep_sampled", enable_thinking=False)
    text = kept.tokenizer.decode(kept.glue("tool", "tea", after_eos=True))
    assert text == f"\n{BOS}user\n<r>tea</r>{EOS}\n{BOS}assistant\n<think></think>"


def test_several_end_tokens() -> None:
    made = fresh_tokenizer()
    pad, end = made.pad_token_id, made.eos_token_id
    coder = ChatCodec(made, (pad, end))
    ids = coder.encode("tea")
    assert coder.decode([*ids, end]) == coder.decode([*ids, pad]) == "tea"
    # The template's own end token opens the glue whichever end token the list names first.
    assert coder.glue("tool", "x", after_eos=False)[0] == end
    assert coder.glue("tool", "x", after_eos=True)[0] == coder.encode("\n")[0]
    with pytest.raises(UserError, match="not followed by one of the end tokens"):
        ChatCodec(made, (pad,)).glue("tool", "x", after_eos=True)


def test_tools_reach_the_prompt_whether_the_template_shows_them_or_not() -> None:
    tool = {"name": "pour", "description": "", "parameters": {"type": "object"}}
    opening = Opening("hello", "tea", ({"type": "function", "function": tool},))
    shows, ignores = codec(), make(CHATML)
    assert shows.template_shows_tools and not ignores.template_shows_tools
    assert "tools:\npour" in tokenizer().decode(build_head(shows, opening).head.ids)
    text = ignores.tokenizer.decode(build_head(ignores, opening).head.ids)
    assert text.count("<|im_start|>system") == 1 and '"name": "pour"' in text
    assert text.index("hello") < text.index('"name": "pour"') < text.index("tea")
    assert "<tool_call>" in text


def test_what_a_codec_refuses() -> None:
    with pytest.raises(UserError, match=r"chat\.append_policy: found 'cut'"):
        ChatCodec(tokenizer(), (2,), "cut")
    bare = fresh_tokenizer()
    bare.chat_template = None
    with pytest.raises(UserError, match="no chat template"):
        ChatCodec(bare, (2,))
    with pytest.raises(UserError, match="context place"):
        TextContext("x", "middle")


def test_any_printable_text_survives_the_tiny_tokenizer() -> None:
    text = "".join(chr(code) for code in range(32, 127)) + "\nTask Completed"
    assert tokenizer().decode(codec().encode(text)) == text
