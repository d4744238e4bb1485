"""Runs one program in its own process, after the locks: the last trusted lines before it.

The program shares this process and can change anything in it. So nothing here is secret: the
expected results are elsewhere, and what this process reports is what the program says, no more.
Frames on the result pipe: 4 bytes kind, 4 bytes length, content.

    value k     the encoded return value of case k      (kinds 0, 1, 2, ...); of a script, nothing
    raised      the exception's class name, a line feed and its text (kind 2^32 - 1)
"""

from __future__ import annotations

import atexit
import gc
import io
import os
import random
import resource
import sys
import traceback
import types

from lopd_repro.sandbox._repeat import repeatable
from lopd_repro.sandbox._values import encode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

RAISED = 0xFFFFFFFF
SOURCE = "program.py"
_TEXT = 2000
_TRACE = 8000


def frame(kind: int, content: bytes) -> bytes:
    return kind.to_bytes(4, "little") + len(content).to_bytes(4, "little") + content


def _send(descriptor: int, data: bytes, write: Any = os.write) -> None:
    while data:
        data = data[write(descriptor, data) :]


def _streams() -> None:
    """Standard streams that belong to the program alone, as a fresh interpreter has them."""
    sys.stdin = io.TextIOWrapper(io.BufferedReader(io.FileIO(0, "r", closefd=False)), "utf-8")
    sys.stdout = io.TextIOWrapper(io.BufferedWriter(io.FileIO(1, "w", closefd=False)), "utf-8")
    sys.stderr = io.TextIOWrapper(
        io.FileIO(2, "w", closefd=False),
        "utf-8",
        "backslashreplace",
        write_through=True,
    )
    for name in ("stdin", "stdout", "stderr"):
        setattr(sys, f"__{name}__", getattr(sys, name))


def _main_module() -> dict[str, Any]:
    module = types.ModuleType("__main__")
    module.__dict__["__file__"] = SOURCE
    sys.modules["__main__"] = module
    sys.argv[:] = [SOURCE]
    random.seed(0)  # a verdict, and a run that is resumed, should not depend on chance
    return module.__dict__


def _describe(error: BaseException) -> bytes:
    try:
        text = str(error)[:_TEXT]
    except BaseException:
        text = ""
    return f"{type(error).__name__}\n{text}".encode("utf-8", "replace")


def run_stdin(code: str, cases: list[int], results: int, go: int, cpu_seconds: float) -> None:
    """The program as a script: standard input and output are its own. Does not return.

    Several cases run here one after the other if none can tell (`repeatable`) and all end well;
    otherwise the process ends with the first, or with the one that did not. Between two, a frame
    says that one is done, and a byte from `go` that the next one's input is in place.
    """
    leave, read, repeated = os._exit, os.read, len(cases) > 1 and repeatable(code)
    defaults = sys.getrecursionlimit(), sys.get_int_max_str_digits()
    if not repeated:
        os.close(go)
        seconds = int(cpu_seconds + 1.999)
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
    for number in cases:
        status = _script(code, results, repeated)
        if status or not repeated or number == cases[-1]:
            leave(status)
        try:
            _forget(*defaults)
        except BaseException:
            leave(0)
        _send(results, frame(number, b""))
        if not read(go, 1):
            leave(1)


def _script(code: str, results: int, repeated: bool) -> int:
    """One run of the program; its exit status. What it printed has left this process."""
    _streams()
    names = _main_module()
    status = 0
    try:
        exec(compile(code, SOURCE, "exec", dont_inherit=True), names)
    except SystemExit as error:
        status = _exit_status(error.code)
    except BaseException as error:
        status = 1
        try:
            _send(results, frame(RAISED, _describe(error)))
            error.__traceback__ = error.__traceback__ and error.__traceback__.tb_next
            print("".join(traceback.format_exception(error))[-_TRACE:], end="", file=sys.stderr)
        except BaseException:
            pass
    try:
        if not repeated:  # neither is at hand there
            threading = sys.modules.get("threading")
            if threading is not None:
                threading._shutdown()
            atexit._run_exitfuncs()
        sys.stdout.flush()
    except BaseException:
        status = status or 1
    return status


def _forget(recursion: int, digits: int) -> None:
    """Leave nothing of a run."""
    for name in ("stdout", "stderr"):
        getattr(sys, name).detach()
        setattr(sys, name, None)
        setattr(sys, f"__{name}__", None)
    sys.modules["__main__"].__dict__.clear()
    sys.setrecursionlimit(recursion)
    sys.set_int_max_str_digits(digits)
    gc.collect()


def _exit_status(code: Any) -> int:
    if code is None:
        return 0
    if isinstance(code, int):
        return int(code) & 0xFF
    print(code, file=sys.stderr)
    return 1


def run_function(
    code: str, entry_point: str, arguments: list[tuple[int, list[Any]]], results: int
) -> None:
    """The program's definitions, then its function on every case. Does not return."""
    _streams()
    names = _main_module()
    leave = os._exit
    try:
        exec(compile(code, SOURCE, "exec", dont_inherit=True), names)
        function = _find(names, entry_point)
        for number, case in arguments:
            value = encode(function(*case))
            _send(results, frame(number, value))
    except BaseException as error:
        try:
            _send(results, frame(RAISED, _describe(error)))
        finally:
            leave(1)
    leave(0)


def _find(names: dict[str, Any], entry_point: str) -> Any:
    """A function of the module, or a method of its class `Solution`."""
    if entry_point in names:
        return names[entry_point]
    if "Solution" in names:
        return getattr(names["Solution"](), entry_point)
    raise NameError(f"the program defines no {entry_point!r}")


def prepare() -> None:
    """Once, before programs are forked: what is loaded now is shared by all of them."""
    import site

    site.setquit()
    site.sethelper()
    gc.collect()
    gc.freeze()
