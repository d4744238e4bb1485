"""A local OpenAI-compatible server that answers with given messages."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from lopd_repro.experience.endpoint import EndpointSettings

Answer = Callable[[dict[str, Any]], dict[str, Any] | int]
"""From the request's body to an assistant message, or to an HTTP status."""


@contextmanager
def serve(answer: Answer, requests: list[dict[str, Any]]) -> Iterator[EndpointSettings]:
    """Settings of a running server; `requests` collects bodies, paths and keys."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            key = self.headers.get("Authorization")
            requests.append({**body, "path": self.path, "key": key})
            found = answer(body)
            status = found if isinstance(found, int) else 200
            self.send_response(status)
            self.end_headers()
            if status == 200:
                self.wfile.write(json.dumps({"choices": [{"message": found}]}).encode())

        def log_message(self, *args: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        url = f"http://127.0.0.1:{server.server_address[1]}/v1"
        yield EndpointSettings(url, "strong", pause_seconds=0.0)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
