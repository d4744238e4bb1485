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
import marshal
import os
import signal
import sys
import tempfile
from contextlib import suppress

from lopd_repro.sandbox import _confine, _harness
from lopd_repro.sandbox import _kernel as kernel
from lopd_repro.sandbox._process import Process
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
                Process(self, todo).work()
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
