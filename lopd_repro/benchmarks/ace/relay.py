"""Stands between the official harness and the endpoints that it asks.

The harness runs where only this relay can be reached. `/agent/v1` leads to the checkpoint,
`/user/v1` to the user simulator, whose key therefore never enters the sandbox. On the way the
relay puts in the served model's name, the sampling that the settings name, a seed, and takes
reasoning out of agent texts. It remembers failures, so that none can pass for a score.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from lopd_repro.benchmarks.ace.calls import strip_thoughts
from lopd_repro.benchmarks.ace.user import FINISH
from lopd_repro.benchmarks.client import Client, EndpointError, PromptTooLongError
from lopd_repro.errors import UserError
from lopd_repro.experience.endpoint import ChatEndpoint

Answerer = Callable[[dict[str, Any]], str]


@dataclass
class RelayLog:
    """What went through: counts, and the endpoints' failures."""

    agent_requests: int = 0
    user_requests: int = 0
    too_long: int = 0
    failures: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)


@dataclass(frozen=True)
class Agent:
    """How agent requests are changed; None keeps what the official code asks for."""

    client: Client
    model: str
    temperature: float | None
    max_tokens: int | None
    top_p: float | None
    top_k: int | None
    seed: str
    strip_think: bool
    overflow: str

    def __call__(self, body: dict[str, Any], log: RelayLog) -> str:
        messages = body["messages"]
        # Equal requests of one repeat get equal draws, whatever the order they arrive in.
        key = f"{self.seed}/{json.dumps(messages)}"
        request = {
            "model": self.model,
            "messages": messages,
            "temperature": _first(self.temperature, body.get("temperature")),
            "max_tokens": _first(self.max_tokens, body.get("max_tokens")),
            "top_p": _first(self.top_p, body.get("top_p")),
            "top_k": self.top_k,
            "seed": int.from_bytes(hashlib.sha256(key.encode()).digest()[:4], "big") >> 1,
        }
        try:
            reply = self.client.send({k: v for k, v in request.items() if v is not None})
        except PromptTooLongError:
            with log.lock:
                log.too_long += 1
            if self.overflow == "refuse":
                raise
            return FINISH
        return strip_thoughts(reply.text) if self.strip_think else reply.text


@contextmanager
def relay(agent: Agent, user: ChatEndpoint) -> Iterator[tuple[str, RelayLog]]:
    """A running relay: its address without a path, and its log."""
    log = RelayLog()

    def answer_user(body: dict[str, Any]) -> str:
        return str(user.reply(body["messages"]).get("content") or "")

    ways: dict[str, Answerer] = {
        "/agent/v1/chat/completions": lambda body: agent(body, log),
        "/user/v1/chat/completions": answer_user,
    }
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(ways, log))
    server.daemon_threads = True
    thread = threading.Thread(
        target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True
    )
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", log
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _first(*values: Any) -> Any:
    return next((value for value in values if value is not None), None)


def _handler(ways: dict[str, Answerer], log: RelayLog) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            content = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            answer = ways.get(self.path)
            try:
                if answer is None:
                    raise EndpointError(f"{self.path} is not served")
                text = answer(json.loads(content))
            except (EndpointError, PromptTooLongError, UserError, ValueError, KeyError) as error:
                with log.lock:
                    log.failures.append(f"{self.path.split('/')[1]}: {error}")
                # A status that clients do not try again: the relay has tried already.
                self._send(400, {"error": {"message": "the endpoint failed", "code": 400}})
                return
            with log.lock:
                log.agent_requests += self.path.startswith("/agent/")
                log.user_requests += self.path.startswith("/user/")
            message = {"role": "assistant", "content": text}
            choice = {"index": 0, "finish_reason": "stop", "message": message}
            self._send(
                200,
                {
                    "id": "relay",
                    "object": "chat.completion",
                    "created": 0,
                    "model": "relay",
                    "choices": [choice],
                },
            )

        def _send(self, status: int, value: dict[str, Any]) -> None:
            body = json.dumps(value).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: Any) -> None: ...

    return Handler
