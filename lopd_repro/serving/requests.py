"""OpenAI request bodies: what the `hf` server honours, and a clear refusal of everything else.

Nothing that could change an answer is ignored: a field is honoured, or allowed at the one value
that means "off", or refused with status 400. Lengths follow vLLM: a prompt that leaves no room is
refused with the message its clients know, and a bound on the answer that goes beyond the room is
cut down to it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any


class RequestError(Exception):
    """A request that is answered with an error."""

    def __init__(self, message: str, status: int = 400, param: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.param = param

    def body(self) -> dict[str, Any]:
        """OpenAI's error form."""
        kinds = {404: "NotFoundError", 500: "InternalServerError", 503: "ServiceUnavailableError"}
        return {
            "error": {
                "message": str(self),
                "type": kinds.get(self.status, "BadRequestError"),
                "param": self.param,
                "code": self.status,
            }
        }


@dataclass(frozen=True)
class Wanted:
    """The honoured fields of a request; None where the server's default holds."""

    messages: list[dict[str, Any]] | None
    prompt: str | list[int] | None
    tools: list[dict[str, Any]] | None
    parse_tools: bool
    max_tokens: int | None
    temperature: float | None
    top_p: float | None
    top_k: int | None
    stop: tuple[str, ...]
    stop_token_ids: frozenset[int]
    seed: int | None
    skip_special_tokens: bool
    add_special_tokens: bool
    template_options: dict[str, Any]


# Fields that are fine at these values, which all mean "off".
_OFF: dict[str, tuple[Any, ...]] = {
    "n": (None, 1),
    "best_of": (None, 1),
    "stream": (None, False),
    "stream_options": (None,),
    "logprobs": (None, False),
    "top_logprobs": (None, 0),
    "prompt_logprobs": (None,),
    "echo": (None, False),
    "suffix": (None, ""),
    "frequency_penalty": (None, 0),
    "presence_penalty": (None, 0),
    "repetition_penalty": (None, 1),
    "min_p": (None, 0),
    "min_tokens": (None, 0),
    "logit_bias": (None, {}),
    "ignore_eos": (None, False),
    "include_stop_str_in_output": (None, False),
    "response_format": (None, {"type": "text"}),
    "parallel_tool_calls": (None, True),
    "spaces_between_special_tokens": (None, True),
    "add_generation_prompt": (None, True),
    "continue_final_message": (None, False),
    "tool_choice": (None, "auto", "none"),
}
# Fields that say who asks; no answer depends on them.
_ABOUT = {"model", "user", "metadata", "store", "safety_identifier", "request_id"}
_COMMON = {
    "max_tokens",
    "temperature",
    "top_p",
    "top_k",
    "stop",
    "stop_token_ids",
    "seed",
    "skip_special_tokens",
    "add_special_tokens",
}
_CHAT = _COMMON | {"messages", "tools", "max_completion_tokens", "chat_template_kwargs"}
_COMPLETION = _COMMON | {"prompt"}


def read_request(raw: bytes, chat: bool, model: str) -> Wanted:
    """Check a request's body; raises `RequestError`."""
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise RequestError(f"the request's body is not JSON ({error})") from None
    if not isinstance(body, dict):
        raise RequestError("the request's body is not a JSON object")
    if body.get("model") not in (None, model):
        raise RequestError(f"The model `{body['model']}` does not exist.", 404, "model")
    allowed = _CHAT if chat else _COMPLETION
    for name, value in body.items():
        if name in _OFF:
            if not any(value == off and _same_kind(value, off) for off in _OFF[name]):
                means = " or ".join(json.dumps(off) for off in _OFF[name])
                raise RequestError(
                    f"{name}: found {json.dumps(value)}, this server allows {means}", param=name
                )
        elif name not in allowed and name not in _ABOUT:
            raise RequestError(f"{name}: this server does not know this field", param=name)
    reader = _Reader(body)
    tools = reader.objects("tools") if chat else None
    if not tools and body.get("tool_choice") == "auto" and chat:
        raise RequestError("tool_choice: found 'auto' without tools", param="tool_choice")
    return Wanted(
        messages=_messages(body) if chat else None,
        prompt=None if chat else _prompt(body),
        tools=tools,
        parse_tools=bool(tools) and body.get("tool_choice") != "none",
        max_tokens=_max_tokens(reader, chat),
        temperature=reader.number("temperature", 0),
        top_p=reader.number("top_p", 0, 1),
        top_k=_top_k(reader),
        stop=_stop(body),
        stop_token_ids=frozenset(_ids(body.get("stop_token_ids") or [], "stop_token_ids")),
        seed=reader.whole("seed"),
        skip_special_tokens=reader.flag("skip_special_tokens", True),
        add_special_tokens=reader.flag("add_special_tokens", not chat),
        template_options=reader.mapping("chat_template_kwargs"),
    )


def answer_room(prompt_tokens: int, wanted: int | None, chat: bool, limit: int) -> int:
    """Largest number of tokens the answer may have; `RequestError` when there is no room at all."""
    if wanted is not None and wanted > limit:
        raise RequestError(
            f"max_tokens: found {wanted}, which is more than the model's maximum context length "
            f"of {limit} tokens",
            param="max_tokens",
        )
    if prompt_tokens >= limit:
        raise RequestError(
            f"This model's maximum context length is {limit} tokens. However, your prompt has "
            f"{prompt_tokens} input tokens, which leaves no room for an answer.",
            param="input_tokens",
        )
    if wanted is None:
        wanted = limit if chat else 16
    return min(wanted, limit - prompt_tokens)


class _Reader:
    """Typed access to optional fields; null counts as absent."""

    def __init__(self, body: dict[str, Any]) -> None:
        self.body = body

    def number(self, name: str, low: float, high: float | None = None) -> float | None:
        value = self.body.get(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
            raise RequestError(f"{name}: found {json.dumps(value)}, allowed: a number", param=name)
        # top_p, the only field with an upper end, must also be above its lower one.
        if value < low or (high is not None and (value > high or value == low)):
            allowed = f"{low} or more" if high is None else f"above {low} and up to {high}"
            raise RequestError(f"{name}: found {value}, allowed: {allowed}", param=name)
        return float(value)

    def whole(self, name: str, low: int | None = None) -> int | None:
        value = self.body.get(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int):
            raise RequestError(
                f"{name}: found {json.dumps(value)}, allowed: a whole number", param=name
            )
        if low is not None and value < low:
            raise RequestError(f"{name}: found {value}, allowed: {low} or more", param=name)
        return value

    def flag(self, name: str, default: bool) -> bool:
        value = self.body.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise RequestError(
                f"{name}: found {json.dumps(value)}, allowed: true or false", param=name
            )
        return value

    def mapping(self, name: str) -> dict[str, Any]:
        value = self.body.get(name)
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise RequestError(f"{name}: found {json.dumps(value)}, allowed: an object", param=name)
        return value

    def objects(self, name: str) -> list[dict[str, Any]] | None:
        value = self.body.get(name)
        if value is None:
            return None
        if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
            raise RequestError(f"{name}: found no list of objects", param=name)
        return value


def _max_tokens(reader: _Reader, chat: bool) -> int | None:
    newer = reader.whole("max_completion_tokens", 1) if chat else None
    older = reader.whole("max_tokens", 1)
    if newer is not None and older is not None and newer != older:
        raise RequestError("max_tokens and max_completion_tokens differ", param="max_tokens")
    return older if newer is None else newer


def _top_k(reader: _Reader) -> int | None:
    top_k = reader.whole("top_k", -1)
    return 0 if top_k == -1 else top_k


def _stop(body: dict[str, Any]) -> tuple[str, ...]:
    stop = body.get("stop")
    if stop is None:
        return ()
    texts = [stop] if isinstance(stop, str) else stop
    if not isinstance(texts, list) or not all(isinstance(t, str) and t for t in texts):
        raise RequestError("stop: allowed: a text or a list of texts, none empty", param="stop")
    return tuple(texts)


def _prompt(body: dict[str, Any]) -> str | list[int]:
    prompt = body.get("prompt")
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], str | list):
        prompt = prompt[0]
    if isinstance(prompt, str):
        return prompt
    if isinstance(prompt, list) and prompt:
        return _ids(prompt, "prompt")
    raise RequestError("prompt: allowed: one text, or one list of token ids", param="prompt")


def _ids(value: Any, name: str) -> list[int]:
    if not isinstance(value, list) or any(
        isinstance(i, bool) or not isinstance(i, int) or i < 0 for i in value
    ):
        raise RequestError(f"{name}: found something that is no list of token ids", param=name)
    return value


def _messages(body: dict[str, Any]) -> list[dict[str, Any]]:
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise RequestError("messages: allowed: a list with at least one message", param="messages")
    return [_message(message, f"messages[{i}]") for i, message in enumerate(messages)]


def _message(message: Any, where: str) -> dict[str, Any]:
    if not isinstance(message, dict) or not isinstance(message.get("role"), str):
        raise RequestError(f"{where}: allowed: an object with a role", param="messages")
    made = {**message, "content": _content(message.get("content"), where)}
    calls = message.get("tool_calls")
    if calls is not None:
        if not isinstance(calls, list):
            raise RequestError(f"{where}.tool_calls: allowed: a list", param="messages")
        made["tool_calls"] = [_past_call(call, where) for call in calls]
    return made


def _content(content: Any, where: str) -> str | None:
    if content is None or isinstance(content, str):
        return content
    if isinstance(content, list):
        found = [part.get("text") for part in content if isinstance(part, dict)]
        texts = [text for text in found if isinstance(text, str)]
        if len(texts) == len(content):
            return "\n".join(texts)
    raise RequestError(f"{where}.content: allowed: a text, text parts, or null", param="messages")


def _past_call(call: Any, where: str) -> dict[str, Any]:
    """Templates want a call's arguments as an object; clients send them as JSON text."""
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise RequestError(f"{where}.tool_calls: found a call without a function", param="messages")
    arguments = function.get("arguments")
    if isinstance(arguments, str) or arguments is None:
        try:
            arguments = json.loads(arguments) if arguments else {}
        except ValueError:
            raise RequestError(
                f"{where}.tool_calls: arguments are not JSON", param="messages"
            ) from None
    return {**call, "function": {**function, "arguments": arguments}}


def _same_kind(value: Any, off: Any) -> bool:
    """Keeps `true` from passing as 1."""
    return isinstance(value, bool) == isinstance(off, bool)
