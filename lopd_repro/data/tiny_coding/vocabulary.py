"""The closed vocabulary of the tiny programming tasks, for a word-level tokenizer.

What stays constant in a statement or in a program's line is one token; variables, names and
numbers are the same tokens in both, so that copying them is copying token ids. (A word with its
leading space would not do: ` a` would take the head off ` ages`.)
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from lopd_repro.data.tiny_coding.families import NAMES, NUMBERS, TEXTS, TOPICS, VALUES, WORDS

FENCES = ("```python\n", "\n```", "```")
_SLOT = re.compile(r"\{[vkf]\}")
_WORD = re.compile(r" ?[A-Za-z]+|[^A-Za-z]")


def vocabulary(extra_texts: Iterable[str] = ()) -> list[str]:
    """Tokens in a fixed order, each once; words of `extra_texts` (prompts) come last."""
    tokens = [*FENCES, "\n    ", "\n"]
    tokens += [*NAMES, *NUMBERS, *TEXTS, *WORDS, *map(str, VALUES)]
    for topic in TOPICS.values():
        lines = [topic.opening, *topic.pre_steps, *topic.post_steps, topic.plain]
        lines += [family.core for family in topic.families]
        lines += [text for family in topic.families for text in family.templates]
        for line in lines:
            tokens += [part for part in _SLOT.split(line) if part]
    for text in extra_texts:
        tokens += _WORD.findall(text)
    return list(dict.fromkeys(tokens))
