"""A small client of OpenAI-compatible chat endpoints (vLLM, SGLang, hosted models)."""

from __future__ import annotations

import json
import os
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lopd_repro.errors import UserError


@dataclass(frozen=True)
class EndpointSettings:
    """Where a stronger model answers.

    url: up to and without `/chat/completions`; model: the name the server knows; api_key_env:
    environment variable that holds the key, empty for none. A call that fails with a network
    error, 429 or 5xx is tried again, `tries` times in all, with doubling pauses.
    """

    url: str
    model: str
    api_key_env: str = ""
    temperature: float = 0.7
    max_tokens: int = 4096
    timeout_seconds: float = 300.0
    tries: int = 4
    pause_seconds: float = 2.0

    def __post_init__(self) -> None:
        if not self.url.startswith(("http://", "https://")):
            raise UserError(f"endpoint.url: found {self.url!r}, allowed: an http(s) address")
        if self.tries < 1:
            raise UserError(f"endpoint.tries: found {self.tries}, allowed: 1 or more")


class ChatEndpoint:
    """Sends conversations, returns assistant messages."""

    def __init__(self, settings: EndpointSettings) -> None:
        self.settings = settings
        self._headers = {"Content-Type": "application/json"}
        if settings.api_key_env:
            key = os.environ.get(settings.api_key_env)
            if not key:
                raise UserError(
                    f"endpoint.api_key_env: environment variable {settings.api_key_env} is not set"
                )
            self._headers["Authorization"] = f"Bearer {key}"

    def reply(
        self,
        messages: Sequence[dict[str, Any]],
        tools: Sequence[dict[str, Any]] = (),
        seed: int | None = None,
    ) -> dict[str, Any]:
        """The assistant message of the first choice."""
        s = self.settings
        body: dict[str, Any] = {
            "model": s.model,
            "messages": list(messages),
            "temperature": s.temperature,
            "max_tokens": s.max_tokens,
        }
        if tools:
            body["tools"] = list(tools)
        if seed is not None:
            body["seed"] = seed
        answer = self._post(json.dumps(body).encode())
        try:
            message = answer["choices"][0]["message"]
        except (KeyError, IndexError, TypeError):
            message = None
        if not isinstance(message, dict):
            raise UserError(f"endpoint {s.url}: the answer holds no choices[0].message")
        return message

    def _post(self, body: bytes) -> Any:
        s = self.settings
        url = f"{s.url.rstrip('/')}/chat/completions"
        for attempt in range(s.tries):
            request = urllib.request.Request(url, body, self._headers, method="POST")
            try:
                with urllib.request.urlopen(request, timeout=s.timeout_seconds) as response:
                    return json.load(response)
            except urllib.error.HTTPError as error:
                problem = f"HTTP {error.code}"
                if error.code != 429 and error.code < 500:
                    break
            except (urllib.error.URLError, TimeoutError, ConnectionError) as error:
                problem = str(error)
            except ValueError as error:
                problem = f"no JSON ({error})"
            if attempt + 1 < s.tries:
                time.sleep(s.pause_seconds * 2**attempt)
        raise UserError(f"endpoint {url}: {problem}")
