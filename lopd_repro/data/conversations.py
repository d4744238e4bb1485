"""Recorded conversations as training documents, and the words they are made of.

A conversation file has a first row `{"fixed": [texts that stand in prompts word for word]}` and
then one row per conversation, `{"segments": [[text, whether the assistant wrote it], ...]}`. Texts
hold the chat template's special tokens; the end token behind an assistant's text opens the next
segment.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from lopd_repro.errors import UserError
from lopd_repro.files import read_jsonl

Segment = tuple[str, bool]

_SPECIAL = re.compile(r"<\|[a-z_]+\|>")
_LINES = re.compile(r"[^\n]*\n|[^\n]+")
_WORDS = re.compile(r"[A-Za-z0-9_.]+|[^A-Za-z0-9_.]+")
_ROLES = ("system\n", "user\n", "assistant\n")
_PLAIN = re.compile(r"[A-Za-z0-9 .,?!'\n-]*")
_PLAIN_WORDS = re.compile(r" ?[A-Za-z]+|[^A-Za-z]")
_MIN_COUNT = 3
_MAX_CHARACTERS = 160


@dataclass(frozen=True)
class Conversations:
    """What a file holds. `variables` are the words that vary from task to task."""

    segments: tuple[tuple[Segment, ...], ...]
    fixed: tuple[str, ...]
    variables: tuple[str, ...]


def read_conversations(path: Path | str) -> Conversations:
    """Read a file; `UserError` if its form is another."""
    rows = read_jsonl(path)
    if not rows or "fixed" not in rows[0] or "variables" not in rows[0]:
        raise UserError(f"{path}: no conversation file, its first row must name fixed texts")
    return Conversations(
        tuple(tuple((str(t), bool(own)) for t, own in row["segments"]) for row in rows[1:]),
        tuple(rows[0]["fixed"]),
        tuple(rows[0]["variables"]),
    )


def conversation_vocabulary(conversations: Conversations) -> list[str]:
    """Tokens for a word-level tokenizer: fixed texts, variable words, and the text between them.

    What lies between two of these is one token, so that constant glue is short; over 160
    characters it is cut at its lines, and then at its words. Plain language is cut into words, as
    the bundled tasks' own vocabulary cuts it, so that their texts keep their tokens. Text seen
    less than three times is left to other tokens.
    """
    marks = {*conversations.fixed, *conversations.variables, *_ROLES}
    known = sorted(marks, key=lambda t: (-len(t), t))
    pattern = re.compile("|".join(map(_bounded, known)))
    counts: Counter[str] = Counter()
    for segments in conversations.segments:
        for text, _ in segments:
            for piece in _SPECIAL.split(text):
                for between in pattern.split(piece):
                    counts.update(_cut(between))
    glue = sorted(text for text, count in counts.items() if text and count >= _MIN_COUNT)
    # A fixed text begins a line: with the line break it is longer than any glue that could win.
    lines = [f"\n{text}" for text in conversations.fixed]
    return list(dict.fromkeys([*conversations.fixed, *lines, *conversations.variables, *glue]))


def supervised_ids(
    segments: Sequence[Segment], encode: Callable[[str], list[int]], end_token: str, end_id: int
) -> tuple[list[int], list[bool]]:
    """Token ids of a conversation, and which of them the assistant wrote (its end tokens too)."""
    ids: list[int] = []
    own: list[bool] = []
    for index, (text, assistant) in enumerate(segments):
        if assistant:
            sampled = [*encode(text), end_id]
            ids += sampled
            own += [True] * len(sampled)
            following = segments[index + 1][0] if index + 1 < len(segments) else end_token
            if not following.startswith(end_token):
                raise UserError("conversation: an assistant's text is not followed by an end token")
        else:
            glue = encode(text.removeprefix(end_token) if index else text)
            ids += glue
            own += [False] * len(glue)
    return ids, own


def _bounded(text: str) -> str:
    """The text as a pattern; numbers and words do not match inside longer ones."""
    before = r"(?<![A-Za-z0-9])" if text[:1].isalnum() else ""
    after = r"(?![A-Za-z0-9])" if text[-1:].isalnum() else ""
    return before + re.escape(text) + after


def _cut(text: str) -> Iterable[str]:
    if _PLAIN.fullmatch(text):
        return _PLAIN_WORDS.findall(text)
    if len(text) <= _MAX_CHARACTERS:
        return [text]
    pieces: list[str] = []
    for line in _LINES.findall(text):
        pieces += [line] if len(line) <= _MAX_CHARACTERS else _WORDS.findall(line)
    return pieces
