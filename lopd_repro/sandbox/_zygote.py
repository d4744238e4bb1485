"""A warm interpreter inside the walls that forks one fresh, separately locked process a case.

Started like the supervisor. It enters the namespaces and makes the root once; for each job it
forks

    keeper     new process, mount and user namespaces for this job; waits. Not needed where the
               zygote, as root, may give its children namespaces and nothing is left outside them
    warden     first process of the job's process namespace: clock, output cap, results
    program    locked, then the code (`_harness`); one process for all cases, or, of a script that
               could notice, one a case

The job and its answer travel over descriptors that only the warden reads and writes, so that
this process, of which all programs are copies, never holds anybody's code or inputs. Expected
results are never sent here at all.

Time is processor time of the program's process, so that a loaded machine changes no verdict;
the wall clock, a multiple of it, catches those that sleep.
"""

# ruff: noqa: PTH118, PTH208

from __future__ import annotations

import _socket
import fcntl
import marshal
import os
import select
import signal
import sys
import tempfile
import time
from contextlib import suppress

from lopd_repro.sandbox import _confine, _harness
from lopd_repro.sandbox import _kernel as kernel
from lopd_repro.sandbox._supervisor import (
    end_everything,
    own_user,
    read_all,
    remove_tree,
    send,
    start_inside,
    stop,
    uninterrupted,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_CHUNK = 1 << 16
_RESULTS, _GO = 3, 4  # the pipes' numbers in the program's process


def main() -> None:
    """Start the zygote inside; this process stays outside and ends it."""
    config = marshal.loads(read_all(0))
    requests = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM, 0, config["requests"])
    signal.signal(signal.SIGTERM, stop)
    kernel.die_with_parent(signal.SIGTERM)
    if os.getppid() != config["parent"]:
        return
    kernel.adopt_orphans()
    sys.path += config["packages"]
    for name in config["preload"]:
        __import__(name)
    _harness.prepare()
    config["uid"] = own_user() if os.geteuid() == 0 else os.geteuid()
    theirs = os.dup(1)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    try:
        control = start_inside(
            config, theirs, lambda in_force, _: serve(config, in_force, requests)
        )
        control.close()
        os.close(theirs)
        os.dup2(null, 1)
        requests.close()
        os.waitpid(-1, 0)
    finally:
        uninterrupted(lambda: end_everything(None))


def serve(config: dict[str, Any], in_force: set[str], requests: _socket.socket) -> None:
    """The zygote: two descriptors come, a keeper goes. Ends with the other side."""
    kernel.adopt_orphans()
    proc = None
    if "pid-namespace" not in in_force:
        in_force.discard("mount-namespace")  # ending what is left then needs the system's /proc
    elif "mount-namespace" in in_force:
        proc = _open_proc()
    _confine.make_root(config, in_force)
    kernel.hide_memory()
    send(1, "record", sorted(in_force))
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (1, 2):
        os.dup2(null, descriptor)
    size = _socket.CMSG_SPACE(8)
    home = _own_namespace(config, in_force, proc)
    number = 0
    while True:
        data, ancillary, _, _ = requests.recvmsg(1, size)
        if not data:
            os._exit(0)
        content = ancillary[0][2]
        job, answer = (int.from_bytes(content[i : i + 4], sys.byteorder) for i in (0, 4))
        number += 1
        if home is not None and not kernel.try_unshare(kernel.NEWPID):
            raise OSError("no further process namespace")
        if os.fork() == 0:
            requests.close()
            if home is not None:
                _guard(answer, lambda: watch(config, in_force, number, job, answer))  # noqa: B023
            _guard(answer, lambda: keep(config, in_force, proc, job, answer))  # noqa: B023
        if home is not None:
            kernel.enter_again(home, kernel.NEWPID)
        os.close(job)
        os.close(answer)
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


def _open_proc() -> int | None:
    """A handle on this namespace's /proc, which no program will see."""
    try:
        kernel.mount("none", "/", None, kernel.MS_REC | kernel.MS_PRIVATE)
        kernel.mount("proc", "/proc", "proc", kernel.MS_NOSUID | kernel.MS_NODEV)
    except OSError:
        return None
    return os.open("/proc", os.O_PATH | os.O_DIRECTORY)


def _own_namespace(config: dict[str, Any], in_force: set[str], proc: int | None) -> int | None:
    """A handle on this process's own process namespace if jobs need no keeper, else None."""
    needed = {"pid-namespace", "mount-namespace"}
    if os.geteuid() != 0 or proc is None or not needed <= (in_force & set(config["layers"])):
        return None
    try:
        return os.open("self/ns/pid", os.O_RDONLY | os.O_CLOEXEC, dir_fd=proc)
    except OSError:
        return None


def watch(config: dict[str, Any], outer: set[str], number: int, job: int, answer: int) -> None:
    """Be the warden of a job, in a new process namespace; its end is the end of all in there."""
    if not kernel.try_unshare(kernel.NEWNS):
        raise OSError("no further mount namespace")
    config = {**config, "uid": _own_user_of(config["uid"], number)}
    _own_folders(config)
    config["scratch"], config["folders"] = "/tmp", ["/tmp", "/dev/shm"]
    Warden(config, set(outer), job, answer).work()


def _guard(answer: int, work: Callable[[], None]) -> None:
    """Run `work` in a forked process, which never returns to the parent's code."""
    try:
        work()
    except BaseException as error:
        text = f"{type(error).__name__}: {error}"
        os.write(answer, marshal.dumps({"cases": [], "record": {}, "failure": text}))
    finally:
        os._exit(1)


def keep(config: dict[str, Any], outer: set[str], proc: int | None, job: int, answer: int) -> None:
    """Enter the job's own namespaces, start its warden there, wait, clean up."""
    kernel.die_with_parent(signal.SIGKILL)
    kernel.adopt_orphans()
    root = os.geteuid() == 0
    config = dict(config)
    if root:
        config["uid"] = _own_user_of(config["uid"], os.getpid())
    wanted = set(config["layers"]) & {"mount-namespace", "pid-namespace"}
    if "mount-namespace" not in outer:
        wanted.discard("mount-namespace")
    if "pid-namespace" not in outer:
        wanted.discard("pid-namespace")
    if not root and "user-namespace" in outer and proc is not None:
        wanted.add("user-namespace")
    kernel.hide_memory(False)  # which would also keep this process from writing its own maps
    own = _confine.enter_namespaces(wanted, lambda: None, proc)
    kernel.hide_memory()
    in_force = (outer - {"pid-namespace", "mount-namespace"}) | own
    folder = None
    if "mount-namespace" in own:
        _own_folders(config)
        config["scratch"], config["folders"] = "/tmp", ["/tmp", "/dev/shm"]
    else:
        folder = tempfile.mkdtemp(prefix="lopd-program-")
        if root:
            os.chown(folder, config["uid"], config["uid"])
        config["scratch"], config["writable"] = folder, [folder]
    pid = os.fork()
    if pid == 0:
        _guard(answer, lambda: Warden(config, in_force, job, answer).work())
    os.close(job)
    os.close(answer)
    os.waitpid(pid, 0)
    end_everything(config["uid"] if root and "pid-namespace" not in in_force else None)
    if folder is not None:
        remove_tree(folder)
    os._exit(0)


def _own_user_of(base: int, number: int) -> int:
    """A user for one job, by a number of its own; the base tells zygotes apart."""
    if base == 65534:
        return base
    return 61184 + (base + number) % 4336


def _own_folders(config: dict[str, Any]) -> None:
    kernel.mount("none", "/", None, kernel.MS_REC | kernel.MS_PRIVATE)
    options = f"mode=1777,size={config['file_mb']}m,nr_inodes=4096"
    kernel.mount("tmpfs", "/tmp", "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, options)
    kernel.mount("/tmp", "/dev/shm", None, kernel.MS_BIND)


class Warden:
    """Runs the cases of one job, one after the other, and answers once."""

    def __init__(self, config: dict[str, Any], in_force: set[str], job: int, answer: int) -> None:
        kernel.die_with_parent(signal.SIGKILL)
        kernel.adopt_orphans()
        kernel.hide_memory()
        self.job = marshal.loads(read_all(job))
        os.close(job)
        self.answer = answer
        self.config = {**config, **self.job["limits"]}
        self.cpu_seconds: float = self.job["case_cpu_seconds"]
        self.wall_seconds: float = self.job["case_wall_seconds"]
        self.in_force = in_force
        self.alone = "pid-namespace" in in_force
        self.lock = _confine.Lock(self.config, in_force)
        self.record: dict[str, Any] = {}
        self.cases: list[dict[str, Any]] = []
        self.together = True  # whether a process may go on with the next case

    def work(self) -> None:
        failure = ""
        inputs = list(enumerate(self.job["inputs"]))
        try:
            while len(self.cases) < len(inputs):
                first = len(self.cases)
                todo = inputs[first:] if self.together else inputs[first : first + 1]
                Run(self, todo).work()
                self._empty_scratch()
                if self.job["stop"] and self.cases[-1]["verdict"] != "ok":
                    break
        except _confine.RefusedError as error:
            failure = str(error)
        result = {"cases": self.cases, "record": self.record, "failure": failure}
        data = marshal.dumps(result)
        while data:
            data = data[os.write(self.answer, data) :]
        os._exit(0)

    def end_others(self) -> None:
        """No process of the last run is left: what was started in it ends with it."""
        if self.alone:
            with suppress(OSError):
                os.kill(-1, signal.SIGKILL)
            with suppress(ChildProcessError):
                while True:
                    os.waitpid(-1, 0)
        else:
            end_everything(self.config["uid"] if os.geteuid() == 0 else None)

    def _empty_scratch(self) -> None:
        """What one case leaves behind, the next does not see."""
        left = os.listdir(self.config["scratch"])
        if left and "mount-namespace" in self.in_force:
            for path in ("/dev/shm", "/tmp"):
                kernel.unmount(path)
            _own_folders(self.config)
            self.lock = _confine.Lock(self.config, self.in_force)
        else:
            for name in left:
                remove_tree(os.path.join(self.config["scratch"], name))


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


class Run:
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
