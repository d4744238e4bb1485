"""The process that runs dataset code: environment classes, tools and check functions.

Started by file path with the standard library alone; `lopd_repro` is never imported here, and
nothing dataset-carried is ever run anywhere else. Requests and answers are JSON lines on two
pipes of their own, so what the code prints cannot touch them. One answer per request, written
before the next request is begun: the parent knows from it which request a dead worker was at.

Requests: [op, episode, ...]
    ["reset", e, class key, class code or null, class name, init_config, seed]
    ["step", e, n, name, arguments]        n counts the episode's steps: it seeds the step
    ["score", e, n, [check code, ...]]
    ["state", e]   ["drop", [e, ...]]      ("drop" has no answer)
Answers: [episode, kind, payload, printed]
    kind: ok | raised (a tool raised, payload = traceback) | unknown (no such attribute)
    | error (this episode cannot go on) | memory (the parent restarts the process)

What is locked before the first request, as far as the system permits it: own user, no network,
no child processes or threads, limits on memory, files and time. An audit hook refuses the
same things, and writes outside the scratch folder, from within Python; it also serves where
the kernel does not cooperate. It is a second fence, not a wall.
"""

from __future__ import annotations

import _thread
import builtins
import copy
import ctypes
import io
import json
import os
import random
import re
import resource
import signal
import sys
import types

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing is slow to import
    from collections.abc import Callable, Iterable
    from typing import Any

CODE_NAME = "<environment>"

_CLONE_NEWNET = 0x40000000
_CLONE_NEWUSER = 0x10000000
_PR_SET_PDEATHSIG, _PR_SET_KEEPCAPS, _PR_SET_NO_NEW_PRIVS = 1, 8, 38
_CAP_DAC_READ_SEARCH = 2
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


# --- locking the process -----------------------------------------------------------------


def set_limits(config: dict[str, Any]) -> list[str]:
    """Resource limits that this process can never raise again. Returns the names refused."""
    megabyte = 1 << 20
    wanted = {
        "RLIMIT_AS": config["memory_mb"] * megabyte,
        "RLIMIT_FSIZE": config["file_mb"] * megabyte,
        "RLIMIT_NOFILE": config["open_files"],
        "RLIMIT_NPROC": 0,
        "RLIMIT_CORE": 0,
    }
    refused = []
    for name, value in wanted.items():
        try:
            resource.setrlimit(getattr(resource, name), (value, value))
        except (AttributeError, ValueError, OSError):
            refused.append(name)
    return refused


def renew_cpu_limit(seconds: float) -> None:
    """Allow `seconds` more of processor time: an orphan in an endless loop ends by itself."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    allowed = int(used.ru_utime + used.ru_stime + seconds) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (allowed, resource.RLIM_INFINITY))


def cut_network(libc: Any) -> bool:
    """Move into an empty network namespace. False where the kernel does not allow it."""
    if not hasattr(libc, "unshare"):
        return False
    flags = _CLONE_NEWNET if os.geteuid() == 0 else _CLONE_NEWNET | _CLONE_NEWUSER
    return bool(libc.unshare(flags) == 0)


def drop_user(libc: Any, uid: int) -> str:
    """Become `uid` for good if this process is root.

    An interpreter below a private home could then no longer load its own library, so in that
    case, and only then, the right to read files (nothing else) is kept.
    """
    if os.geteuid() != 0 or not uid:
        return "unchanged"
    libc.prctl(_PR_SET_KEEPCAPS, 1, 0, 0, 0)
    try:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    except OSError:
        return "unchanged"
    readable = os.access(os.__file__, os.R_OK)
    bits = 0 if readable else 1 << _CAP_DAC_READ_SEARCH
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    data = (ctypes.c_uint32 * 6)(bits, bits, 0, 0, 0, 0)
    if libc.capset(header, data) != 0:
        os._exit(3)  # still able to change things: better no worker than that one
    return "dropped" if readable else "dropped, may read"


class Fence:
    """Audit hook: refuses processes, sockets, signals and writes outside `scratch`."""

    refused = (
        "socket.",
        "subprocess.",
        "os.exec",
        "os.posix_spawn",
        "os.spawn",
        "os.startfile",
        "os.system",
        "os.fork",
        "os.kill",
        "os.chdir",
        "os.chroot",
        "os.setxattr",
        "os.removexattr",
        "pty.",
        "ctypes.",
        "signal.pthread_kill",
        "syslog.",
        "_posixsubprocess.",
    )
    two_paths = frozenset(("os.rename", "os.link", "os.symlink", "shutil.move"))
    one_path = frozenset(
        ("os.remove", "os.rmdir", "os.mkdir", "os.chmod", "os.chown", "os.truncate", "os.utime")
    ) | {"shutil.rmtree"}
    writing = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND

    def __init__(self, scratch: str, channel: Iterable[int]) -> None:
        self.scratch = os.path.realpath(scratch) + os.sep
        self.channel = frozenset(channel)
        self.realpath, self.fsdecode, self.join = os.path.realpath, os.fsdecode, os.path.join

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            path, mode, flags = arguments
            if isinstance(path, int):
                if path in self.channel:
                    raise PermissionError("this descriptor is not the environment's")
                return
            if mode is None:
                writes = flags & self.writing
            else:
                writes = any(letter in mode for letter in "wax+")
            if writes and path not in ("/dev/null", b"/dev/null"):
                self.must_be_inside(path)
        elif event in self.one_path:
            self.must_be_inside(arguments[0])
        elif event in self.two_paths:
            self.must_be_inside(arguments[0])
            self.must_be_inside(arguments[1])
        elif event.startswith(self.refused):
            raise PermissionError(f"{event} is not available to environment code")

    def must_be_inside(self, path: Any) -> None:
        if isinstance(path, int):
            raise PermissionError("files outside the scratch folder cannot be changed")
        full = self.realpath(self.join(self.scratch, self.fsdecode(path)))
        if not (full + os.sep).startswith(self.scratch):
            raise PermissionError("files outside the scratch folder cannot be changed")


def refuse_thread(*_: Any, **__: Any) -> None:
    """In the place of `_thread.start_new_thread`, which raises no audit event everywhere."""
    raise PermissionError("threads are not available to environment code")


# --- what dataset code sees of the outside -------------------------------------------------


class CappedBytes(io.BytesIO):
    """Keeps the first `cap` bytes written and forgets the rest."""

    def __init__(self, cap: int) -> None:
        super().__init__()
        self.cap, self.kept = cap, bytearray()

    def write(self, data: Any) -> int:
        data = bytes(data)
        room = self.cap - len(self.kept)
        if room > 0:
            self.kept += data[:room]
        return len(data)


class Randomness:
    """All randomness of a request comes from its seed, so that a replay repeats it."""

    def __init__(self) -> None:
        self.seed = ""
        self.bytes: random.Random | None = None

    def start(self, seed: str) -> None:
        self.seed, self.bytes = seed, None
        random.seed(seed)
        numpy = sys.modules.get("numpy.random")
        if numpy is not None:
            numpy.seed(random.Random(seed).getrandbits(32))

    def urandom(self, size: int) -> bytes:
        if self.bytes is None:
            self.bytes = random.Random("bytes" + self.seed)
        return self.bytes.randbytes(size)


def plain_text(text: str) -> str:
    """Text without object addresses, which differ between processes, and always encodable."""
    if " at 0x" in text:
        text = _ADDRESS.sub(" at 0x0", text)
    try:
        text.encode()
    except UnicodeEncodeError:
        text = text.encode("utf-8", "replace").decode()
    return text


def describe(error: BaseException) -> str:
    """Traceback through the dataset's code only, file names without folders."""
    lines = ["Traceback (most recent call last):\n"]
    trace = error.__traceback__
    frames = []
    while trace is not None:
        code = trace.tb_frame.f_code
        if code.co_filename != __file__:
            name = code.co_filename.rpartition("/")[2]
            frames.append(f'  File "{name}", line {trace.tb_lineno}, in {code.co_name}\n')
        trace = trace.tb_next
    if len(frames) > 40:
        frames[20:-20] = [f"  ... {len(frames) - 40} more ...\n"]
    lines += frames
    import traceback

    lines += traceback.format_exception_only(type(error), error)
    return "".join(lines)


# --- episodes ------------------------------------------------------------------------------


class RefusedError(Exception):
    """This episode cannot go on; the text says why."""


class Episode:
    def __init__(self, instance: Any, initial_state: dict[str, Any], seed: Any) -> None:
        self.instance, self.initial_state, self.seed = instance, initial_state, seed


class Server:
    """The requests, one method each. Each returns (kind, payload)."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.observation_chars = config["observation_chars"]
        self.episodes: dict[int, Episode] = {}
        self.classes: dict[str, Any] = {}
        self.checks: dict[str, types.CodeType] = {}
        self.randomness = Randomness()
        os.urandom = self.randomness.urandom

    def reset(
        self, episode: int, key: str, code: str | None, name: str, init_config: Any, seed: Any
    ) -> tuple[str, Any]:
        if code is not None:
            self.classes[key] = code
        self.randomness.start(f"{seed}:reset")
        compiled = self.classes[key]
        if isinstance(compiled, str):
            compiled = self.classes[key] = compile(compiled, CODE_NAME, "exec")
        # A module of its own for every episode: class attributes and globals are not shared.
        module = types.ModuleType("dynamic_env")
        exec(compiled, module.__dict__)
        if not hasattr(module, name):
            raise RefusedError(f"class {name!r} is not in the environment's code")
        instance = self.build(getattr(module, name), init_config)
        self.episodes[episode] = Episode(instance, self.state_of(instance), seed)
        return "ok", None

    @staticmethod
    def build(environment_class: Any, init_config: Any) -> Any:
        config = copy.deepcopy(init_config)
        try:
            usable = config and isinstance(config, dict)
            instance = environment_class(config if usable else {})
        except TypeError:
            instance = environment_class()
        for attribute, value in (config or {}).items():
            setattr(instance, attribute, value)
        return instance

    @staticmethod
    def state_of(instance: Any) -> dict[str, Any]:
        return copy.deepcopy(
            {
                name: value
                for name, value in vars(instance).items()
                if not (name.startswith("__") and name.endswith("__"))
            }
        )

    def step(
        self, episode: int, count: int, name: str, arguments: dict[str, Any]
    ) -> tuple[str, str | None]:
        world = self.episodes[episode]
        self.randomness.start(f"{world.seed}:{count}")
        if not hasattr(world.instance, name):
            return "unknown", None
        try:
            text = f"{getattr(world.instance, name)(**arguments)}"
        except MemoryError:
            raise
        except Exception as error:
            return "raised", plain_text(describe(error))[: self.observation_chars]
        if len(text) > self.observation_chars:
            raise RefusedError(f"an observation of {len(text)} characters is over the limit")
        return "ok", plain_text(text)

    def score(self, episode: int, count: int, codes: list[str]) -> tuple[str, list[list[Any]]]:
        world = self.episodes[episode]
        self.randomness.start(f"{world.seed}:score{count}")
        # One copy for all checks: what a check changes, the later ones see, as in EnvScaler.
        final_state = self.state_of(world.instance)
        return "ok", [self.check(code, world.initial_state, final_state) for code in codes]

    def check(
        self, code: str, initial_state: dict[str, Any], final_state: dict[str, Any]
    ) -> list[Any]:
        names: dict[str, Any] = {
            "__builtins__": builtins,
            "initial_state": copy.deepcopy(initial_state),
        }
        try:
            compiled = self.checks.get(code)
            if compiled is None:
                if len(self.checks) > 4000:
                    self.checks.clear()
                # EnvScaler hands the text to exec, which calls it <string>; error texts show it.
                compiled = self.checks[code] = compile(code, "<string>", "exec")
            exec(compiled, names)
            if "check_func" not in names:
                return [False, None, "Function 'check_func' not found."]
            result = names["check_func"](final_state)
            if not isinstance(result, bool):
                return [False, None, "Function did not return a boolean."]
            return [True, result, None]
        except MemoryError:
            raise
        except Exception as error:
            return [False, None, plain_text(str(error))[:2000]]

    def state(self, episode: int) -> tuple[str, str]:
        world = self.episodes[episode]
        return "ok", json.dumps(self.state_of(world.instance), default=repr)

    def drop(self, episodes: list[int]) -> None:
        for episode in episodes:
            self.episodes.pop(episode, None)

    def answer(self, operation: str, episode: int, arguments: list[Any]) -> tuple[str, Any]:
        try:
            done: tuple[str, Any] = getattr(self, operation)(episode, *arguments)
            return done
        except MemoryError:
            self.episodes.clear()
            return "memory", "out of memory"
        except RefusedError as error:
            return "error", str(error)
        except BaseException as error:
            # SystemExit and KeyboardInterrupt too: they would end the reference's process.
            return "error", plain_text(describe(error))[:4000]


# --- main ----------------------------------------------------------------------------------


def main() -> None:
    config = json.loads(sys.argv[1])
    requests, answers = config["requests"], config["answers"]
    report: dict[str, Any] = {"limits_refused": set_limits(config)}
    libc = ctypes.CDLL(None, use_errno=True)
    report["network"] = "namespace" if cut_network(libc) else "blocked"
    report["user"] = drop_user(libc, config["uid"])
    if sys.platform == "linux":
        libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != config["parent"]:
            os._exit(0)
    os.umask(0o077)
    sys.path[:] = [path for path in sys.path if path] + config["packages"]

    server = Server(config)
    write, read, dumps = os.write, os.read, json.dumps
    send(write, answers, [-1, "ready", report, ""])
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    sys.argv[:] = [""]
    _thread.start_new_thread = refuse_thread  # type: ignore[assignment]
    sys.addaudithook(Fence(config["scratch"], (requests, answers)))

    buffer = b""
    while True:
        chunk = read(requests, 1 << 16)
        if not chunk:
            os._exit(0)
        buffer += chunk
        *lines, buffer = buffer.split(b"\n")
        for line in lines:
            operation, episode, *arguments = json.loads(line)
            if operation == "drop":
                server.drop(episode)
                continue
            renew_cpu_limit(config["cpu_seconds"])
            printed = CappedBytes(config["output_chars"])
            screen = io.TextIOWrapper(printed, "utf-8", "replace", write_through=True)
            for name in ("stdout", "stderr", "__stdout__", "__stderr__"):
                setattr(sys, name, screen)
            kind, payload = server.answer(operation, episode, arguments)
            text = printed.kept.decode("utf-8", "replace") if printed.kept else ""
            send(write, answers, [episode, kind, payload, text], dumps)


def send(
    write: Callable[[int, bytes], int],
    descriptor: int,
    message: list[Any],
    dumps: Callable[[Any], str] = json.dumps,
) -> None:
    data = dumps(message).encode() + b"\n"
    while data:
        data = data[write(descriptor, data) :]


if __name__ == "__main__":
    main()
