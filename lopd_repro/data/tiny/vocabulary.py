"""The closed vocabulary of the tiny tasks, for a word-level tokenizer.

Greedy longest match over `tiny_vocabulary()` covers instructions, calls, tool results, traces
and the environments' introductions. Names, words and numbers are the same tokens wherever they
stand, so that copying from an instruction or a result into a call is copying token ids; glue of
JSON and of tool results is one token as far as it is constant.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from lopd_repro.data.tiny.demonstrate import DONE, MAX_STEPS
from lopd_repro.data.tiny.domains import (
    CITIES,
    DOMAINS,
    FIRST_NAMES,
    ID_NUMBERS,
    LAST_NAMES,
    TEAMS,
    VALUES,
    WINGS,
    Domain,
)
from lopd_repro.data.tiny.world import RULES

_WORDS = re.compile(r" ?[A-Za-z]+|[^A-Za-z]")
_SLOT = re.compile(r"\{(?:name|value)\}")
_ERRORS = (
    "Error: Invalid action",
    "Error: Failed to parse response to struct response",
    "Error: Failed to parse response to action",
    "Task finished",
)


def tiny_vocabulary(extra_texts: Iterable[str] = ()) -> list[str]:
    """Tokens in a fixed order, each once, single characters only where the texts need them.

    The words of `extra_texts` (prompts, framing texts) are added at the end, with and without
    a leading space as they stand there. Special tokens of a chat template are not included.
    """
    tokens = [DONE, *_ERRORS, *_call_glue(), *_result_glue(), *_trace_glue()]
    for domain in DOMAINS.values():
        tokens += _domain_tokens(domain)
    tokens += [*FIRST_NAMES, *(f" {name}" for name in LAST_NAMES)]
    tokens += [*CITIES, *WINGS, *TEAMS]
    tokens += [str(number) for number in (*VALUES, *ID_NUMBERS)]
    for domain in DOMAINS.values():
        for family in domain.families:
            for template in family.templates:
                for literal in _SLOT.split(template):
                    tokens += _WORDS.findall(literal)
    for text in (*(domain.introduction for domain in DOMAINS.values()), *RULES, *extra_texts):
        tokens += _WORDS.findall(text)
    return list(dict.fromkeys(tokens))


def segment(text: str, vocabulary: Iterable[str]) -> list[str]:
    """Greedy longest-match tokens of a text; characters outside the vocabulary stand alone."""
    return segmenter(vocabulary).findall(text)


def segmenter(vocabulary: Iterable[str]) -> re.Pattern[str]:
    """The regular expression of that match, for a tokenizer's split."""
    longest_first = sorted(set(vocabulary), key=lambda token: (-len(token), token))
    return re.compile("|".join([*map(re.escape, longest_first), r"[\s\S]"]))


def _call_glue() -> list[str]:
    # The tags also stand alone, for tokenizers that hold them as special tokens.
    return [
        "<tool_call>", "</tool_call>", '<tool_call>\n{"name": "', '\n{"name": "',
        '"}}\n</tool_call>', '"}}\n', "}}\n</tool_call>", "}}\n",
    ]  # fmt: skip


def _result_glue() -> list[str]:
    return ["{'success': True}", "{'success': False, 'error': 'not found'}", "}", "\n"]


def _trace_glue() -> list[str]:
    return [f"{number}. " for number in range(1, MAX_STEPS + 1)] + ['") -> ', ") -> "]


def _domain_tokens(domain: Domain) -> list[str]:
    key, prefix = domain.id_name, domain.id_prefix
    tokens = [
        domain.look_up,
        *domain.pre_steps,
        *(family.main_tool for family in domain.families),
        *domain.post_steps,
        f'", "arguments": {{"{domain.owner}": "',
        f'", "arguments": {{"{key}": "{prefix}',
        f"{{'success': True, '{key}': '{prefix}",
        f"', '{domain.number}': ",
        f'({domain.owner}="',
        f'({key}="{prefix}',
    ]
    for family in domain.families:
        quote = '"' if family.kind == "word" else ""
        tokens += [f'", "{family.argument}": {quote}', f'", {family.argument}={quote}']
    return tokens
