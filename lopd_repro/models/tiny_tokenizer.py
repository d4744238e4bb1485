"""Word-level tokenizer of the tiny backbones, with a ChatML template.

The vocabulary is the closed word list of the bundled tasks plus every printable ASCII
character, so that any ASCII text has ids and decoding gives the text back. The longest
vocabulary entry wins at each position.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

BOS = "<|im_start|>"
EOS = "<|im_end|>"
PAD = "<|endoftext|>"
UNKNOWN = "<|unk|>"

CHAT_TEMPLATE = (
    "{%- if tools %}"
    "{{- '<|im_start|>system\\n' }}"
    "{%- if messages[0].role == 'system' %}{{- messages[0].content }}{{- '\\n' }}{%- endif %}"
    "{{- 'tools:' }}"
    "{%- for tool in tools %}{{- '\\n' }}{{- (tool.function if tool.function else tool).name }}"
    "{%- endfor %}"
    "{{- '<|im_end|>\\n' }}"
    "{%- elif messages[0].role == 'system' %}"
    "{{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}"
    "{%- endif %}"
    "{%- for message in messages %}"
    "{%- if not (loop.first and message.role == 'system') %}"
    "{{- '<|im_start|>' + message.role + '\\n' }}"
    "{%- if message.content is string %}{{- message.content }}{%- endif %}"
    "{%- for call in message.tool_calls or [] %}"
    "{%- set function = call.function if call.function else call %}"
    '{{- \'<tool_call>\\n{"name": "\' + function.name + \'", "arguments": \' }}'
    "{%- if function.arguments is string %}{{- function.arguments }}"
    "{%- else %}{{- function.arguments | tojson }}{%- endif %}"
    "{{- '}\\n</tool_call>' }}"
    "{%- endfor %}"
    "{{- '<|im_end|>\\n' }}"
    "{%- endif %}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"
)

_STRUCTURE = (
    "system\n",
    "user\n",
    "assistant\n",
    "tool\n",
    "tools:",
    "\n",
    "<tool_call>\n",
    "\n</tool_call>",
    "Task Completed",
)


def build_tokenizer(words: Iterable[str], max_length: int) -> Any:
    """A `PreTrainedTokenizerFast` over `words`; equal words give equal ids."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    special = [PAD, BOS, EOS, UNKNOWN]
    characters = [chr(code) for code in range(32, 127)]
    entries = dict.fromkeys([*special, *_STRUCTURE, *characters, *sorted(set(words))])
    vocabulary = {token: index for index, token in enumerate(entries)}
    longest_first = sorted((t for t in entries if t not in special), key=lambda t: (-len(t), t))
    pattern = "|".join(re.escape(token) for token in longest_first)
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=UNKNOWN))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(pattern), behavior="isolated")
    tokenizer.decoder = decoders.Fuse()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=BOS,
        eos_token=EOS,
        pad_token=PAD,
        unk_token=UNKNOWN,
        model_max_length=max_length,
        clean_up_tokenization_spaces=False,
    )
    fast.chat_template = CHAT_TEMPLATE
    return fast


def save_tokenizer(tokenizer: Any, folder: Path | str) -> None:
    """Write the tokenizer's files."""
    tokenizer.save_pretrained(str(folder))
