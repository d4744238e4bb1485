"""One process of a program under the warden's eyes: started, watched, ended, its cases concluded.

It holds all cases of a function or of a script that cannot tell one run from the next (`_repeat`),
else one.
"""

from __future__ import annotations

import fcntl
import marshal
import os
import select
import signal
import time
from contextlib import suppress

from lopd_repro.sandbox import _confine, _harness
from lopd_repro.sandbox._supervisor import send

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from lopd_repro.sandbox._zygote import Warden

_CHUNK = 1 << 16
_RESULTS, _GO = 3, 4  # the pipes' numbers in the program's process


def _fill(descriptor: int, data: bytes) -> None:
    """Make a file in memory hold this, to be read from its start."""
    os.ftruncate(descriptor, 0)
    os.lseek(descriptor, 0, os.SEEK_SET)
    while data:
        data = data[os.write(descriptor, data) :]
    os.lseek(descriptor, 0, os.SEEK_SET)


def _apart(*descriptors: int) -> list[int]:
    """Copies that are out of the way of the numbers that they are to have."""
    return [fcntl.fcntl(one, fcntl.F_DUPFD, 64) for one in descriptors]


class Process:
    """One process of the program."""

    def __init__(self, warden: Warden, todo: list[tuple[int, Any]]) -> None:
        self.warden, self.todo = warden, todo
        self.function = warden.job["kind"] == "function"
        self.room = warden.job["output_kb"] * 1024
        self.output = {"stdout": bytearray(), "stderr": bytearray()}
        self.frames = bytearray()
        self.raised = b""
        self.done = 0
        self.used = 0.0  # processor time when the last case was done
        self.broken = ""

    def work(self) -> None:
        self.stdin = self._input()
        pipes = {name: os.pipe() for name in ("stdout", "stderr", "results", "record")}
        go, self.go = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                self._program(go, {name: ends[1] for name, ends in pipes.items()})
            except _confine.RefusedError as error:
                send(pipes["record"][1], "failed", str(error))
            finally:
                os._exit(1)
        for theirs in (go, *(ends[1] for ends in pipes.values())):
            os.close(theirs)
        self.poll = select.epoll()
        self.readers = {ours: name for name, (ours, _) in pipes.items()}
        for descriptor in self.readers:
            os.set_blocking(descriptor, False)
            self.poll.register(descriptor, select.EPOLLIN)
        self.handle = os.pidfd_open(pid)
        self.poll.register(self.handle, select.EPOLLIN)
        self.record = bytearray()
        reason = self._watch(pid)
        status, cpu, memory_kb = self._end(pid, reason)
        for descriptor in list(self.readers):
            while self._take(descriptor):
                pass
        for descriptor in (*self.readers, self.handle, self.stdin, self.go):
            os.close(descriptor)
        self.poll.close()
        self._note_record()
        self._conclude(reason, status, cpu, memory_kb)

    def _input(self) -> int:
        """The case's input as a file: it needs no feeding, and the program may seek in it."""
        if self.function:
            return os.open(os.devnull, os.O_RDONLY)
        descriptor = os.memfd_create("input", os.MFD_CLOEXEC)
        _fill(descriptor, self.todo[0][1])
        return descriptor

    def _program(self, go: int, pipes: dict[str, int]) -> None:
        os.setsid()
        results, go = _apart(pipes["results"], go)
        for target, source in enumerate((self.stdin, pipes["stdout"], pipes["stderr"])):
            os.dup2(source, target)
        for number in (signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        job = self.warden.job
        record = self.warden.lock.apply()
        os.chdir(self.warden.config["scratch"])
        send(pipes["record"], "record", record)
        os.dup2(results, _RESULTS, inheritable=False)
        os.dup2(go, _GO, inheritable=False)
        os.closerange(_GO + 1, 4096)
        if self.function:
            os.close(_GO)
            _harness.run_function(job["code"], job["entry_point"], self.todo, _RESULTS)
        numbers = [number for number, _ in self.todo]
        _harness.run_stdin(job["code"], numbers, _RESULTS, _GO, self.warden.cpu_seconds)

    def _watch(self, pid: int) -> str:
        """Until the process ends or must be ended; returns why, if the latter."""
        clock = (~pid << 3) | 2  # the kernel's name for that process's processor time
        warden = self.warden
        started, done_before = time.monotonic(), 0
        while True:
            now, used = time.monotonic(), self._clock(clock)
            if self.done != done_before:
                if not self.function:
                    warden.cases[-1]["cpu_seconds"] = used - self.used
                started, self.used, done_before = now, used, self.done
            left_cpu = warden.cpu_seconds - (used - self.used)
            left_wall = warden.wall_seconds - (now - started)
            if left_cpu <= 0 or left_wall <= 0:
                return "timeout"
            for descriptor, _ in self.poll.poll(max(0.001, min(left_cpu, left_wall))):
                if descriptor == self.handle:
                    return ""
                self._take(descriptor)
            if self.broken:
                return "output"

    @staticmethod
    def _clock(clock: int) -> float:
        try:
            return time.clock_gettime(clock)
        except OSError:
            return 0.0

    def _take(self, descriptor: int) -> bool:
        try:
            data = os.read(descriptor, _CHUNK)
        except BlockingIOError:
            return False
        name = self.readers[descriptor]
        if not data:
            self.poll.unregister(descriptor)
            del self.readers[descriptor]
            os.close(descriptor)
            return False
        if name == "record":
            self.record += data
        elif name == "results":
            self.frames += data
            self._read_frames()
        else:
            self.output[name] += data[: self.room]
            if len(data) > self.room:
                self.broken = "too much output"
            self.room = max(0, self.room - len(data))
        return True

    def _read_frames(self) -> None:
        # After a frame that cannot be, what was still on its way counts no more.
        while len(self.frames) >= 8 and not self.broken:
            kind = int.from_bytes(self.frames[:4], "little")
            size = int.from_bytes(self.frames[4:8], "little")
            if size > self.warden.job["output_kb"] * 1024:
                self.broken = "too much output"
                return
            if len(self.frames) < 8 + size:
                return
            content = bytes(self.frames[8 : 8 + size])
            del self.frames[: 8 + size]
            if kind == _harness.RAISED:
                self.raised = content
            elif self.done < len(self.todo) and kind == self.todo[self.done][0] and self.function:
                self.done += 1
                self.warden.cases.append({"verdict": "ok", "value": content})
            elif self.done + 1 < len(self.todo) and (kind, size) == (self.todo[self.done][0], 0):
                self._next_script()
            else:
                self.broken = "it wrote what no program's report can be"
                return

    def _next_script(self) -> None:
        """A case of a script ended well, what it printed is in the pipes; give the next input."""
        for descriptor in [d for d, name in self.readers.items() if name in self.output]:
            while not self.broken and self._take(descriptor):
                pass
        if self.broken:
            return
        self.warden.cases.append({"verdict": "ok", "code": 0, **self._printed()})
        self.done += 1
        self.room = self.warden.job["output_kb"] * 1024
        _fill(self.stdin, self.todo[self.done][1])
        with suppress(BrokenPipeError):
            os.write(self.go, b"g")

    def _printed(self) -> dict[str, bytes]:
        """Output since the last call."""
        texts = {name: bytes(data) for name, data in self.output.items()}
        for data in self.output.values():
            data.clear()
        return texts

    def _end(self, pid: int, reason: str) -> tuple[int, float, int]:
        if reason:
            os.kill(pid, signal.SIGKILL)
        _, status, usage = os.wait4(pid, 0)
        self.warden.end_others()
        return status, usage.ru_utime + usage.ru_stime, usage.ru_maxrss

    def _note_record(self) -> None:
        if len(self.record) < 4:
            return
        kind, value = marshal.loads(bytes(self.record[4:]))
        if kind == "failed":
            raise _confine.RefusedError(value)
        self.warden.record = value

    def _conclude(self, reason: str, status: int, cpu: float, memory_kb: int) -> None:
        """Add the verdict on the case at which the process ended, if it did not finish all.

        A script that crashed in a process that others had used before counts when it does so in one
        of its own.
        """
        code = os.waitstatus_to_exitcode(status)
        name = self.raised.partition(b"\n")[0]
        if reason == "timeout" or code == -signal.SIGXCPU:
            verdict = "timeout"
        elif reason or self.broken:
            verdict = "refused"
        elif name == b"MemoryError":
            verdict = "memory"
        elif name == b"PermissionError":
            verdict = "refused"
        elif code != 0 or self.raised:
            verdict = "crash"
        else:
            verdict = "ok"
        case = {
            "verdict": verdict,
            "code": code,
            "raised": self.raised,
            "broken": self.broken,
            "cpu_seconds": cpu,
            "memory_kb": memory_kb,
            **self._printed(),
        }
        if not self.function:
            certain = verdict in ("ok", "timeout")  # no earlier run can have brought that about
            if self.done == 0 or not certain:
                self.warden.together = False
            if self.done == 0 or certain:
                self.warden.cases.append({**case, "cpu_seconds": max(0.0, cpu - self.used)})
            return
        if self.function and self.done == len(self.todo):
            if self.todo:
                self.warden.cases[-1] |= {**case, "verdict": "ok"}
            return
        if self.function and verdict == "ok":
            case["verdict"] = "crash"  # it left without an answer
        self.warden.cases.append(case)
