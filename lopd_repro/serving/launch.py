"""`serve`: start a server on a free loopback port, wait until it answers, stop it at the end."""

from __future__ import annotations

import contextlib
import dataclasses
import http.client
import importlib.metadata
import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from lopd_repro.errors import UserError
from lopd_repro.serving import supervise, vllm
from lopd_repro.serving.settings import Endpoint, ServerSettings

_HF_PACKAGES = ("torch", "transformers", "tokenizers", "safetensors")
_TAIL_LINES = 15
# The last line of a traceback, with or without a logger's prefix (`... [file.py:12] `).
_RAISED = re.compile(r"(?:^|\] )([A-Za-z_][\w.]*(?:Error|Exception): .+)")


@contextmanager
def serve(checkpoint: Path, settings: ServerSettings, name: str, log: Path) -> Iterator[Endpoint]:
    """A checkpoint behind an OpenAI-compatible endpoint, for as long as the block runs.

    The server and everything it starts form one process group, which ends with the block, or with
    this process however that ends (`supervise.py`). `log` gets its output, after what an earlier
    server left there; `UserError` quotes its end where the server does not come up, or dies
    meanwhile.
    """
    if not Path(checkpoint).is_dir():
        raise UserError(f"checkpoint {checkpoint}: no such folder")
    if not (Path(checkpoint) / "config.json").is_file():
        raise UserError(f"checkpoint {checkpoint}: holds no config.json, so it is no model folder")
    with _reserved_port() as port, _open_log(log) as output:
        line, variables, versions = _plan(Path(checkpoint), settings, name, port)
        manifest: dict[str, Any] = {
            "engine": settings.engine,
            "name": name,
            "settings": dataclasses.asdict(settings),
            "command": line,
            "versions": versions,
        }
        start = output.tell()
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", supervise.__file__, str(supervise.GRACE_SECONDS), *line],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**variables, "PYTHONUNBUFFERED": "1"},
            start_new_session=True,
        )
        server = _Server(process, port, name, log, start)
        try:
            manifest["startup_seconds"] = server.wait(settings.startup_seconds)
            yield Endpoint(f"http://127.0.0.1:{port}/v1", name, manifest)
        except Exception as error:
            # A dead server explains whatever its clients ran into.
            if not server.quoted:
                server.check_answers(f"ended early (after which: {error})")
            raise
        finally:
            server.stop()


def answers(port: int, name: str) -> bool:
    """Whether a server on this loopback port is healthy and serves a model of this name."""
    try:
        if _get(port, "/health")[0] != 200:
            return False
        status, body = _get(port, "/v1/models")
        return status == 200 and name in [model["id"] for model in json.loads(body)["data"]]
    except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError):
        return False


@dataclasses.dataclass
class _Server:
    process: subprocess.Popen[bytes]
    port: int
    name: str
    log: Path
    log_start: int
    quoted: bool = False

    def wait(self, limit: float) -> float:
        """Seconds until the server answered with its model's name."""
        began = time.monotonic()
        while (passed := time.monotonic() - began) < limit:
            self.check_alive("did not start")
            if answers(self.port, self.name):
                return round(passed, 3)
            time.sleep(min(0.05 + passed / 20, 0.5))
        raise self._error(f"did not answer within {limit:g} seconds (serve.startup_seconds)")

    def check_alive(self, problem: str) -> None:
        if self.process.poll() is not None:
            raise self._error(f"{problem} (exit code {self.process.returncode})")

    def check_answers(self, problem: str) -> None:
        for _ in range(3):
            if answers(self.port, self.name):
                return
            time.sleep(0.2)
        try:
            code = str(self.process.wait(supervise.GRACE_SECONDS + 5))
        except subprocess.TimeoutExpired:
            code = "none, it runs but does not answer"
        raise self._error(f"{problem} (exit code {code})")

    def stop(self) -> None:
        """Ask the supervisor to end the server's process group, and wait until it has."""
        assert self.process.stdin is not None
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        self.process.wait()

    def _error(self, problem: str) -> UserError:
        self.quoted = True
        with self.log.open("rb") as file:
            file.seek(self.log_start)
            lines = file.read().decode(errors="replace").splitlines()
        # What a server writes while it ends can be long; the reason comes before.
        raised = next((found[1] for line in lines if (found := _RAISED.search(line))), "")
        reason = f"; its first error: {raised}" if raised else ""
        tail = "\n  ".join(lines[-_TAIL_LINES:]) or "(empty)"
        return UserError(f"server {self.name}: {problem}{reason}; the end of {self.log}:\n  {tail}")


def _plan(
    checkpoint: Path, settings: ServerSettings, name: str, port: int
) -> tuple[list[str], dict[str, str], dict[str, str]]:
    """Command line, environment and versions of an engine."""
    if settings.engine == "vllm":
        python = vllm.interpreter(settings)
        found = vllm.versions(python)
        cpu = vllm.runs_on_cpu(found)
        line = vllm.command(python, checkpoint, settings, name, port, cpu=cpu)
        return line, vllm.environment(), found
    text = json.dumps(dataclasses.asdict(settings), sort_keys=True)
    line = [sys.executable, "-m", "lopd_repro.serving.hf_server"]
    line += ["--checkpoint", str(checkpoint), "--settings", text]
    line += ["--name", name, "--port", str(port)]
    one_thread = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    found = {package: importlib.metadata.version(package) for package in _HF_PACKAGES}
    return line, {**one_thread, **os.environ}, found


@contextmanager
def _reserved_port() -> Iterator[int]:
    """A loopback port that nobody else gets.

    A bound socket that does not listen keeps the port from being handed out; a server that sets
    SO_REUSEADDR, as servers do, can bind it beside.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        yield int(held.getsockname()[1])


def _open_log(log: Path) -> IO[bytes]:
    Path(log).parent.mkdir(parents=True, exist_ok=True)
    return Path(log).open("ab")


def _get(port: int, path: str) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()
