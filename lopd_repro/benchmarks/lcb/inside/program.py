"""The process that a graded program lives in: LiveCodeBench's conventions, re-made.

A program is not run as a script. Of a stdin problem the imports are moved to the top, the rest
becomes the body of a function that is called once a test, with stand-ins for standard input and
output; of a functional problem the module is executed once and its method called. Everything
happens in one process, under the standard library's names and with part of `os` taken away. The
odd verdicts that follow from this are the official ones, and are kept.

Departures: tests come one at a time from the process outside, which also compares printed output;
output that is longer than any right one could be is not handed over. Time in which the machine
was busy with others is not counted. Returned values are compared
here, because their own `__eq__` has a say.
"""

from __future__ import annotations

import ast
import faulthandler
import io
import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from multiprocessing.reduction import ForkingPickler
from types import ModuleType
from typing import Any

STARRED = (
    "string", "re", "datetime", "collections", "heapq", "bisect", "copy", "math", "random",
    "statistics", "itertools", "functools", "operator", "io", "sys", "json", "builtins", "typing",
)  # fmt: skip
"""Star-imported in this order before a program; later names hide earlier ones."""
IMPORTED = STARRED[:-2]
NEEDED = (*STARRED, "shutil", "subprocess")
"""Imported sooner or later in the process of every program."""
RECURSION = 50_000
INT_DIGITS = 50_000
WRAPPER = "wrapped_function"
PREAMBLE = "".join(
    [
        *(f"from {name} import *\n" for name in STARRED),
        *(f"import {name}\n" for name in IMPORTED),
        f"sys.setrecursionlimit({RECURSION})\n",
    ]
)
GONE_FROM_OS = (
    "kill", "system", "putenv", "remove", "removedirs", "rmdir", "fchdir", "setuid", "fork",
    "forkpty", "killpg", "rename", "renames", "truncate", "replace", "unlink", "fchmod", "fchown",
    "chmod", "chown", "chroot", "lchflags", "lchmod", "lchown", "getcwd", "chdir",
)  # fmt: skip
GONE_MODULES = ("ipdb", "joblib", "resource", "psutil", "tkinter")
TIME_LIMIT, RUN_TIME = -3, -4
_DELIVERY_SECONDS = 0.5
_STALL_SECONDS = 0.001

# Taken before a program can replace them.
_read, _write, _exit, _len, _from_bytes = os.read, os.write, os._exit, len, int.from_bytes
_signal, _setitimer, _loads, _encode = (
    signal.signal,
    signal.setitimer,
    json.loads,
    json.JSONEncoder().encode,
)
_monotonic, _pread, _int = time.monotonic, os.pread, int


class AlarmTimeoutException(Exception):  # noqa: N818 - its name is looked for in its repr
    """Raised by the alarm inside the program."""


class Channel:
    """Messages in JSON over two pipes."""

    def __init__(self, reader: int, writer: int) -> None:
        self.reader, self.writer = reader, writer

    def send(self, value: Any) -> None:
        data = _encode(value).encode()
        data = _len(data).to_bytes(8, "big") + data
        while data:
            data = data[_write(self.writer, data) :]

    def receive(self) -> Any:
        return _loads(self._exactly(_from_bytes(self._exactly(8), "big")))

    def _exactly(self, size: int) -> bytes:
        parts = []
        while size:
            part = _read(self.reader, size if size < 1 << 20 else 1 << 20)
            if not part:
                raise EOFError
            parts.append(part)
            size -= _len(part)
        return b"".join(parts)


class Timer:
    """The alarm of one test: wall time, less the time in which others had all processors."""

    fired = False

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.began = self.waited = 0.0
        try:
            self.statistics = os.open("/proc/self/schedstat", os.O_RDONLY)
        except OSError:
            self.statistics = -1
        signal.signal(signal.SIGALRM, self._ring)

    def _wait(self) -> float:
        """Seconds that this process's first thread was ready to run and did not."""
        if self.statistics < 0:
            return 0.0
        try:
            return _int(_pread(self.statistics, 100, 0).split()[1]) / 1e9
        except Exception:
            return 0.0

    def _ring(self, *_: object) -> None:
        left = self.seconds - (_monotonic() - self.began - (self._wait() - self.waited))
        if left > _STALL_SECONDS:
            _setitimer(signal.ITIMER_REAL, left)
            return
        self.fired = True
        print("time limit reached")  # goes to whatever captures the program's output
        raise AlarmTimeoutException

    def start(self) -> None:
        self.began, self.waited = _monotonic(), self._wait()
        _setitimer(signal.ITIMER_REAL, self.seconds)

    def stop(self) -> None:
        _setitimer(signal.ITIMER_REAL, 0)


def serve(channel: Channel, job: dict[str, Any]) -> None:
    """Grade one program; ends the process. An end without a message means that it died."""
    try:
        sys.set_int_max_str_digits(INT_DIGITS)
        timer = Timer(job["timeout"])
        take_away()
        results: list[Any] = []
        message: dict[str, Any] = {}
        timer.start()
        try:
            if job["fn_name"] is None:
                message = _standard_input(channel, job, timer, results)
            else:
                message = _functional(channel, job, timer, results)
        except Exception as error:
            results[:] = [RUN_TIME]
            message = {"replace": True, "code": RUN_TIME, "detail": f"{error}"}
        finally:
            timer.stop()
        _deliver(results)
        channel.send({**message, "codes": _plain(results), "alarm": timer.fired})
        _exit(0)
    except BaseException:
        _exit(1)


def take_away() -> None:
    """Remove what the official guard removes. It protects nothing; the sandbox does."""
    import builtins
    import shutil
    import subprocess

    builtins.quit = None  # type: ignore[assignment]
    builtins.help = None  # type: ignore[assignment]
    os.environ["OMP_NUM_THREADS"] = "1"
    for name in GONE_FROM_OS:
        setattr(os, name, None)
    for name in ("rmtree", "move", "chown"):
        setattr(shutil, name, None)
    subprocess.Popen = None  # type: ignore[assignment,misc]
    for name in GONE_MODULES:
        sys.modules[name] = None  # type: ignore[assignment]


def as_function(code: str) -> str:
    """A script as the body of `wrapped_function`, its imports before it.

    A main guard that is the last statement gives its body, whatever else hangs on it. A text that
    cannot be parsed or written back stays as it is. Comments do not survive.
    """
    try:
        body = ast.parse(code).body
        if body and isinstance(body[-1], ast.If):
            guard = body[-1]
            if ast.unparse(guard.test).strip() == "__name__ == '__main__'":
                body = [*body[:-1], *guard.body]
        imports: list[ast.stmt]
        imports = [one for one in body if isinstance(one, ast.Import | ast.ImportFrom)]
        rest = [one for one in body if not isinstance(one, ast.Import | ast.ImportFrom)]
        nothing = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
        function = ast.FunctionDef(
            name=WRAPPER, args=nothing, body=rest, decorator_list=[], lineno=-1
        )
        parts = (ast.unparse(ast.Module(imports, [])), ast.unparse(function))
    except Exception:
        return code
    return PREAMBLE + "\n" + "\n".join(parts)


def _load(code: str, timer: Timer) -> Any:
    """The executed module, or an instance of `Solution` where the text names such a class."""
    timer.start()
    try:
        module = ModuleType("tmp_sol", "")
        exec(code, module.__dict__)
        return module.Solution() if "class Solution" in code else module
    finally:
        timer.stop()


def _member(found: Any, name: str) -> Any:
    """The callable; `TypeError` where there is none, as a run-time error before any test."""
    try:
        member = getattr(found, name)
    except Exception:
        member = None
    if member is None:
        raise TypeError(f"nothing is called {name}")
    return member


def _standard_input(
    channel: Channel, job: dict[str, Any], timer: Timer, results: list[Any]
) -> dict[str, Any]:
    function = _member(_load(as_function(job["code"]), timer), WRAPPER)
    for _ in range(job["tests"]):
        channel.send({"next": True})
        given = channel.receive()
        text, room = given["input"], given["room"]
        timer.start()
        faulthandler.enable()
        timer.start()
        with _captured() as stream:
            try:
                with _fed(text), suppress(SystemExit):
                    function()
                timer.stop()
            except Exception as error:
                timer.stop()
                return _failed(results, error)
            finally:
                timer.stop()
                faulthandler.disable()
            text = stream.getvalue()
        if _len(text) > room and _len(text := text.strip()) > room:
            channel.send({"flood": True})
        else:
            channel.send({"output": text})
        answer = channel.receive()["code"]
        if answer == "broken":
            raise ValueError("the outputs cannot be compared")
        results.append(answer)
        if answer is not True:
            return {}
    return {}


def _functional(
    channel: Channel, job: dict[str, Any], timer: Timer, results: list[Any]
) -> dict[str, Any]:
    method = _member(_load(PREAMBLE + "\n\n" + job["code"], timer), job["fn_name"])
    for _ in range(job["tests"]):
        channel.send({"next": True})
        arguments = channel.receive()
        if "broken" in arguments:
            raise ValueError(arguments["broken"])
        values = [_loads(line) for line in arguments["input"].split("\n")]
        timer.start()
        faulthandler.enable()
        try:
            given = method(*values)
            timer.stop()
            channel.send({"called": True})
            expected = _loads(channel.receive()["expected"])
            if isinstance(given, tuple):
                given = list(given)
            same = given == expected
            results.append(same)
            if not same:
                str(given)  # the official code writes it down, which can fail
                return {}
        except Exception as error:
            timer.stop()
            return _failed(results, error)
        finally:
            timer.stop()
            faulthandler.disable()
    return {}


def _failed(results: list[Any], error: Exception) -> dict[str, Any]:
    text = repr(error)
    code = TIME_LIMIT if "timeoutexception" in text.lower() else RUN_TIME
    results.append(code)
    return {"code": code, "detail": text}


@contextmanager
def _captured() -> Iterator[io.StringIO]:
    before, stream = sys.stdout, io.StringIO()
    sys.stdout = stream
    stream.close = lambda _: 1  # type: ignore[assignment,method-assign,misc]  # takes one argument
    try:
        yield stream
    finally:
        sys.stdout = before


class _Bytes:
    """Stand-in for `sys.stdin.buffer`: whole input every time, or its first line."""

    def __init__(self, text: str) -> None:
        self._data = text.encode()

    def read(self, *_: object) -> bytes:
        return self._data

    def readline(self, *_: object) -> bytes:
        return self._data.split(b"\n")[0] + b"\n"


class _Text:
    """Stand-in for `sys.stdin`: `read` and `readlines` start anew each time; no iteration."""

    def __init__(self, text: str) -> None:
        self._text, self._stream, self.buffer = text, io.StringIO(text), _Bytes(text)

    def read(self, *_: object) -> str:
        return self._text

    def readline(self, *given: int) -> str:
        return self._stream.readline(*given)

    def readlines(self, *_: object) -> list[str]:
        return self._text.split("\n")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class _File(io.StringIO):
    """What `builtins.open` gives: the input under every name; what is written is lost."""

    def write(self, text: str) -> int:
        return len(text)


@contextmanager
def _fed(text: str) -> Iterator[None]:
    """Input where a program looks for it: new and old `sys.stdin`, and `builtins.open`."""
    import builtins

    old: Any = sys.stdin
    lines = iter(text.split("\n"))
    old.read = lambda *_: text
    old.readlines = lambda *_: text.split("\n")
    old.readline = lambda *_: next(lines)
    real_open = builtins.open
    sys.stdin = _Text(text)
    builtins.open = lambda *_, **__: _File(text)  # type: ignore[assignment]
    try:
        yield
    finally:
        builtins.open = real_open
        sys.stdin = old
        for name in ("read", "readlines", "readline"):
            delattr(old, name)


def _deliver(results: list[Any]) -> None:
    """Send the results through the standard library's own messages, as the official worker does.

    What cannot be pickled, or builtins that a program has broken, kill that worker unheard. If they
    make it loop instead, the timer's signal ends this process.
    """
    _signal(signal.SIGVTALRM, signal.SIG_DFL)
    _setitimer(signal.ITIMER_VIRTUAL, _DELIVERY_SECONDS)
    ends = os.pipe()
    sender, receiver = (Connection(ends[1], readable=False), Connection(ends[0], writable=False))
    sender.send(results)
    if receiver.recv_bytes() != bytes(ForkingPickler.dumps(results)):
        raise OSError("the results do not arrive")


def _plain(results: list[Any]) -> list[bool | int | float]:
    plain: list[bool | int | float] = []
    for code in results:
        value = code.item(0) if hasattr(code, "item") else code
        plain.append(value if isinstance(value, bool | int | float) else bool(value > 0))
    return plain
