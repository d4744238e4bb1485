"""Run one command confined. The public face of the sandbox.

    run(["python3", "work.py"], Limits(), readable=[folder]) -> Outcome

What is in force depends on the system and is recorded in `Outcome.isolation`; nothing foreign
runs unless the network is closed by at least one layer, and, if not waived, files and processes:

    network    namespace (empty but for loopback) | seccomp (no sockets at all)
    files      namespace (a root that holds the allow-list alone) | landlock (the same list)
               | modes (another user) | none
    processes  namespace | user (a user of its own) | signals (cannot signal others) | none
    user       dropped (was root) | namespace | unchanged

A confined process sees the system's programs and libraries, its interpreter, `readable`,
`writable` and its scratch folder. With root the paths in `writable` and `scratch` belong to the
sandbox's user while it runs, so no two commands may share them at one time. Memory is limited
for each process's address space, and, in a process namespace, for what all of them together
use. What is not limited is the number of files in a scratch folder that the caller brings.

An endpoint is reached through a relay out of the network namespace, or, without one, through a
gate that answers every `connect`: in both cases that address and nothing else.
"""

from __future__ import annotations

import marshal
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from lopd_repro.errors import UserError

LAYERS = (
    "user-namespace",
    "mount-namespace",
    "network-namespace",
    "pid-namespace",
    "ipc-namespace",
    "landlock",
    "seccomp",
)
ISOLATION = ("network", "files", "processes", "user", "syscalls")
_PACKAGE_ROOT = str(Path(__file__).resolve().parents[2])
_BOOT = (
    "import sys; sys.path.insert(0, sys.argv[1]); "
    "from lopd_repro.sandbox._supervisor import main; main()"
)
_GRACE_SECONDS = 60.0


class SandboxError(UserError):
    """The sandbox could not be set up as asked; nothing foreign has run."""


@dataclass(frozen=True)
class Limits:
    """What a command may use. Seconds of processor time are per process.

    `processes` counts threads too. `output_kb` is for both streams together; more ends the
    command. `file_mb` limits each file, and each folder that is held in memory.
    """

    memory_mb: int = 1024
    cpu_seconds: float = 10.0
    wall_seconds: float = 20.0
    processes: int = 32
    open_files: int = 256
    file_mb: int = 64
    output_kb: int = 1024


@dataclass(frozen=True)
class Outcome:
    """How a command ended. `verdict` is ok, timeout, memory, crash or output.

    ok: exit code 0. memory: ended for the total, or ended badly saying that memory ran out.
    crash: any other end. `code` and `signal` are None where the command did not end by itself.
    """

    code: int | None
    signal: int | None
    verdict: str
    stdout: bytes
    stderr: bytes
    seconds: float
    cpu_seconds: float = 0.0
    memory_mb: float = 0.0
    connections: int = 0
    isolation: dict[str, Any] = field(default_factory=dict)


def run(
    command: Sequence[str],
    limits: Limits,
    *,
    scratch: Path | None = None,
    readable: Sequence[Path] = (),
    writable: Sequence[Path] = (),
    hidden: Sequence[Path] = (),
    environment: Mapping[str, str] | None = None,
    stdin: bytes = b"",
    endpoint: str | None = None,
    require: Sequence[str] = ("files", "processes"),
    layers: Sequence[str] = LAYERS,
) -> Outcome:
    """Run `command` confined, in `scratch` (or a folder that is removed afterwards).

    `endpoint` is a loopback URL; the same host and port answer inside, and nothing else does.
    `hidden` paths, inside readable ones, appear empty. `require` names members of `ISOLATION`
    without which nothing is run (the network always is one). Raises `SandboxError`.
    """
    unknown = [name for name in (*layers, *require) if name not in (*LAYERS, *ISOLATION)]
    if unknown:
        raise SandboxError(f"sandbox: unknown layer {unknown[0]!r}, allowed: {', '.join(LAYERS)}")
    own = tempfile.mkdtemp(prefix="lopd-sandbox-") if scratch is None else None
    try:
        folder = own if own is not None else str(scratch)
        config = _config(
            command, limits, folder, readable, writable, hidden, environment, layers, require
        )
        config["endpoint"] = _address(endpoint) if endpoint else None
        if own is not None and "mount-namespace" in layers:
            config["folders"] = [config["scratch"]]
        answer = _ask(config, stdin, limits.wall_seconds + _GRACE_SECONDS)
    finally:
        if own is not None:
            subprocess.run(["/bin/rm", "-rf", "--", own], check=False)  # folders may be very deep
    return _outcome(answer, limits)


def _config(
    command: Sequence[str],
    limits: Limits,
    scratch: str,
    readable: Sequence[Path],
    writable: Sequence[Path],
    hidden: Sequence[Path],
    environment: Mapping[str, str] | None,
    layers: Sequence[str],
    require: Sequence[str],
) -> dict[str, Any]:
    if not command:
        raise SandboxError("sandbox: the command is empty")
    scratch = os.path.realpath(scratch)
    variables = {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "HOME": scratch,
        "TMPDIR": scratch,
        "LANG": "C.UTF-8",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        **(environment or {}),
    }
    executable = shutil.which(command[0], path=variables["PATH"]) or ""
    if not executable:
        raise SandboxError(f"sandbox: no program {command[0]!r} in {variables['PATH']}")
    executable = _absolute(executable)
    programs = program_roots(executable)
    sources: dict[str, str] = {}
    shown = allowed_paths([*map(str, readable), *programs], sources)
    open_paths = allowed_paths([scratch, *map(str, writable)], sources)
    return {
        "command": [executable, *command[1:]],
        "environment": variables,
        "scratch": scratch,
        "readable": shown,
        "programs": programs,
        "writable": open_paths,
        "hidden": [_absolute(path) for path in hidden],
        "folders": [],
        "sources": sources,
        "layers": list(layers),
        "require": list(require),
        "sockets": True,
        "proc": True,
        "parent": os.getpid(),
        **{name: getattr(limits, name) for name in limits.__dataclass_fields__},
    }


def allowed_paths(paths: Sequence[str], sources: dict[str, str]) -> list[str]:
    """Every path as given and as it really is; `sources` says where the former lead."""
    found: dict[str, None] = {}
    for path in paths:
        full, real = _absolute(path), os.path.realpath(path)
        if real == "/":
            raise SandboxError("sandbox: the root folder cannot be a readable or writable path")
        if not Path(real).exists():
            raise SandboxError(f"sandbox: {path} is not there")
        found[real] = None
        if full != real:
            found[full] = None
            sources[full] = real
    return list(found)


def _absolute(path: Path | str) -> str:
    return os.path.normpath(Path(path).absolute())


def program_roots(executable: str) -> list[str]:
    """What must be visible for `executable` to run: itself, and its Python installation."""
    folder = Path(executable).parent.parent
    settings = folder / "pyvenv.cfg"
    roots = []
    if settings.is_file():
        roots.append(str(folder))
        for line in settings.read_text().splitlines():
            name, _, value = line.partition("=")
            if name.strip() == "home":
                roots.append(str(Path(value.strip()).parent))
    real = Path(os.path.realpath(executable))
    if real.parent.name == "bin" and str(real.parent.parent) not in ("/", "/usr"):
        roots.append(str(real.parent.parent))
    elif not str(real).startswith("/usr/"):
        roots.append(str(real))
    return [root for root in dict.fromkeys(roots) if root not in ("/", "/usr")]


def _address(endpoint: str) -> tuple[str, int]:
    parts = urlsplit(endpoint)
    if parts.scheme != "http" or parts.hostname not in ("127.0.0.1", "localhost"):
        raise SandboxError(f"endpoint: {endpoint!r} is not an http URL on 127.0.0.1")
    if parts.port is None:
        raise SandboxError(f"endpoint: {endpoint!r} names no port")
    return "127.0.0.1", parts.port


def _ask(config: dict[str, Any], stdin: bytes, timeout: float) -> dict[str, Any]:
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _BOOT, _PACKAGE_ROOT],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={},
        cwd="/",
        start_new_session=True,
    )
    try:
        out, error = process.communicate(marshal.dumps((config, stdin)), timeout=timeout)
    except BaseException:
        process.send_signal(signal.SIGTERM)  # it then ends what it has started
        process.wait()
        raise
    if process.returncode != 0 or not out:
        text = error.decode("utf-8", "replace").strip().splitlines() or ["no message"]
        raise SandboxError(f"sandbox: the supervisor failed ({text[-1]})")
    answer: dict[str, Any] = marshal.loads(out)
    if answer["failure"]:
        raise SandboxError(f"sandbox: {answer['failure']}")
    return answer


_NO_MEMORY = (b"MemoryError", b"bad_alloc", b"Cannot allocate memory", b"out of memory")


def _outcome(answer: dict[str, Any], limits: Limits) -> Outcome:
    status, stderr = answer["status"], answer["stderr"]
    code = os.waitstatus_to_exitcode(status) if status is not None else None
    cpu, peak_kb = answer["usage"]
    number = -code if code is not None and code < 0 else None
    reason = answer["reason"]
    if reason in ("timeout", "memory", "output"):
        verdict = reason
    elif code == 0:
        verdict = "ok"
    elif number == signal.SIGXCPU or (number == signal.SIGKILL and cpu >= limits.cpu_seconds):
        verdict = "timeout"
    elif any(text in stderr[-2000:] for text in _NO_MEMORY):
        verdict = "memory"
    else:
        verdict = "crash"
    return Outcome(
        code=code if number is None else None,
        signal=number,
        verdict=verdict,
        stdout=answer["stdout"],
        stderr=stderr,
        seconds=answer["seconds"],
        cpu_seconds=cpu,
        memory_mb=peak_kb / 1024,
        connections=answer["connections"],
        isolation=answer["record"],
    )
