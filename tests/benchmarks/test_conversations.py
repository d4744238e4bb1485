"""Recorded conversations: words, supervised tokens, and equality with the text as a whole."""

import pytest

from lopd_repro.data.conversations import (
    Conversations,
    conversation_vocabulary,
    read_conversations,
    supervised_ids,
)
from lopd_repro.errors import UserError
from lopd_repro.files import write_jsonl
from lopd_repro.models.tiny_tokenizer import EOS, build_tokenizer

DOC = '{"name": "look", "description": "Look at a thing with care."}'
SEGMENTS = (
    (f"<|im_start|>system\nTools:\n{DOC}\n{DOC}<|im_end|>\n<|im_start|>user\nLook at Ada.", False),
    ("look(Ada)", True),
    ("<|im_end|>\n<|im_start|>user\nAda is 72.<|im_end|>\n<|im_start|>assistant\n", False),
    ("72", True),
)
RECORDED = Conversations((SEGMENTS,) * 3, (DOC,), ("Ada", "72", "look"))


def tokenizer():
    return build_tokenizer(conversation_vocabulary(RECORDED), 512)


def test_fixed_texts_and_variables_are_single_tokens():
    found = tokenizer()
    for text in (DOC, f"\n{DOC}", "Ada", "72", "look"):
        assert len(found.encode(text, add_special_tokens=False)) == 1, text


def test_glue_between_variables_is_one_token_and_plain_words_stay_words():
    words = conversation_vocabulary(RECORDED)
    glue = Conversations(((('{"id": 72, "of": "Ada"}', False),),) * 3, (), ("Ada", "72"))
    assert {'{"id": ', ', "of": "', '"}'} <= set(conversation_vocabulary(glue))
    # Plain language is cut into words, so that it has the tokens of the bundled tasks.
    assert {" is", "Look", " at"} <= set(words)
    # 72 inside a longer number is no variable.
    other = Conversations(((("<1720>", False),),) * 3, (), ("72",))
    assert "<1720>" in conversation_vocabulary(other)


def test_rare_text_is_left_out_and_long_text_is_cut():
    once = Conversations(((("only here", False),),), (), ("Ada",))
    assert "only here" not in conversation_vocabulary(once)
    line = "/".join(f"word{i}" for i in range(60))
    long = Conversations((((line, False),),) * 3, (), ("Ada",))
    words = conversation_vocabulary(long)
    assert "word7" in words and line not in words


def test_supervised_tokens_are_the_assistants_texts_with_their_end_tokens():
    found = tokenizer()
    end = found.eos_token_id

    def encode(text):
        return found.encode(text, add_special_tokens=False)

    ids, own = supervised_ids(SEGMENTS, encode, EOS, end)
    assert ids == encode("".join(text for text, _ in SEGMENTS) + EOS)
    supervised = [i for i, mine in zip(ids, own, strict=True) if mine]
    assert supervised == [*encode("look(Ada)"), end, *encode("72"), end]
    first = len(encode(SEGMENTS[0][0]))
    assert not own[first - 1] and own[first]
    assert own[-1] and ids[-1] == end


def test_an_assistant_text_without_an_end_token_is_refused():
    broken = (("hi", True), ("no end token", False))
    with pytest.raises(UserError, match="end token"):
        supervised_ids(broken, lambda text: [1], EOS, 2)


def test_a_file_of_another_form_is_refused(tmp_path):
    path = tmp_path / "other.jsonl"
    write_jsonl(path, [{"segments": []}])
    with pytest.raises(UserError, match="no conversation file"):
        read_conversations(path)
