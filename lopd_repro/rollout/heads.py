"""Heads with privileged context: text at a named place, latents in the first user message.

Student and teacher share the tail; this module is where their heads differ.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from lopd_repro.errors import UserError
from lopd_repro.models.chat import ChatCodec, Head
from lopd_repro.rollout.domain import Opening

SENTINEL = "<<latent-context>>"
PLACES = ("end_of_system", "end_of_first_user")
OVERFLOW_POLICIES = ("error", "drop")


@dataclass(frozen=True)
class TextContext:
    """Privileged text appended to the system message or to the first user message."""

    text: str
    place: str = "end_of_first_user"

    def __post_init__(self) -> None:
        if self.place not in PLACES:
            raise UserError(f"context place: found {self.place!r}, allowed: {', '.join(PLACES)}")


@dataclass(frozen=True)
class LatentContext:
    """Latent tokens `[n, hidden]` at the end of the first user message, between two texts."""

    latents: torch.Tensor
    before: str
    after: str


Context = TextContext | LatentContext | None


class ContextOverflowError(UserError):
    """A head with its privileged text leaves no room for the episode."""


@dataclass(frozen=True)
class BuiltHead:
    """A head with the latents that replace its span, if any."""

    head: Head
    latents: torch.Tensor | None = None


def build_head(
    codec: ChatCodec, opening: Opening, context: Context = None, max_tokens: int | None = None
) -> BuiltHead:
    """Render a task's head with privileged context.

    Raises `ContextOverflowError` when the head is longer than `max_tokens`; nothing is ever cut.
    """
    messages = opening.messages()
    if opening.tools and not codec.template_shows_tools:
        messages = _with_tools_in_system(opening)
    tools = list(opening.tools) if codec.template_shows_tools else None
    if isinstance(context, LatentContext):
        messages[-1] = {
            "role": "user",
            "content": opening.user + context.before + SENTINEL + context.after,
        }
        head = codec.latent_head(messages, SENTINEL, len(context.latents), tools)
        built = BuiltHead(head, context.latents)
    else:
        if isinstance(context, TextContext):
            messages = _with_text(messages, context)
        built = BuiltHead(codec.head(messages, tools))
    if max_tokens is not None and len(built.head.ids) > max_tokens:
        raise ContextOverflowError(
            f"context: a head of {len(built.head.ids)} tokens does not fit the allowed {max_tokens}"
        )
    return built


def _with_text(messages: list[dict[str, object]], context: TextContext) -> list[dict[str, object]]:
    if context.place == "end_of_first_user":
        at = len(messages) - 1
    elif messages[0]["role"] == "system":
        at = 0
    else:
        return [{"role": "system", "content": context.text}, *messages]
    changed = dict(messages[at])
    changed["content"] = f"{changed['content']}{context.text}"
    return [*messages[:at], changed, *messages[at + 1 :]]


def _with_tools_in_system(opening: Opening) -> list[dict[str, object]]:
    """For templates that ignore tools: their descriptions join the system message."""
    import json

    listing = "\n".join(json.dumps(tool, sort_keys=True) for tool in opening.tools)
    text = (
        f"{opening.system}\n\nTools, one JSON description a line:\n{listing}\n\n"
        "To call one, write:\n<tool_call>\n"
        '{"name": "<tool>", "arguments": {"<parameter>": <value>}}\n</tool_call>'
    )
    return Opening(text.strip(), opening.user).messages()
