"""Hostile commands and programs against the sandbox, in a process of their own.

    python attacks.py '{"layers": [...], "part": "run" | "executor"}'

Prints one JSON object of what each attack saw and what it left. Standard library and
`lopd_repro.sandbox` alone, so that any interpreter can run it, as any user.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from lopd_repro.sandbox import Limits, run
from lopd_repro.sandbox.executor import Executor, Job, ProgramLimits

LIMITS = Limits(
    memory_mb=128,
    cpu_seconds=1,
    wall_seconds=30,
    processes=8,
    open_files=32,
    file_mb=1,
    output_kb=64,
)
TRY = """
import json, os, signal, socket, sys, time
seen = {}
def attempt(name, work):
    try:
        seen[name] = ["done", repr(work())]
    except BaseException as error:
        seen[name] = ["refused", type(error).__name__]
"""
FILES = """
attempt("read", lambda: open(VICTIM).read())
attempt("write", lambda: open(VICTIM, "a").write("x"))
attempt("replace", lambda: os.replace(VICTIM, VICTIM + ".moved"))
attempt("delete", lambda: os.remove(VICTIM))
attempt("chmod", lambda: os.chmod(VICTIM, 0))
attempt("create", lambda: open(os.path.dirname(VICTIM) + "/new", "w").write("x"))
attempt("home", lambda: os.listdir(os.path.expanduser("~root")))
attempt("own", lambda: open("mine", "w").write("x"))
print(json.dumps(seen))
"""
SOCKETS = """
def connect(family, address):
    one = socket.socket(family, socket.SOCK_STREAM)
    one.settimeout(1)
    one.connect(address)
attempt("host", lambda: connect(socket.AF_INET, ("127.0.0.1", PORT)))
attempt("abstract", lambda: connect(socket.AF_UNIX, ABSTRACT))
attempt("file", lambda: connect(socket.AF_UNIX, SOCKET_FILE))
attempt("away", lambda: connect(socket.AF_INET, ("192.0.2.1", 80)))
def datagram():
    one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    one.sendto(b"x", ("127.0.0.1", DATAGRAM))
attempt("datagram", datagram)
attempt("packet", lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW))
print(json.dumps(seen))
"""
NOSY = """
def environment(pid):
    return b"attack-secret" in open(f"/proc/{pid}/environ", "rb").read()
attempt("own", lambda: [k for k, v in os.environ.items() if "attack-secret" in v])
found = []
for pid in range(1, 100000):
    try:
        if environment(pid):
            found.append(pid)
    except OSError:
        pass
seen["others"] = found
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
seen["ptrace"] = libc.ptrace(16, os.getppid(), 0, 0)
seen["setuid"] = libc.setuid(0)
seen["mount"] = libc.mount(b"none", b"/tmp", b"tmpfs", 0, None)
seen["unshare"] = libc.unshare(0x10000000)
import resource
attempt("limits", lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096)))
attempt("others_limits", lambda: resource.prlimit(BYSTANDER, resource.RLIMIT_NOFILE, (3, 3)))
print(json.dumps(seen))
"""
SIGNALS = """
for target in (os.getppid(), BYSTANDER, 1, -1):
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGKILL):
        attempt(f"{target} {number}", lambda: os.kill(target, number))
print("survived")
"""
DAEMON = """
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.closerange(0, 64)
        time.sleep(600)
    os._exit(0)
time.sleep(0.1)
"""
SLEEPERS = ("fork bomb", "sleeper", "threads")
COMMANDS = {
    "fork bomb": "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass",
    "memory bomb": "x = bytearray(1 << 30)",
    "memory of many": (
        "import os, time\n"
        "for _ in range(6):\n"
        "    if os.fork() == 0:\n"
        "        x = bytearray(b'x') * (40 << 20)\n"
        "        time.sleep(60)\n"
        "time.sleep(60)"
    ),
    "infinite loop": "while True: pass",
    "sleeper": "import time; time.sleep(600)",
    "infinite output": "while True: print('x' * 1000)",
    "exit": "import os; os._exit(7)",
    "big file": "open('f', 'wb').write(bytes(3 << 20))",
    "many files": "x = [open('/dev/null') for _ in range(100)]",
    "threads": (
        "import threading, time\n"
        "for _ in range(100): threading.Thread(target=time.sleep, args=(60,)).start()"
    ),
}
PROGRAMS = {
    "good": "print(int(input()) + 1)",
    "fork bomb": "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass",
    "memory bomb": "x = bytearray(1 << 30)",
    "infinite loop": "while True: pass",
    "infinite output": "while True: print('x' * 1000)",
    "exit": "import os; os._exit(7)",
    "kill the parent": "import os\nos.kill(os.getppid(), 9)\nprint(2)",
    "kill everybody": "import os\nos.kill(-1, 9)\nprint(2)",
    "kill itself": "import os\nos.kill(os.getpid(), 9)",
    "delete outside": "import os\nos.remove(VICTIM)",
    "write outside": "open(VICTIM, 'w')",
    "read outside": "print(open(VICTIM).read())",
    "socket": "import socket\nsocket.socket()",
    "builtins": (
        "import builtins, json, os, sys\n"
        "for module in list(sys.modules.values()):\n"
        "    for name in ('dumps', 'write', '_exit', 'encode', 'exec', 'print', 'fork', 'read'):\n"
        "        try: setattr(module, name, lambda *a, **k: 0)\n"
        "        except Exception: pass\n"
        "sys.modules.clear()"
    ),
    "huge integer": "x = 10 ** 10 ** 9",
    "deep recursion": "import sys\nsys.setrecursionlimit(10 ** 9)\ndef f(): f()\nf()",
    "deep source": "(" * 100000,
    "threads": (
        "import threading, time\n"
        "threading.Thread(target=time.sleep, args=(600,), daemon=True).start()\nprint(2)"
    ),
    "daemon": (
        "import os, time\n"
        "if os.fork() == 0:\n    os.setsid()\n"
        "    if os.fork() == 0: time.sleep(600)\n    os._exit(0)\n"
        "print(2)"
    ),
    "deep folders": (
        "import os\nfor _ in range(600):\n    os.mkdir('d' * 20); os.chdir('d' * 20)\nprint(2)"
    ),
    "handles": (
        "import os\nfor n in range(3, 64):\n"
        "    try: os.write(n, b'\\xff' * 64)\n    except OSError: pass"
    ),
    "segfault": "import ctypes\nctypes.string_at(0)",
    "sees the next": "import os\nprint(os.listdir('.'))",
}


ALWAYS = (
    "good",
    "fork bomb",
    "kill the parent",
    "kill everybody",
    "delete outside",
    "write outside",
    "read outside",
    "socket",
    "daemon",
    "deep folders",
    "sees the next",
)


def main() -> None:
    request = json.loads(sys.argv[1])
    os.umask(0)
    with tempfile.TemporaryDirectory(prefix="attack-") as name, bystander() as pid:
        folder = Path(name)
        folder.chmod(0o777)
        victim = folder / "victim"
        victim.write_text("precious")
        victim.chmod(0o666)
        work = run_attacks if request["part"] == "run" else executor_attacks
        seen = work(request["layers"], victim, pid)
        seen["uid"] = os.geteuid()
        seen["victim"] = [victim.read_text(), oct(victim.stat().st_mode & 0o777)]
        seen["folder"] = sorted(one.name for one in folder.iterdir())
        seen["bystander lives"] = Path(f"/proc/{pid}/stat").read_text().split()[2] in "SR"
    print(json.dumps(seen))


@contextlib.contextmanager
def bystander() -> Any:
    """An innocent process of the same user, outside."""
    process = subprocess.Popen(["/bin/sleep", "600"])
    try:
        yield process.pid
    finally:
        process.kill()
        process.wait()


def run_attacks(layers: list[str], victim: Path, bystander_pid: int) -> dict[str, Any]:
    os.environ["ATTACK"] = "attack-secret"
    token = secrets.token_hex(8)
    seen: dict[str, Any] = {}

    def attack(code: str, wall_seconds: float = LIMITS.wall_seconds, **names: Any) -> Any:
        head = "".join(f"{name} = {value!r}\n" for name, value in names.items())
        return run(
            [sys.executable, "-c", head + code],
            replace(LIMITS, wall_seconds=wall_seconds),
            layers=layers,
            environment={"ATTACK_TOKEN": token},
        )

    for name, code in COMMANDS.items():
        if name == "memory of many" and "pid-namespace" not in layers:
            continue
        outcome = attack(code, 0.7 if name in SLEEPERS else LIMITS.wall_seconds)
        seen[name] = [outcome.verdict, outcome.code, len(outcome.stdout), outcome.seconds]
    outcome = attack(TRY + FILES, VICTIM=str(victim))
    seen["files"] = json.loads(outcome.stdout)
    seen["isolation"] = outcome.isolation
    seen["sockets"], seen["reached"] = sockets(attack, victim.parent)
    seen["nosy"] = json.loads(attack(TRY + NOSY, BYSTANDER=bystander_pid).stdout)
    seen["signals"] = attack(TRY + SIGNALS, BYSTANDER=bystander_pid).verdict
    seen["daemon"] = attack(TRY + DAEMON).verdict
    data = os.urandom(2_000) * 20
    echo = run(
        [sys.executable, "-c", "import sys; b=sys.stdin.buffer.read(); sys.stdout.buffer.write(b)"],
        LIMITS,
        layers=layers,
        stdin=data,
    )
    seen["echo"] = echo.stdout == data
    seen["survivors"] = survivors(token)
    return seen


def sockets(attack: Any, folder: Path) -> tuple[Any, list[str]]:
    """Listeners of every kind outside; which of them anything reached."""
    abstract = "\0attack-" + secrets.token_hex(8)
    opened = {
        "host": (socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 0)),
        "abstract": (socket.AF_UNIX, socket.SOCK_STREAM, abstract),
        "file": (socket.AF_UNIX, socket.SOCK_STREAM, str(folder / "socket")),
        "datagram": (socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", 0)),
    }
    listeners = {}
    for name, (family, kind, address) in opened.items():
        one = listeners[name] = socket.socket(family, kind)
        one.bind(address)
        if kind == socket.SOCK_STREAM:
            one.listen()
        one.setblocking(False)
    outcome = attack(
        TRY + SOCKETS,
        PORT=listeners["host"].getsockname()[1],
        DATAGRAM=listeners["datagram"].getsockname()[1],
        ABSTRACT=abstract,
        SOCKET_FILE=str(folder / "socket"),
    )
    reached = []
    for name, one in listeners.items():
        with one, contextlib.suppress(BlockingIOError):
            one.accept() if one.type == socket.SOCK_STREAM else one.recv(10)
            reached.append(name)
    (folder / "socket").unlink()
    return json.loads(outcome.stdout), reached


def survivors(token: str) -> list[int]:
    """Processes anywhere that were started with the attacks' environment."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if token.encode() in (entry / "environ").read_bytes():
                    found.append(int(entry.name))
    return found


def executor_attacks(layers: list[str], victim: Path, bystander_pid: int) -> dict[str, Any]:
    limits = ProgramLimits(
        cpu_seconds=0.1, wall_seconds=4.0, memory_mb=256, file_mb=1, output_kb=64
    )
    seen: dict[str, Any] = {"verdicts": {}, "after": {}}
    with Executor(limits, workers=1, layers=layers) as executor:
        before = descendants()
        names = PROGRAMS if "pid-namespace" in layers else ALWAYS
        for name in names:
            code = PROGRAMS[name]
            job = Job("stdin", f"VICTIM = {str(victim)!r}\n" + code, ["1\n"])
            good = Job("stdin", PROGRAMS["good"], ["1\n"])
            result, next_one = executor.run([job, good])
            case = result.cases[0]
            seen["verdicts"][name] = [case.verdict, case.detail, case.stdout.decode()[:100]]
            seen["after"][name] = [next_one.cases[0].verdict, next_one.cases[0].stdout.decode()]
            seen["isolation"] = next_one.isolation
        for _ in range(100):
            left = descendants() - before
            if not left:
                break
            time.sleep(0.02)
        seen["left"] = sorted(left)
    seen["left after the end"] = sorted(descendants() - {bystander_pid})
    return seen


def alive(pid: int) -> bool:
    """Whether a process is there and not a zombie that only waits to be noted."""
    with contextlib.suppress(OSError):
        return (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def descendants(pid: int | None = None) -> set[int]:
    """Living processes below this one, or below `pid`."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                if fields[0] != "Z":
                    parents[int(entry.name)] = int(fields[1])
    top = pid or os.getpid()
    family = {top}
    while found := {p for p, parent in parents.items() if parent in family} - family:
        family |= found
    return family - {top}


if __name__ == "__main__":
    main()
