"""Tool calls in a reply, as vLLM's `hermes` parser gives them to clients.

`<tool_call>{"name": ..., "arguments": {...}}</tool_call>` blocks become OpenAI `tool_calls`, and
the text before the first block is the content. A reply with any block that is not well-formed
stays plain text, whole. Unlike that parser, a block without its end tag is not well-formed.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

_BLOCK = re.compile(r"<tool_call>(.*?)(</tool_call>|$)", re.DOTALL)


def read_tool_calls(text: str, salt: str) -> tuple[str | None, list[dict[str, Any]]]:
    """Content and calls of a reply; `salt` makes the calls' ids differ between replies."""
    calls = []
    for number, block in enumerate(_BLOCK.finditer(text)):
        call = _read(block.group(1)) if block.group(2) else None
        if call is None:
            return text, []
        label = hashlib.sha256(f"{salt} {number}".encode()).hexdigest()[:16]
        calls.append({"id": f"call_{label}", "type": "function", "function": call})
    if not calls:
        return text, []
    return text[: text.index("<tool_call>")] or None, calls


def _read(text: str) -> dict[str, str] | None:
    try:
        call = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(call, dict) or not isinstance(call.get("name"), str):
        return None
    arguments = call.get("arguments")
    if not isinstance(arguments, dict):
        return None
    return {"name": call["name"], "arguments": json.dumps(arguments, ensure_ascii=False)}
