"""Grades programs one after the other inside one sandbox.

    python -I judge.py [MODULE ...] < jobs > verdicts

Modules are imported before the first program, so that programs need not wait for them, and those
that every program is given come first. Jobs come
as messages (eight bytes of length, JSON): the program, then its tests. Three processes:

    judge      forks a clerk for each job, removes what the job leaves behind
    clerk      forks the program, then reads the tests, feeds and watches it, writes the verdict
    program    program.py; it has never had the tests in its memory, and cannot look into the clerk

Where the sandbox gives no process namespace, only the first job is done: there, leftovers could
not be removed for certain.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import os
import select
import shutil
import signal
import sys
import time
from decimal import Decimal
from pathlib import Path
from typing import Any

WRONG = -2
DIED = -5
_PR_SET_DUMPABLE, _PR_SET_CHILD_SUBREAPER = 4, 36


def main() -> None:
    sys.path.insert(0, str(Path(__file__).parent))
    inside = importlib.import_module("program")
    del sys.path[0]
    for name in (*inside.NEEDED, *sys.argv[1:]):
        try:
            importlib.import_module(name)
        except ImportError:
            continue
    sys.modules.pop("program")
    sys.argv = [""]
    prctl = ctypes.CDLL(None).prctl
    prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    alone = os.getppid() == 1 and os.getpid() < 10
    gc.collect()
    gc.freeze()  # what is loaded now is shared by all programs
    while (job := _message(0)) is not None:
        pid = os.fork()
        if pid == 0:
            _clerk(inside, job)
        status = os.waitpid(pid, 0)[1]
        if status or not alone:
            return
        _sweep()


def _message(descriptor: int) -> Any:
    """The next message, None at the end."""
    size = _exactly(descriptor, 8)
    return None if size is None else json.loads(_exactly(descriptor, int.from_bytes(size)) or b"")


def _exactly(descriptor: int, size: int) -> bytes | None:
    parts = []
    while size:
        part = os.read(descriptor, min(size, 1 << 20))
        if not part:
            return None
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def _sweep() -> None:
    """Kill whatever else lives here, and empty the working folder."""
    while True:
        try:
            os.kill(-1, signal.SIGKILL)
        except ProcessLookupError:
            break
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            break
    for path in Path.cwd().iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def _clerk(inside: Any, job: dict[str, Any]) -> None:
    try:
        down_read, down_write = os.pipe()
        up_read, up_write = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.setsid()
            nothing = os.open(os.devnull, os.O_RDWR)
            for target in (0, 1, 2):
                os.dup2(nothing, target)
            for descriptor in (nothing, down_write, up_read):
                os.close(descriptor)
            inside.serve(inside.Channel(down_read, up_write), job)
        os.close(down_read)
        os.close(up_write)
        tests = _message(0)
        verdict = Clerk(job, tests, pid, inside.Channel(up_read, down_write)).verdict()
        line = json.dumps({"id": job["id"], **verdict}).encode() + b"\n"
        while line:
            line = line[os.write(1, line) :]
        os._exit(0)
    except BaseException as error:
        os.write(2, f"clerk: {type(error).__name__}: {error}\n".encode())
        os._exit(1)


class Clerk:
    """Feeds one program its tests and keeps the record."""

    def __init__(self, job: dict[str, Any], tests: list[Any], pid: int, channel: Any) -> None:
        self.job, self.tests, self.pid, self.channel = job, tests, pid, channel
        self.stdin = job["fn_name"] is None
        self.codes: list[Any] = []
        self.given = -1
        longest = max((room(expected) for _, expected in tests), default=0)
        self.most = 12 * longest + (1 << 20)  # a character takes at most 12 bytes of JSON
        self.broken = "" if self.stdin else _broken(tests)
        self.report: dict[str, Any] | None = None
        self.started = time.monotonic()
        self.end = self.started + (job["timeout"] + 1) * len(tests) + 5

    def verdict(self) -> dict[str, Any]:
        """Listen until the program reports, dies or the global limit is reached."""
        os.set_blocking(self.channel.reader, False)
        ended = self._listen()
        seconds = time.monotonic() - self.started - stalled(self.pid)
        os.kill(self.pid, signal.SIGKILL)
        usage = os.wait4(self.pid, 0)[2]
        report = self.report
        codes, error, detail, alarm = [WRONG], DIED, "", False
        if report is not None:
            codes, error, detail = self._codes(report)
            alarm = bool(report.get("alarm"))
        return {
            "codes": codes,
            "error_code": error,
            "detail": detail[:300],
            "ended": ended,
            "timed_out": error is not None and (alarm or ended == "global_timeout"),
            "seconds": round(seconds, 4),
            "cpu_seconds": round(usage.ru_utime + usage.ru_stime, 4),
        }

    def _codes(self, report: dict[str, Any]) -> tuple[list[Any], Any, str]:
        detail = str(report.get("detail", ""))
        if report.get("replace"):
            return [report["code"]], report["code"], detail
        if not self.stdin:
            codes = report["codes"]
            if "code" in report:
                return codes, report["code"], detail
            return codes, None if all(code > 0 for code in codes) else WRONG, detail
        if "code" in report:
            return [*self.codes, report["code"]], report["code"], detail
        return self.codes, WRONG if self.codes and self.codes[-1] == WRONG else None, detail

    def _listen(self) -> str:
        program = os.pidfd_open(self.pid)
        poll = select.poll()
        poll.register(self.channel.reader, select.POLLIN)
        poll.register(program, select.POLLIN)
        data = bytearray()
        while True:
            left = self.end - time.monotonic()
            if left <= 0 and (left := left + stalled(self.pid)) <= 0:
                return "global_timeout"
            events = dict(poll.poll(left * 1000))
            gone = program in events
            while True:
                try:
                    part = os.read(self.channel.reader, 1 << 20)
                except BlockingIOError:
                    break
                if not part:
                    return "died"
                data += part
                if len(data) > self.most:
                    return "died"
                while len(data) >= 8 and len(data) >= 8 + (size := int.from_bytes(data[:8])):
                    message = json.loads(bytes(data[8 : 8 + size]))
                    del data[: 8 + size]
                    if "codes" in message:
                        if not self._complete(message):
                            return "died"
                        self.report = message
                        return "reported"
                    self._answer(message)
            if gone:
                return "died"

    def _complete(self, message: dict[str, Any]) -> bool:
        """Whether a report of success is borne out by what was compared here."""
        if "code" in message or not self.stdin:
            return True
        return len(self.codes) == len(self.tests) or WRONG in self.codes

    def _answer(self, message: dict[str, Any]) -> None:
        if "next" in message:
            self.given += 1
            given, expected = self.tests[self.given]
            given = {"input": given, "room": room(expected)}
            self._send({"broken": self.broken} if self.broken else given)
        elif "called" in message:
            self._send({"expected": self.tests[self.given][1]})
        elif "output" in message and len(self.codes) <= self.given:
            try:
                right = same_output(message["output"], self.tests[self.given][1])
            except Exception:
                self._send({"code": "broken"})
                return
            self._judged(right)
        elif "flood" in message and len(self.codes) <= self.given:
            self._judged(False)

    def _judged(self, right: bool) -> None:
        self.codes.append(True if right else WRONG)
        self._send({"code": self.codes[-1]})

    def _send(self, value: dict[str, Any]) -> None:
        try:
            self.channel.send(value)
        except BrokenPipeError:
            return


def stalled(pid: int) -> float:
    """Seconds that a process was ready to run and others had all processors."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0


def _broken(tests: list[Any]) -> str:
    """Why the tests of a functional problem cannot be read, "" if they can: JSON, line by line."""
    try:
        for text, _ in tests:
            for line in text.split("\n"):
                json.loads(line)
        for _, expected in tests:
            json.loads(expected)
    except ValueError as error:
        return str(error)
    return ""


def room(expected: str) -> int:
    """How long a printed text may be: far longer than any that equals the expected one."""
    return (1 << 20) + 64 * len(expected)


def same_output(printed: str, expected: str) -> bool:
    """The official comparison: stripped lines, equal or equal as lists of exact decimals."""
    ours, theirs = (
        [line.strip() for line in text.strip().split("\n")] for text in (printed, expected)
    )
    if len(ours) != len(theirs):
        return False
    return all(
        left == right or _same_numbers(left, right)
        for left, right in zip(ours, theirs, strict=True)
    )


def _same_numbers(left: str, right: str) -> bool:
    try:
        ours, theirs = ([Decimal(word) for word in line.split()] for line in (left, right))
    except Exception:
        return False
    return ours == theirs


if __name__ == "__main__":
    main()
