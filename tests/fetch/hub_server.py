"""A stand-in for the Hugging Face hub: the few addresses that its library asks, over made files."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Hub:
    """repositories: files by (`models` or `datasets`, name). What was asked is in `asked`.

    `cut` names a file of which only half is sent before the connection is closed, every time;
    `cut_once` the same for its first request alone.
    """

    def __init__(self) -> None:
        self.repositories: dict[tuple[str, str], dict[str, bytes]] = {}
        self.asked: list[tuple[str, str, str]] = []
        self.cut = ""
        self.cut_once = ""
        self.url = ""

    def downloads(self) -> list[str]:
        """Names of files whose content was asked for, in order."""
        return [path.rsplit("/", 1)[1] for verb, path, _ in self.asked if verb == "GET"
                and "/resolve/" in path]  # fmt: skip


@contextmanager
def hub() -> Iterator[Hub]:
    """A running stand-in."""
    state = Hub()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: Any) -> None:
            pass

        def do_HEAD(self) -> None:
            self._file(send=False)

        def do_GET(self) -> None:
            path = self.path.split("?")[0]
            if not path.startswith("/api/"):
                self._file(send=True)
                return
            state.asked.append(("GET", path, ""))
            parts = path.removeprefix("/api/").split("/")
            if len(parts) < 3:
                self._json({"error": "unknown"}, 404)
                return
            kind, owner, name, *rest = parts
            files = state.repositories.get((kind, f"{owner}/{name}"))
            if files is None:
                self._json({"error": "Repository not found"}, 404, {"X-Error-Code": "RepoNotFound"})
            elif rest and rest[0] == "tree":
                self._json([_entry(path, data) for path, data in files.items()])
            else:
                self._json({"id": f"{owner}/{name}", "sha": COMMIT, "siblings": []})

        def _file(self, send: bool) -> None:
            path = self.path.split("?")[0].lstrip("/")
            kind = "datasets" if path.startswith("datasets/") else "models"
            repository, _, rest = path.removeprefix("datasets/").partition("/resolve/")
            name = rest.partition("/")[2]
            asked_range = self.headers.get("Range", "")
            state.asked.append(("GET" if send else "HEAD", f"/resolve/{name}", asked_range))
            data = state.repositories.get((kind, repository), {}).get(name)
            if data is None:
                self._json({"error": "Entry not found"}, 404, {"X-Error-Code": "EntryNotFound"})
                return
            start = int(asked_range.removeprefix("bytes=").split("-")[0]) if asked_range else 0
            self.send_response(206 if asked_range else 200)
            self.send_header("ETag", f'"{hashlib.sha256(data).hexdigest()}"')
            self.send_header("X-Repo-Commit", COMMIT)
            self.send_header("Accept-Ranges", "bytes")
            if asked_range:
                span = f"bytes {start}-{len(data) - 1}/{len(data)}"
                self.send_header("Content-Range", span)
            self.send_header("Content-Length", str(len(data) - start))
            self.end_headers()
            if not send:
                return
            if name in (state.cut, state.cut_once):
                state.cut_once = "" if name == state.cut_once else state.cut_once
                self.wfile.write(data[start : start + (len(data) - start) // 2])
                self.close_connection = True
                return
            self.wfile.write(data[start:])

        def _json(
            self, value: Any, status: int = 200, headers: dict[str, str] | None = None
        ) -> None:
            body = json.dumps(value).encode()
            self.send_response(status)
            for name, text in (headers or {}).items():
                self.send_header(name, text)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    state.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _entry(path: str, data: bytes) -> dict[str, Any]:
    digest = hashlib.sha256(data).hexdigest()
    return {
        "type": "file",
        "path": path,
        "oid": digest[:40],
        "size": len(data),
        "lfs": {"oid": digest, "size": len(data), "pointerSize": 130},
    }
