"""The parent's end of one worker process: start, send, receive, kill.

The process is started by file path with `-s -S -P -B` and an environment of our own. That is
`-I` without the part that also ignores PYTHONHASHSEED, which must be fixed: with random string
hashes the order of a set, and so an observation, would depend on the worker.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SCRIPT = Path(__file__).with_name("_worker.py")
UNPRIVILEGED_UID = 65534
START_SECONDS = 60.0


@dataclass(frozen=True)
class Limits:
    """What one worker and one request may use; a breach costs the episode.

    Seconds are wall time of one request (a score is one request for the whole checklist).
    `observation_chars` refuses longer tool results; `output_chars` keeps that much of what
    was printed in one request.
    """

    reset_seconds: float = 10.0
    step_seconds: float = 5.0
    score_seconds: float = 10.0
    memory_mb: int = 1024
    file_mb: int = 16
    open_files: int = 64
    observation_chars: int = 200_000
    output_chars: int = 4_000

    @property
    def longest_seconds(self) -> float:
        return max(self.reset_seconds, self.step_seconds, self.score_seconds)


class WorkerDiedError(Exception):
    """The process ended, or wrote something that is no answer."""


class Worker:
    """A running worker. Both pipes are non-blocking on this side."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.report: dict[str, Any] = {}
        self._incoming = bytearray()
        self._outgoing = bytearray()
        self._scratch = tempfile.mkdtemp(prefix="lopd-env-")
        if os.geteuid() == 0:
            with suppress(OSError):
                os.chown(self._scratch, UNPRIVILEGED_UID, UNPRIVILEGED_UID)
        their_requests, self.requests = os.pipe()
        self.answers, their_answers = os.pipe()
        try:
            self.process = self._start(their_requests, their_answers)
        finally:
            os.close(their_requests)
            os.close(their_answers)
        os.set_blocking(self.requests, False)
        os.set_blocking(self.answers, False)
        self.started = time.monotonic()

    def _start(self, requests: int, answers: int) -> subprocess.Popen[bytes]:
        limits = self.limits
        config = {
            "requests": requests,
            "answers": answers,
            "parent": os.getpid(),
            "uid": UNPRIVILEGED_UID,
            "scratch": self._scratch,
            "packages": sorted({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}),
            "cpu_seconds": limits.longest_seconds * 2 + 10,
            "memory_mb": limits.memory_mb,
            "file_mb": limits.file_mb,
            "open_files": limits.open_files,
            "observation_chars": limits.observation_chars,
            "output_chars": limits.output_chars,
        }
        environment = {
            "PYTHONHASHSEED": "0",
            "PYTHONUTF8": "1",
            "LANG": "C.UTF-8",
            "TZ": "UTC",
            "TMPDIR": self._scratch,
            "HOME": self._scratch,
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
            "MKL_NUM_THREADS": "1",
        }
        with (Path(self._scratch) / "start.log").open("wb") as log:
            return subprocess.Popen(
                [sys.executable, "-s", "-S", "-P", "-B", str(SCRIPT), json.dumps(config)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
                cwd=self._scratch,
                env=environment,
                pass_fds=(requests, answers),
                start_new_session=True,
            )

    def put(self, message: list[Any]) -> None:
        """Queue one request; `flush` sends it."""
        self._outgoing += json.dumps(message).encode() + b"\n"

    @property
    def unsent(self) -> bool:
        return bool(self._outgoing)

    def flush(self) -> None:
        """Send what the pipe takes now."""
        try:
            while self._outgoing:
                sent = os.write(self.requests, bytes(self._outgoing[: 1 << 16]))
                del self._outgoing[:sent]
        except BlockingIOError:
            return
        except BrokenPipeError:
            self._outgoing.clear()  # `take` finds the end of the other pipe and says so

    def take(self) -> list[list[Any]]:
        """Whole answers that have arrived, rubbish as the kind `rubbish`.

        `WorkerDiedError` at the end of the pipe.
        """
        ended = False
        try:
            while True:
                chunk = os.read(self.answers, 1 << 16)
                if not chunk:
                    ended = True
                    break
                self._incoming += chunk
                if len(chunk) < 1 << 16:
                    break
        except BlockingIOError:
            pass
        *lines, rest = self._incoming.split(b"\n")
        self._incoming = bytearray(rest)
        answers = []
        for line in lines:
            try:
                answer = json.loads(line)
            except (ValueError, RecursionError):
                answer = None
            if not (isinstance(answer, list) and len(answer) == 4):
                answers.append([None, "rubbish", None, ""])
                break
            answers.append(answer)
        # Six bytes are the most JSON's escapes make of one character's half.
        if len(rest) > 12 * self.limits.observation_chars + (1 << 24):
            answers.append([None, "rubbish", None, ""])
        if ended and not answers:
            raise WorkerDiedError(self.why_it_ended())
        return answers

    def why_it_ended(self) -> str:
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(1.0)
        code = self.process.poll()
        if code is None:
            return "it closed its answer pipe"
        if code < 0:
            return f"killed by {signal.Signals(-code).name}"
        return f"exited with code {code}"

    def start_log(self) -> str:
        """What was written before the first request, for the message when a start fails."""
        with suppress(OSError):
            return (Path(self._scratch) / "start.log").read_text(errors="replace")[-2000:]
        return ""

    def kill(self) -> None:
        """End the whole process group and remove the scratch folder. May be called twice."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        for descriptor in (self.requests, self.answers):
            if descriptor >= 0:
                os.close(descriptor)
        self.requests = self.answers = -1
        shutil.rmtree(self._scratch, ignore_errors=True)
