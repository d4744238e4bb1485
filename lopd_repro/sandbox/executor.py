"""Many programs on many inputs, all cores busy, each program confined and apart from the others.

    with Executor(ProgramLimits()) as executor:
        results = executor.run([Job("stdin", code, ["1 2\\n"]), ...])

This is the lower level: what a program printed or returned, and how it ended. Whether that is
right is judged elsewhere (`programs` by the project's own rule, benchmarks by theirs); expected
results are no part of a job, so no program can find them.

One warm interpreter forks a process for every program; after a case that ends the process, a new
one goes on with the rest. A script gets one for every case, unless it could not tell (`_repeat`).
A time-out counts only if it comes again when the program runs alone.
"""

from __future__ import annotations

import contextlib
import itertools
import marshal
import os
import select
import signal
import socket
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from lopd_repro.sandbox._values import Foreign as Foreign
from lopd_repro.sandbox._values import ValueRefusedError, decode
from lopd_repro.sandbox.launch import LAYERS, SandboxError, allowed_paths, program_roots

PRELOAD = (
    "bisect",
    "collections",
    "copy",
    "datetime",
    "decimal",
    "fractions",
    "functools",
    "heapq",
    "io",
    "itertools",
    "json",
    "math",
    "operator",
    "os",
    "random",
    "re",
    "statistics",
    "string",
    "sys",
    "threading",
    "time",
    "typing",
)
_PACKAGE_ROOT = str(Path(__file__).resolve().parents[2])
_BOOT = (
    "import sys; sys.path.insert(0, sys.argv[1]); "
    "from lopd_repro.sandbox._zygote import main; sys.path.pop(0); main()"
)
_START_SECONDS = 60.0
MOST_CODE = 1 << 20
_LONGEST_POLL = 1e9  # milliseconds; the kernel takes no more than 31 bits
LOST = "the process that watched the program ended"


@dataclass(frozen=True)
class ProgramLimits:
    """What one case may use. Time is the program's processor time; `wall_seconds` is for sleepers.

    `memory_mb` is each process's address space, interpreter included; `processes` counts
    threads; `file_mb` is for the scratch folder as a whole, `output_kb` for a run's output.
    """

    cpu_seconds: float = 4.0
    wall_seconds: float = 40.0
    memory_mb: int = 512
    processes: int = 4
    open_files: int = 64
    file_mb: int = 16
    output_kb: int = 1024


@dataclass(frozen=True)
class Job:
    """A program and its inputs: texts for `stdin`, argument lists for `function`.

    Arguments are made of Python's built-in types. `stop` ends the job at the first case that
    does not end well.
    """

    kind: str
    code: str
    inputs: Sequence[Any]
    entry_point: str = ""
    stop: bool = False


@dataclass(frozen=True)
class CaseResult:
    """How one case ended: `verdict` is ok, timeout, memory, crash, refused or skipped.

    ok: it ended by itself with exit code 0, or returned. refused: ended for too much output, or
    by an uncaught PermissionError, which is how the sandbox says no. skipped: after a `stop`.
    """

    verdict: str
    stdout: bytes = b""
    stderr: bytes = b""
    value: Any = None
    detail: str = ""
    code: int | None = None
    cpu_seconds: float = 0.0
    memory_mb: float = 0.0


@dataclass(frozen=True)
class JobResult:
    """One result per input, in order."""

    cases: tuple[CaseResult, ...]
    isolation: dict[str, Any] = field(default_factory=dict)
    reruns: int = 0

    def unsure(self, alone: bool) -> bool:
        """Whether others may be to blame, so that it must come again to count."""
        return any(
            case.detail == LOST or (case.verdict == "timeout" and not alone) for case in self.cases
        )


class Executor:
    """A pool for untrusted programs. Use as a context manager, from one thread."""

    def __init__(
        self,
        limits: ProgramLimits | None = None,
        *,
        workers: int | None = None,
        preload: Sequence[str] = (),
        packages: bool = False,
        readable: Sequence[Path] = (),
        require: Sequence[str] = ("files", "processes"),
        layers: Sequence[str] = LAYERS,
        rerun_timeouts: bool = True,
    ) -> None:
        """`packages` lets programs import what is installed; `preload` imports names early.

        Without `rerun_timeouts` a time-out counts at once.
        """
        self.limits = limits or ProgramLimits()
        self.rerun_timeouts = rerun_timeouts
        self.workers = workers or len(os.sched_getaffinity(0))
        self._requests, theirs = socket.socketpair()
        try:
            self._process = self._start(theirs, preload, packages, readable, require, layers)
        finally:
            theirs.close()
        try:
            self.layers = self._hello()
        except BaseException:
            self.close()
            raise

    def _start(
        self,
        theirs: socket.socket,
        preload: Sequence[str],
        packages: bool,
        readable: Sequence[Path],
        require: Sequence[str],
        layers: Sequence[str],
    ) -> subprocess.Popen[bytes]:
        limits = self.limits
        programs = program_roots(sys.executable)
        site = sorted({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")})
        site = site if packages else []
        sources: dict[str, str] = {}
        shown = allowed_paths([*programs, *site, *map(str, readable)], sources)
        config = {
            "requests": theirs.fileno(),
            "packages": site,
            "preload": [*PRELOAD, *preload],
            "readable": shown,
            "programs": programs,
            "writable": [],
            "hidden": [],
            "folders": [],
            "sources": sources,
            "scratch": "/tmp",
            "layers": list(layers),
            "require": list(require),
            "sockets": False,
            "proc": False,
            "endpoint": None,
            "parent": os.getpid(),
            "file_mb": limits.file_mb,
        }
        process = subprocess.Popen(
            [sys.executable, "-s", "-S", "-P", "-B", "-c", _BOOT, _PACKAGE_ROOT],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={
                "PYTHONHASHSEED": "0",
                "PYTHONUTF8": "1",
                "LANG": "C.UTF-8",
                "TZ": "UTC",
                "HOME": "/tmp",
                "PATH": "/usr/bin:/bin",
                "OMP_NUM_THREADS": "1",
                "OPENBLAS_NUM_THREADS": "1",
            },
            cwd="/",
            pass_fds=[theirs.fileno()],
            start_new_session=True,
        )
        assert process.stdin is not None
        process.stdin.write(marshal.dumps(config))
        process.stdin.close()
        process.stdin = None
        return process

    def _hello(self) -> list[str]:
        """The layers in force. `SandboxError` if the zygote did not start."""
        assert self._process.stdout is not None and self._process.stderr is not None
        descriptor = self._process.stdout.fileno()
        data = b""
        end = time.monotonic() + _START_SECONDS
        while len(data) < 4 or len(data) < 4 + int.from_bytes(data[:4], "little"):
            ready, _, _ = select.select([descriptor], [], [], max(0.0, end - time.monotonic()))
            part = os.read(descriptor, 1 << 16) if ready else b""
            if not part:
                self._process.terminate()
                text = self._process.stderr.read().decode("utf-8", "replace").strip()
                raise SandboxError(f"executor: did not start ({text.rpartition(chr(10))[2]})")
            data += part
        kind, value = marshal.loads(data[4:])
        if kind != "record":
            raise SandboxError(f"executor: {value}")
        layers: list[str] = value
        return layers

    def __enter__(self) -> Executor:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End everything inside. May be called twice."""
        self._requests.close()
        try:
            self._process.wait(5.0)
        except subprocess.TimeoutExpired:
            self._process.send_signal(signal.SIGTERM)
            self._process.wait()
        for stream in (self._process.stdout, self._process.stderr):
            if stream is not None:
                stream.close()

    def run(self, jobs: Sequence[Job]) -> list[JobResult]:
        """Results in the order of the jobs. Raises `SandboxError` if nothing could be run."""
        results: list[JobResult | None] = [None] * len(jobs)
        for number, result in self._batch(list(enumerate(jobs)), self.workers):
            results[number] = result
        alone = not self.rerun_timeouts or min(self.workers, len(jobs)) == 1
        again = [
            n for n, result in enumerate(results) if result is not None and result.unsure(alone)
        ]
        for number in again:
            for _, result in self._batch([(number, jobs[number])], 1):
                results[number] = replace(result, reruns=1)
        return [result for result in results if result is not None]

    def _batch(
        self, jobs: Sequence[tuple[int, Job]], workers: int
    ) -> Iterator[tuple[int, JobResult]]:
        waiting = iter(jobs)
        running: dict[int, tuple[int, Job, bytearray, float]] = {}
        poll = select.poll()
        try:
            while True:
                for number, job in itertools.islice(waiting, workers - len(running)):
                    refusal = _refuse(job)
                    if refusal:
                        case = CaseResult("refused", detail=refusal)
                        yield number, JobResult((case,) * len(job.inputs))
                        continue
                    answer = self._send(job)
                    end = time.monotonic() + self._longest(job)
                    running[answer] = (number, job, bytearray(), end)
                    poll.register(answer, select.POLLIN)
                if not running:
                    if (more := next(waiting, None)) is None:
                        return
                    waiting = itertools.chain([more], waiting)
                    continue
                left = min(end for _, _, _, end in running.values()) - time.monotonic()
                ready = poll.poll(min(max(0.0, left) * 1000, _LONGEST_POLL))
                if not ready:
                    raise SandboxError("executor: a job was not answered in time")
                for descriptor, _ in ready:
                    data = os.read(descriptor, 1 << 20)
                    if data:
                        running[descriptor][2].extend(data)
                        continue
                    number, job, text, _ = running.pop(descriptor)
                    poll.unregister(descriptor)
                    os.close(descriptor)
                    yield number, _result(job, bytes(text))
        finally:
            for descriptor in running:
                os.close(descriptor)

    def _longest(self, job: Job) -> float:
        return (self.limits.wall_seconds + 5.0) * len(job.inputs) + 60.0

    def _send(self, job: Job) -> int:
        """Hand over one job; returns the descriptor on which its answer will come."""
        limits = self.limits
        inputs = list(job.inputs)
        if job.kind == "stdin":
            inputs = [text.encode("utf-8", "surrogatepass") for text in inputs]
        request = {
            "kind": job.kind,
            "code": job.code,
            "entry_point": job.entry_point,
            "inputs": inputs,
            "stop": job.stop,
            "case_cpu_seconds": limits.cpu_seconds,
            "case_wall_seconds": limits.wall_seconds,
            "output_kb": limits.output_kb,
            "limits": {
                "memory_mb": limits.memory_mb,
                "cpu_seconds": limits.cpu_seconds * len(inputs) + 1,
                "processes": limits.processes,
                "open_files": limits.open_files,
                "file_mb": limits.file_mb,
            },
        }
        file = os.memfd_create("job", os.MFD_CLOEXEC)
        try:
            data = memoryview(marshal.dumps(request))
            while data:
                data = data[os.write(file, data) :]
            os.lseek(file, 0, os.SEEK_SET)
            ours, theirs = os.pipe()
            try:
                socket.send_fds(self._requests, [b"J"], [file, theirs])
            except OSError:
                os.close(ours)
                raise SandboxError("executor: the process inside has ended") from None
            finally:
                os.close(theirs)
        finally:
            os.close(file)
        os.set_blocking(ours, False)
        return ours


def _refuse(job: Job) -> str:
    """Why a program cannot even be tried."""
    if len(job.code) > MOST_CODE:
        return f"the program has more than {MOST_CODE} characters"
    if "\0" in job.code:
        return "the program contains a null character"
    with contextlib.suppress(UnicodeEncodeError):
        job.code.encode()
        return ""
    return "the program is not valid Unicode text"


def _result(job: Job, text: bytes) -> JobResult:
    if not text:
        return JobResult((CaseResult("crash", detail=LOST),) * len(job.inputs))
    answer = marshal.loads(text)
    if answer["failure"]:
        raise SandboxError(f"executor: {answer['failure']}")
    cases = [_case(job, raw) for raw in answer["cases"]]
    cases += [CaseResult("skipped")] * (len(job.inputs) - len(cases))
    return JobResult(tuple(cases), answer["record"])


def _case(job: Job, raw: dict[str, Any]) -> CaseResult:
    verdict, value = raw["verdict"], None
    detail = raw.get("raised", b"").decode("utf-8", "replace").replace("\n", ": ", 1)
    detail = raw.get("broken") or detail
    if "value" in raw:
        try:
            value = decode(raw["value"])
        except ValueRefusedError as error:
            verdict, detail = "crash", str(error)
    return CaseResult(
        verdict=verdict,
        stdout=raw.get("stdout", b""),
        stderr=raw.get("stderr", b""),
        value=value,
        detail=detail,
        code=raw.get("code"),
        cpu_seconds=raw.get("cpu_seconds", 0.0),
        memory_mb=raw.get("memory_kb", 0) / 1024,
    )
