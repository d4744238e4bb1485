"""A chat client for many conversations at once: one kept connection per thread, plain HTTP."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from lopd_repro.errors import UserError

_OVERFLOW = ("context length", "context_length", "max_model_len", "maximum input length")


class EndpointError(Exception):
    """The endpoint gave no usable answer; no score may be made from this."""


class PromptTooLongError(Exception):
    """The prompt does not fit the model's context."""


@dataclass(frozen=True)
class Sampling:
    """What every request asks for; unset values are left to the server.

    timeout_seconds bounds one request. A request that fails with a network error, a broken
    answer, 429 or 5xx is sent again, `tries` times in all, with doubling pauses.
    """

    temperature: float | None = 0.7
    top_p: float | None = 0.95
    top_k: int | None = None
    max_tokens: int = 1000
    timeout_seconds: float = 300.0
    tries: int = 3
    pause_seconds: float = 0.5

    def __post_init__(self) -> None:
        for name, lowest in (("max_tokens", 1), ("tries", 1), ("pause_seconds", 0)):
            if getattr(self, name) < lowest:
                raise UserError(
                    f"benchmark.sampling.{name}: found {getattr(self, name)}, "
                    f"allowed: {lowest} or more"
                )
        if self.timeout_seconds <= 0:
            raise UserError("benchmark.sampling.timeout_seconds: allowed: above 0")


@dataclass(frozen=True)
class Reply:
    """An assistant text and the tokens of its prompt and of itself, where the server says."""

    text: str
    prompt_tokens: int
    tokens: int


class Client:
    """Asks one model; safe to use from many threads."""

    def __init__(self, url: str, model: str, sampling: Sampling) -> None:
        parts = urlsplit(url)
        if parts.scheme != "http" or not parts.hostname:
            raise UserError(f"endpoint url: found {url!r}, allowed: an http address")
        self._host, self._port = parts.hostname, parts.port or 80
        self._path = f"{parts.path.rstrip('/')}/chat/completions"
        self._sampling = sampling
        self._fixed: dict[str, Any] = {"model": model, "max_tokens": sampling.max_tokens}
        for name in ("temperature", "top_p", "top_k"):
            if getattr(sampling, name) is not None:
                self._fixed[name] = getattr(sampling, name)
        self._local = threading.local()

    def ask(self, messages: Sequence[dict[str, Any]], seed: int) -> Reply:
        """The model's next message.

        `PromptTooLongError` if the prompt is too long, `EndpointError` for anything else.
        """
        return self.send({**self._fixed, "messages": list(messages), "seed": seed})

    def send(self, request: dict[str, Any]) -> Reply:
        """The answer to a whole request body; errors as `ask`."""
        body = json.dumps(request).encode()
        sampling = self._sampling
        problem = ""
        for attempt in range(sampling.tries):
            if attempt:
                time.sleep(sampling.pause_seconds * 2 ** (attempt - 1))
            try:
                status, content = self._post(body)
            except (OSError, http.client.HTTPException) as error:
                self._close()
                problem = f"{type(error).__name__}: {error}".rstrip(": ")
                continue
            if status == 200:
                try:
                    return _reply(json.loads(content))
                except (ValueError, KeyError, IndexError, TypeError):
                    problem = "the answer is no chat completion"
                    continue
            text = content.decode(errors="replace")
            if status == 400 and any(mark in text.lower() for mark in _OVERFLOW):
                raise PromptTooLongError(text[:200])
            problem = f"HTTP {status}: {' '.join(text[:200].split())}"
            if status != 429 and status < 500:
                break
        raise EndpointError(problem)

    def _post(self, body: bytes) -> tuple[int, bytes]:
        connection = getattr(self._local, "connection", None)
        if connection is None:
            connection = http.client.HTTPConnection(
                self._host, self._port, timeout=self._sampling.timeout_seconds
            )
            self._local.connection = connection
        connection.request("POST", self._path, body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        return response.status, response.read()

    def _close(self) -> None:
        connection = getattr(self._local, "connection", None)
        if connection is not None:
            connection.close()
            self._local.connection = None


def _reply(answer: dict[str, Any]) -> Reply:
    message = answer["choices"][0]["message"]
    usage = answer.get("usage") or {}
    return Reply(
        str(message["content"] or ""),
        int(usage.get("prompt_tokens") or 0),
        int(usage.get("completion_tokens") or 0),
    )
