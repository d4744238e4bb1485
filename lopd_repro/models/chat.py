"""Chat rendering as token ids that are never re-tokenised.

An episode is a head (system and first user message, ending with the generation prompt) and a
tail. The tail holds the ids the model sampled, kept as sampled, and the ids the template puts
between two assistant turns ("glue": turn end, tool result, next generation prompt). Student and
teacher share the tail; only their heads differ.

The glue is read off the tokenizer's own chat template: a short conversation with a probe as
assistant turn is rendered, and what follows the probe is the glue. A template that rewrites the
prompt or a past turn (one that drops the reasoning of past turns, say) is not append-only: the
default policy refuses it on the first render, `keep_sampled` keeps the sampled ids as they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from lopd_repro.errors import UserError

Message = dict[str, Any]

_PROBE = "probe"
_REASONED = f"<think>\nplan\n</think>\n\n{_PROBE}"
APPEND_POLICIES = ("refuse", "keep_sampled")


@dataclass(frozen=True)
class Head:
    """Token ids up to the first generation prompt.

    `span` is the half-open range of pad ids that latents replace, or None.
    """

    ids: tuple[int, ...]
    span: tuple[int, int] | None = None


class ChatCodec:
    """Renders heads and glue with a tokenizer's chat template.

    `eos_ids` end an assistant turn; `append_policy` says what to do with a template that is not
    append-only; `template_options` go to the template (`enable_thinking` and the like).
    """

    def __init__(
        self,
        tokenizer: Any,
        eos_ids: tuple[int, ...],
        append_policy: str = "refuse",
        template_options: dict[str, Any] | None = None,
    ) -> None:
        if append_policy not in APPEND_POLICIES:
            raise UserError(
                f"chat.append_policy: found {append_policy!r}, "
                f"allowed: {', '.join(APPEND_POLICIES)}"
            )
        if not getattr(tokenizer, "chat_template", None):
            raise UserError("backbone: its tokenizer has no chat template")
        self.tokenizer = tokenizer
        self.eos_ids = eos_ids
        self.append_policy = append_policy
        self._options = dict(template_options or {})
        self._checked_roles: set[str] = set()
        self._glue_ids = lru_cache(maxsize=4096)(self._render_glue)
        self.template_shows_tools = self._template_shows_tools()

    @property
    def generation_prompt(self) -> str:
        """What the template writes where an assistant turn is to start."""
        start: list[Message] = [{"role": "user", "content": "x"}]
        return self.render(start, None).removeprefix(self.render(start, None, generate=False))

    @property
    def pad_id(self) -> int:
        """Id used for padding and as the place holder under latents."""
        pad = self.tokenizer.pad_token_id
        return int(pad if pad is not None else self.eos_ids[0])

    def render(
        self, messages: list[Message], tools: list[dict[str, Any]] | None, generate: bool = True
    ) -> str:
        """The template's text for a conversation."""
        return str(
            self.tokenizer.apply_chat_template(
                messages,
                tools=tools or None,
                tokenize=False,
                add_generation_prompt=generate,
                **self._options,
            )
        )

    def encode(self, text: str) -> list[int]:
        """Ids of rendered text; no special tokens are added."""
        return list(self.tokenizer.encode(text, add_special_tokens=False))

    def decode(self, ids: list[int]) -> str:
        """Text of an assistant turn's ids, its end token left out."""
        while ids and ids[-1] in self.eos_ids:
            ids = ids[:-1]
        return str(self.tokenizer.decode(ids, skip_special_tokens=False))

    def head(self, messages: list[Message], tools: list[dict[str, Any]] | None = None) -> Head:
        """Head of a conversation that holds only system and first user message."""
        return Head(tuple(self.encode(self.render(messages, tools))))

    def latent_head(
        self,
        messages: list[Message],
        sentinel: str,
        n_latents: int,
        tools: list[dict[str, Any]] | None = None,
    ) -> Head:
        """Head whose sentinel is replaced by `n_latents` pad ids (paper eq. 17).

        The rendered text is split at the sentinel and both halves are tokenised apart.
        """
        text = self.render(messages, tools)
        left, found, right = text.partition(sentinel)
        if not found or sentinel in right:
            raise UserError(
                f"latent sentinel {sentinel!r} must appear exactly once in the rendered prompt"
            )
        before = self.encode(left)
        ids = before + [self.pad_id] * n_latents + self.encode(right)
        return Head(tuple(ids), (len(before), len(before) + n_latents))

    def glue(self, role: str, content: str, after_eos: bool) -> list[int]:
        """Ids between an assistant turn and the next one: turn end, message, generation prompt.

        `after_eos` says that the sampled turn already ends with its end token; otherwise the
        template's end token is included (and is not supervised).
        """
        ids = list(self._glue_ids(role, content))
        return ids[1:] if after_eos else ids

    def _render_glue(self, role: str, content: str) -> tuple[int, ...]:
        start: list[Message] = [{"role": "user", "content": "x"}]
        turn: Message = {"role": "assistant", "content": _PROBE}
        following: Message = {"role": role, "content": content}
        text = self.render([*start, turn, following], None)
        prompt = self.render(start, None)
        if self.append_policy == "refuse" and role not in self._checked_roles:
            reasoned = self.render([*start, {**turn, "content": _REASONED}, following], None)
            if not text.startswith(prompt + _PROBE) or not reasoned.startswith(prompt + _REASONED):
                raise UserError(
                    f"chat template is not append-only: before a {role} message it rewrites the "
                    "prompt or the assistant turn (its reasoning, perhaps); set "
                    "chat.append_policy to keep_sampled to keep the sampled ids as they are"
                )
            self._checked_roles.add(role)
        at = text.find(_PROBE, len(prompt) if text.startswith(prompt) else 0)
        ids = tuple(self.encode(text[at + len(_PROBE) :]))
        if at < 0 or not ids or ids[0] not in self.eos_ids:
            raise UserError(
                "chat template: an assistant turn is not followed by one of the end tokens "
                f"{list(self.eos_ids)}; add the template's end token to the backbone's eos ids"
            )
        return ids

    def _template_shows_tools(self) -> bool:
        probe = {
            "type": "function",
            "function": {"name": "probe_tool", "description": "", "parameters": {}},
        }
        message: list[Message] = [{"role": "user", "content": "x"}]
        return self.render(message, [probe]) != self.render(message, None)
