"""A scripted OpenAI-compatible server for tests of clients: it answers what a test tells it to.

    def script(request: Asked) -> Action:
        if request.repeat == 0:                      # the first time this very body is sent
            return Drop()
        return Say('<tool_call>\\n{"name": "ls", "arguments": {}}\\n</tool_call>')

    with stub(script) as server:
        rows = benchmark.run(server.endpoint, state)
    assert len(server.asked) == 12

A script is a function from a request to an action:

- `Say(text)`: a good answer, right or wrong as the test chooses; `tool_calls` is a list of
  (name, arguments) pairs that chat answers carry as OpenAI `tool_calls` (content stays `text`,
  None when empty); `finish` and `usage` (prompt, completion) can be set.
- `Raw(body, status)`: any bytes, so also malformed JSON: `Raw(b'{"choices": [')`.
- `Slow(seconds, action)`: wait, then act. The wait ends early when the stub is stopped.
- `Drop(partial)`: close the connection after sending `partial` (no status line when empty; with
  `partial=True` a complete head and half of a body).
- `Overflow(limit, found)`: the 400 that vLLM and OpenAI clients see when a prompt is too long.
- `Fail(status, message)`: an error status in OpenAI's error form, 500 unless told otherwise.

`Asked` has `path` ("/v1/chat/completions" or "/v1/completions"), `body`, `headers`, `repeat`
(how often an equal body had come before), `index` (order of arrival), and `text`: the prompt of a
completion, or the content of a chat's last message. `/health` and `/v1/models` always answer.
`server.asked` collects the requests; `server.errors` what a script itself raised (the client sees
a 500 then), and leaving the `with` block raises the first of those. Requests are served in
parallel; `server.most_at_once` is the largest number that were in flight together.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from lopd_repro.serving.settings import Endpoint


@dataclass(frozen=True)
class Asked:
    """One request as the stub saw it."""

    path: str
    body: dict[str, Any]
    headers: dict[str, str]
    index: int
    repeat: int

    @property
    def chat(self) -> bool:
        return self.path.endswith("/chat/completions")

    @property
    def text(self) -> str:
        """Prompt of a completion, or content of a chat's last message."""
        found = self.body["messages"][-1].get("content") if self.chat else self.body["prompt"]
        return found if isinstance(found, str) else json.dumps(found)


@dataclass(frozen=True)
class Say:
    text: str = ""
    tool_calls: Sequence[tuple[str, dict[str, Any]]] = ()
    finish: str = ""
    usage: tuple[int, int] = (10, 5)


@dataclass(frozen=True)
class Raw:
    body: bytes
    status: int = 200


@dataclass(frozen=True)
class Drop:
    partial: bool = False


@dataclass(frozen=True)
class Overflow:
    limit: int = 1024
    found: int = 2000


@dataclass(frozen=True)
class Fail:
    status: int = 500
    message: str = "scripted failure"


@dataclass(frozen=True)
class Slow:
    seconds: float
    action: Say | Raw | Drop | Overflow | Fail = field(default_factory=Say)


Action = Say | Raw | Drop | Overflow | Fail | Slow
Script = Callable[[Asked], Action]


class StubServer:
    """The running stub: where it is and what it was asked."""

    def __init__(self, script: Script, model: str) -> None:
        self.asked: list[Asked] = []
        self.errors: list[Exception] = []
        self.most_at_once = 0
        self.model = model
        self._script = script
        self._lock = threading.Lock()
        self._at_once = 0
        self._stopped = threading.Event()
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._http.daemon_threads = True
        self._thread = threading.Thread(
            target=self._http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
        )
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_address[1]}/v1"

    @property
    def endpoint(self) -> Endpoint:
        return Endpoint(self.url, self.model, {"engine": "stub"})

    def stop(self) -> None:
        self._stopped.set()
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()

    def act(self, path: str, body: dict[str, Any], headers: dict[str, str]) -> Action:
        """Note the request, ask the script, wait where it says so."""
        with self._lock:
            repeat = sum(a.path == path and a.body == body for a in self.asked)
            asked = Asked(path, body, headers, len(self.asked), repeat)
            self.asked.append(asked)
            self._at_once += 1
            self.most_at_once = max(self.most_at_once, self._at_once)
        try:
            action = self._script(asked)
            if isinstance(action, Slow):
                self._stopped.wait(action.seconds)
                action = action.action
            return action
        except Exception as error:
            self.errors.append(error)
            return Fail(500, f"the test's script raised {error!r}")
        finally:
            with self._lock:
                self._at_once -= 1


@contextmanager
def stub(script: Script, model: str = "stub") -> Iterator[StubServer]:
    """A running stub; stopped at the end, where an error of the script comes up."""
    server = StubServer(script, model)
    try:
        yield server
    finally:
        server.stop()
    if server.errors:
        raise server.errors[0]


def _answer(say: Say, model: str, chat: bool) -> dict[str, Any]:
    finish = say.finish or ("tool_calls" if say.tool_calls else "stop")
    choice: dict[str, Any] = {"index": 0, "finish_reason": finish, "logprobs": None}
    if chat:
        choice["message"] = message = {"role": "assistant", "content": say.text or None}
        if say.tool_calls:
            message["tool_calls"] = [
                {
                    "id": f"call_{n}",
                    "type": "function",
                    "function": {"name": name, "arguments": json.dumps(arguments)},
                }
                for n, (name, arguments) in enumerate(say.tool_calls)
            ]
        else:
            message["content"] = say.text
    else:
        choice["text"] = say.text
    prompt, completion = say.usage
    return {
        "id": "stub-1",
        "object": "chat.completion" if chat else "text_completion",
        "created": 0,
        "model": model,
        "choices": [choice],
        "usage": {
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": prompt + completion,
        },
    }


def _error(message: str, kind: str, code: int, param: str | None = None) -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def _handler(stub_server: StubServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_GET(self) -> None:
            if self.path == "/v1/models":
                models = [{"id": stub_server.model, "object": "model", "owned_by": "stub"}]
                self._json(200, {"object": "list", "data": models})
            elif self.path == "/health":
                self._send(200, b"")
            else:
                self._json(404, _error("no such path", "NotFoundError", 404))

        def do_POST(self) -> None:
            length = int(self.headers.get("Content-Length", 0))
            body = json.loads(self.rfile.read(length))
            if self.path not in ("/v1/chat/completions", "/v1/completions"):
                self._json(404, _error("no such path", "NotFoundError", 404))
                return
            action = stub_server.act(self.path, body, dict(self.headers))
            try:
                self._do(action)
            except (BrokenPipeError, ConnectionResetError):
                self.close_connection = True  # a client that gave up is part of the test

        def _do(self, action: Action) -> None:
            if isinstance(action, Say):
                chat = self.path.endswith("/chat/completions")
                self._json(200, _answer(action, stub_server.model, chat))
            elif isinstance(action, Raw):
                self._send(action.status, action.body)
            elif isinstance(action, Overflow):
                message = (
                    f"This model's maximum context length is {action.limit} tokens. However, "
                    f"your request has {action.found} input tokens. Please reduce the length of "
                    "the input messages."
                )
                self._json(400, _error(message, "BadRequestError", 400, "input_tokens"))
            elif isinstance(action, Fail):
                self._json(action.status, _error(action.message, "Scripted", action.status))
            elif isinstance(action, Drop):
                if action.partial:
                    self.send_response(200)
                    self.send_header("Content-Type", "application/json")
                    self.send_header("Content-Length", "1000")
                    self.end_headers()
                    self.wfile.write(b'{"choices": [{"index"')
                self.close_connection = True

        def _json(self, status: int, value: dict[str, Any]) -> None:
            self._send(status, json.dumps(value).encode())

        def _send(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: Any) -> None: ...

    return Handler
