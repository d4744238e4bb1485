"""The process outside the walls: starts one command inside, watches it, ends everything.

Started by `launch.run` with the configuration and the program's input on its own standard
input; its standard output is the answer (both in `marshal` form: the two ends are the same
interpreter, and `json` is slow to import). Processes:

    this one      outside: wall clock, output cap, relay, adopts and kills whatever is left
    middle        enters the namespaces, and waits
    init          first process of the process namespace: makes the root, waits; its end is the
                  end of all processes inside
    program       locked, then the command
"""

# ruff: noqa: PTH110, PTH118, PTH123, PTH208
# (pathlib takes longer to import than a sandbox to start.)

from __future__ import annotations

import _socket
import marshal
import os
import select
import signal
import sys
import time

from lopd_repro.sandbox import _confine
from lopd_repro.sandbox import _kernel as kernel
from lopd_repro.sandbox._gate import Gate
from lopd_repro.sandbox._relay import Relay

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing is slow to import
    from collections.abc import Callable
    from typing import Any

_START_SECONDS = 30.0
_MEMORY_POLL_SECONDS = 0.1
_PAGE = os.sysconf("SC_PAGE_SIZE")


def main() -> None:
    """Read the request, do it, write the answer."""
    config, data = marshal.loads(read_all(0))
    signal.signal(signal.SIGTERM, stop)
    kernel.die_with_parent(signal.SIGTERM)
    if os.getppid() != config["parent"]:
        return
    answer = marshal.dumps(supervise(config, data))
    while answer:
        answer = answer[os.write(1, answer) :]


def stop(*_: object) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise SystemExit(1)


def uninterrupted(work: Callable[[], None]) -> None:
    """Run `work` to its end, even if the one `stop` that can come comes now."""
    try:
        work()
    except SystemExit:
        work()


def read_all(descriptor: int) -> bytes:
    parts = []
    while part := os.read(descriptor, 1 << 20):
        parts.append(part)
    return b"".join(parts)


# --- outside -------------------------------------------------------------------------------


def supervise(config: dict[str, Any], data: bytes) -> dict[str, Any]:
    kernel.adopt_orphans()
    root = os.geteuid() == 0
    config["uid"] = own_user() if root else os.geteuid()
    owners = Owners(config["uid"], config["writable"]) if root else None
    watch = Watch(config, data)
    try:
        if owners is not None:
            owners.give()
        watch.start()
        watch.loop()
    finally:
        uninterrupted(lambda: end_everything(config["uid"] if root else None))
        watch.drain()
        if owners is not None:
            uninterrupted(owners.take_back)
    return watch.answer()


def own_user() -> int:
    """An unprivileged user that no other sandbox has now, where so many users exist.

    From the range that systemd, too, gives to short-lived services: no one else owns files
    or processes under these numbers.
    """
    chosen = 61184 + os.getpid() % 4336
    with open("/proc/self/uid_map") as users, open("/proc/self/gid_map") as groups:
        for text in (users.read(), groups.read()):
            lines = [[int(word) for word in line.split()] for line in text.splitlines()]
            if not any(first <= chosen < first + count for first, _, count in lines):
                return 65534
    return chosen


class Owners:
    """Lends the writable paths to the sandbox's user, and gives them back."""

    def __init__(self, uid: int, paths: list[str]) -> None:
        self.uid, self.paths = uid, paths
        self.before: dict[str, tuple[int, int]] = {}

    def give(self) -> None:
        for path in self._all():
            status = os.lstat(path)
            self.before[path] = (status.st_uid, status.st_gid)
            os.lchown(path, self.uid, self.uid)

    def take_back(self) -> None:
        mine = (os.geteuid(), os.getegid())
        for path in self._all():
            os.lchown(path, *self.before.get(path, mine))

    def _all(self) -> list[str]:
        found = []
        for path in self.paths:
            found.append(path)
            for folder, folders, files in os.walk(path):
                found += [os.path.join(folder, name) for name in folders + files]
        return found


class Watch:
    """One command: its pipes, its clock and how it ended."""

    def __init__(self, config: dict[str, Any], data: bytes) -> None:
        self.config = config
        self.data = memoryview(data)
        self.output = {"stdout": bytearray(), "stderr": bytearray()}
        self.room = config["output_kb"] * 1024
        self.reason = ""
        self.record: dict[str, Any] = {}
        self.status: int | None = None
        self.usage: tuple[float, int] = (0.0, 0)
        self.failure = ""
        self.poll = select.epoll()
        self.readers: dict[int, str] = {}
        self.stdin, self.waits_to_feed = -1, False
        self.messages = bytearray()
        self.relay: Relay | None = None
        self.gate: Gate | None = None
        self.started = time.monotonic()
        self.seconds = 0.0

    def start(self) -> None:
        stdin, stdout, stderr, status = (os.pipe() for _ in range(4))
        theirs = (stdin[0], stdout[1], stderr[1], status[1])

        def inside(in_force: set[str], control: _socket.socket) -> None:
            for descriptor in (stdin[1], stdout[0], stderr[0], status[0]):
                os.close(descriptor)
            init(self.config, in_force, control, theirs)

        ours = start_inside(self.config, status[1], inside)
        for descriptor in theirs:
            os.close(descriptor)
        self.stdin = stdin[1]
        self.readers = {stdout[0]: "stdout", stderr[0]: "stderr", status[0]: "status"}
        for descriptor in (*self.readers, self.stdin):
            os.set_blocking(descriptor, False)
        for descriptor in self.readers:
            self.poll.register(descriptor, select.EPOLLIN)
        if self.config["endpoint"]:
            size = _socket.CMSG_SPACE(4)
            what, ancillary, _, _ = ours.recvmsg(1, size)
            if ancillary:
                self._open_endpoint(what, int.from_bytes(ancillary[0][2][:4], sys.byteorder))
        ours.close()
        self.started = time.monotonic()
        self._feed()

    def _open_endpoint(self, what: bytes, descriptor: int) -> None:
        address = tuple(self.config["endpoint"])
        if what == b"L":
            self.relay = Relay(descriptor, address, self.poll)
        else:
            uid = self.config["uid"] if os.geteuid() == 0 else None
            self.gate = Gate(descriptor, address, uid)
            self.poll.register(descriptor, select.EPOLLIN)

    def loop(self) -> None:
        end = self.started + self.config["wall_seconds"]
        while self.status is None and not self.failure and not self.reason:
            left = end - time.monotonic()
            if left <= 0:
                self.reason = "timeout"
                break
            for descriptor, events in self.poll.poll(left):
                if self.gate is not None and descriptor == self.gate.descriptor:
                    if events & select.EPOLLHUP:  # all that could ask have ended
                        self.poll.unregister(descriptor)
                    else:
                        self.gate.handle()
                elif self.relay is not None and self.relay.owns(descriptor):
                    self.relay.handle(descriptor, events)
                elif descriptor == self.stdin:
                    self._feed()
                elif descriptor in self.readers:
                    self._take(descriptor)
        self.seconds = time.monotonic() - self.started

    def drain(self) -> None:
        """What was written before the end. Every writer is gone by now."""
        for descriptor in list(self.readers):
            while descriptor in self.readers and self._take(descriptor):
                pass

    def _feed(self) -> None:
        """Give the program what its input takes now."""
        try:
            while self.data:
                self.data = self.data[os.write(self.stdin, self.data[: 1 << 16]) :]
        except BlockingIOError:
            if not self.waits_to_feed:
                self.waits_to_feed = True
                self.poll.register(self.stdin, select.EPOLLOUT)
            return
        except BrokenPipeError:
            self.data = memoryview(b"")
        os.close(self.stdin)  # which also ends its registration
        self.stdin = -1

    def _take(self, descriptor: int) -> bool:
        """Read once. False when there is nothing more now."""
        try:
            data = os.read(descriptor, 1 << 16)
        except BlockingIOError:
            return False
        name = self.readers[descriptor]
        if not data:
            del self.readers[descriptor]
            os.close(descriptor)
            if name == "status" and self.status is None:
                self.reason = self.reason or "lost"
            return False
        if name == "status":
            self.messages += data
            self._messages()
            return True
        self.output[name] += data[: self.room]
        if len(data) > self.room and self.reason not in ("timeout", "memory"):
            self.reason = "output"
        self.room = max(0, self.room - len(data))
        return True

    def _messages(self) -> None:
        while len(self.messages) >= 4:
            size = int.from_bytes(self.messages[:4], "little")
            if len(self.messages) < 4 + size:
                return
            kind, value = marshal.loads(bytes(self.messages[4 : 4 + size]))
            del self.messages[: 4 + size]
            if kind == "record":
                self.record = value
            elif kind == "failed":
                self.failure = value
            elif kind == "memory":
                self.reason = "memory"
            else:
                self.status, self.usage = value

    def answer(self) -> dict[str, Any]:
        return {
            "status": self.status,
            "usage": self.usage,
            "reason": self.reason,
            "failure": self.failure,
            "record": self.record,
            "seconds": self.seconds,
            "connections": sum(one.connections for one in (self.relay, self.gate) if one),
            **{name: bytes(data) for name, data in self.output.items()},
        }


def end_everything(uid: int | None) -> None:
    """Kill every descendant and wait until all are gone. With `uid`, all of that user too.

    The children's own death takes a process namespace with it; without one, this repeats until
    nothing is left, since a process may fork while the list is made.
    """
    quick = 5
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid:
            continue
        if quick == 5 or quick == 0:
            _kill_descendants()
            if uid is not None and quick == 0:
                _kill_user(uid)
        quick = max(0, quick - 1)
        time.sleep(0.001)


def _kill_descendants() -> None:
    parents: dict[int, int] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    parents[int(name)] = int(file.read().rpartition(b")")[2].split()[1])
            except OSError:
                continue
    family = {os.getpid()}
    while found := {p for p, parent in parents.items() if parent in family} - family:
        family |= found
    for pid in family - {os.getpid()}:
        try:
            os.kill(pid, signal.SIGKILL)
        except OSError:
            continue


def _kill_user(uid: int) -> None:
    """All processes of a user at once, which no fork can outrun."""
    pid = os.fork()
    if pid == 0:
        try:
            os.setgroups([])
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
            os.kill(-1, signal.SIGKILL)
        finally:
            os._exit(0)
    os.waitpid(pid, 0)


def remove_tree(path: str) -> None:
    """Remove a file or folder that a program left, however deep it is."""
    try:
        pid = os.posix_spawn("/bin/rm", ["rm", "-rf", "--", path], {})
    except OSError:
        return
    os.waitpid(pid, 0)


# --- inside --------------------------------------------------------------------------------


def send(descriptor: int, kind: str, value: Any) -> None:
    message = marshal.dumps((kind, value))
    os.write(descriptor, len(message).to_bytes(4, "little") + message)


def _as_child(work: Callable[[], None], status: int) -> None:
    """Run `work` in a forked process, which never returns to the parent's code."""
    try:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        work()
    except _confine.RefusedError as error:
        send(status, "failed", str(error))
    except BaseException as error:
        send(status, "failed", f"{type(error).__name__}: {error}")
    finally:
        os._exit(1)


def start_inside(
    config: dict[str, Any], status: int, work: Callable[[set[str], _socket.socket], None]
) -> _socket.socket:
    """Run `work(layers in force, its end of a socket)` in new namespaces; returns our end.

    `work` runs in the first process of the process namespace, if one is permitted. What goes
    wrong before is sent over `status`.
    """
    ours, theirs = _socket.socketpair()
    pid = os.fork()
    if pid == 0:
        ours.close()
        _as_child(lambda: _middle(config, theirs, status, work), status)
    theirs.close()
    ours.settimeout(_START_SECONDS)
    if ours.recv(1) == b"U":
        _confine.map_users_of(pid)
        ours.send(b"M")
    return ours


def _middle(
    config: dict[str, Any],
    control: _socket.socket,
    status: int,
    work: Callable[[set[str], _socket.socket], None],
) -> None:
    kernel.die_with_parent(signal.SIGKILL)

    def map_users() -> None:
        control.send(b"U")
        if control.recv(1) != b"M":
            os._exit(1)

    _confine.prefer_to_kill()
    in_force = _confine.enter_namespaces(set(config["layers"]), map_users)
    if os.geteuid() != 0 or "user-namespace" not in in_force:
        control.send(b"-")
    pid = os.fork()
    if pid == 0:
        kernel.die_with_parent(signal.SIGKILL)
        _as_child(lambda: work(in_force, control), status)
    os.closerange(3, 4096)
    os.waitpid(pid, 0)
    os._exit(0)


def init(
    config: dict[str, Any],
    in_force: set[str],
    control: _socket.socket,
    channels: tuple[int, int, int, int],
) -> None:
    kernel.adopt_orphans()
    stdin, stdout, stderr, status = channels
    if "network-namespace" in in_force and config["sockets"]:
        kernel.loopback_up()
    if config["endpoint"] and "network-namespace" in in_force:
        listener = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
        listener.bind(tuple(config["endpoint"]))
        listener.listen(512)
        number = listener.fileno().to_bytes(4, sys.byteorder)
        control.sendmsg([b"L"], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, number)])
        listener.close()
    _confine.make_root(config, in_force)
    pid = os.fork()
    if pid == 0:
        _as_child(lambda: program(config, in_force, control, channels), status)
    control.close()
    for descriptor in (stdin, stdout, stderr):
        os.close(descriptor)
    kernel.hide_memory()
    watches_memory = "mount-namespace" in in_force and os.path.exists("/proc/self")
    descriptor = os.pidfd_open(pid)
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    while True:
        ended = poll.poll(_MEMORY_POLL_SECONDS * 1000 if watches_memory else 1000)
        _reap_others(pid)
        if ended:
            break
        if watches_memory and _resident_bytes() > config["memory_mb"] * _confine.MEGABYTE:
            send(status, "memory", None)
            os._exit(0)
    _, result, usage = os.wait4(pid, 0)
    send(status, "exit", (result, (usage.ru_utime + usage.ru_stime, usage.ru_maxrss)))
    os._exit(0)


def _reap_others(pid: int) -> None:
    """Collect orphans, and leave the program's own end to the caller."""
    while True:
        try:
            found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return
        if found is None or found.si_pid == pid:
            return
        os.waitpid(found.si_pid, 0)


def _resident_bytes() -> int:
    """Memory of all processes here; shared pages count once if it looks like much."""
    names = [name for name in os.listdir("/proc") if name.isdigit() and name != "1"]
    if len(names) < 2:
        return 0  # the limit on the one process's address space is enough
    total = 0
    for name in names:
        try:
            with open(f"/proc/{name}/smaps_rollup", "rb") as file:
                for line in file:
                    if line.startswith(b"Pss:"):
                        total += int(line.split()[1]) * 1024
                        break
        except OSError:
            try:
                with open(f"/proc/{name}/statm", "rb") as file:
                    total += int(file.read().split()[1]) * _PAGE
            except OSError:
                continue
    return total


def program(
    config: dict[str, Any],
    in_force: set[str],
    control: _socket.socket,
    channels: tuple[int, int, int, int],
) -> None:
    stdin, stdout, stderr, status = channels
    os.setsid()
    for target, source in enumerate((stdin, stdout, stderr)):
        os.dup2(source, target)
    os.set_inheritable(status, False)
    lock = _confine.Lock(config, in_force)
    record = lock.apply()
    if lock.gate:
        questions = lock.questions.to_bytes(4, sys.byteorder)
        control.sendmsg([b"G"], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, questions)])
    os.chdir(config["scratch"])
    os.umask(0o077)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)  # Python ignores them, and exec would keep that
    send(status, "record", record)
    os.closerange(3, status)
    os.closerange(status + 1, 4096)
    os.execve(config["command"][0], config["command"], config["environment"])
