"""The order in which a process is locked in, and the record of what came into force.

Three steps, in three processes: `enter_namespaces`, then `make_root` in the first process of
the new process namespace, then a `Lock` in the process that becomes the program. Every layer
that the system refuses is left out and shows in the record; `apply` raises `RefusedError`
before any foreign code runs if the record is below what was asked for.
"""

# ruff: noqa: PTH110, PTH112, PTH116, PTH123, PTH208
# (pathlib takes longer to import than a sandbox to start.)

from __future__ import annotations

import os
import resource

from lopd_repro.sandbox import _kernel as kernel
from lopd_repro.sandbox import _landlock, _root, _seccomp

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing is slow to import
    from collections.abc import Callable
    from typing import Any

MEGABYTE = 1 << 20
_AF_UNIX, _AF_INET, _AF_INET6 = 1, 2, 10
_NAMESPACES = (
    ("network-namespace", kernel.NEWNET),
    ("mount-namespace", kernel.NEWNS),
    ("pid-namespace", kernel.NEWPID),
    ("ipc-namespace", kernel.NEWIPC),
    ("ipc-namespace", kernel.NEWUTS),
)


class RefusedError(Exception):
    """The system does not permit what was asked for; nothing foreign has run."""


def enter_namespaces(
    layers: set[str], map_users: Callable[[], None], proc: int | None = None
) -> set[str]:
    """Leave for new namespaces. Returns the layers in force; children are in them.

    `map_users` is called once in a new user namespace and has another process, which has the
    right to, write its maps; without privilege they are written here. `proc` is an open folder
    to use where there is no /proc.
    """
    in_force = set()
    uid, gid = os.geteuid(), os.getegid()
    if "user-namespace" in layers and kernel.try_unshare(kernel.NEWUSER):
        in_force.add("user-namespace")
        if uid == 0:
            map_users()
        else:
            for name, text in (
                ("setgroups", "deny"),
                ("uid_map", f"{uid} {uid} 1"),
                ("gid_map", f"{gid} {gid} 1"),
            ):
                _write(f"self/{name}" if proc is not None else f"/proc/self/{name}", text, proc)
    for layer, flag in _NAMESPACES:
        if layer in layers and kernel.try_unshare(flag):
            in_force.add(layer)
    return in_force


def identity_map(current: str) -> str:
    """A map for a child namespace in which every id that exists here keeps its number."""
    lines = (line.split() for line in current.splitlines())
    return "".join(f"{inside} {inside} {count}\n" for inside, _, count in lines)


def map_users_of(pid: int) -> None:
    """Write the maps of a root process `pid` that has just entered a user namespace."""
    for name in ("uid_map", "gid_map"):
        with open(f"/proc/self/{name}") as file:
            text = identity_map(file.read())
        _write(f"/proc/{pid}/{name}", text)


def prefer_to_kill() -> None:
    """If the machine runs out of memory, what is inside goes first."""
    try:
        _write("/proc/self/oom_score_adj", "500")
    except OSError:
        return


def _write(path: str, text: str, folder: int | None = None) -> None:
    descriptor = os.open(path, os.O_WRONLY, dir_fd=folder)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)


def make_root(config: dict[str, Any], in_force: set[str]) -> None:
    """Move into the new root where mounting is permitted; otherwise forget that layer."""
    if "mount-namespace" not in in_force:
        return
    root = _root.Root(
        config["readable"],
        config["writable"],
        config["hidden"],
        config["folders"],
        config["sources"],
        memory_mb=config["file_mb"],
        proc="pid-namespace" in in_force and config["proc"],
    )
    try:
        root.enter_stage()
    except OSError:
        in_force.discard("mount-namespace")
        return
    root.fill()


class Lock:
    """Everything that cannot be taken back. Made once, `apply`-ed in each process to lock."""

    def __init__(self, config: dict[str, Any], in_force: set[str]) -> None:
        layers = set(config["layers"])
        self.config, self.in_force = config, in_force
        self.uid = config["uid"] if os.geteuid() == 0 else None
        self.inside = "mount-namespace" in in_force
        self.own_processes = "pid-namespace" in in_force
        if config["hidden"] and not self.inside:
            raise RefusedError("paths cannot be hidden without a mount namespace")
        self.has_seccomp = "seccomp" in layers and _seccomp.supported()
        self.ruleset = self._ruleset() if "landlock" in layers else None
        self.keep = self._capability()
        self.gate = bool(config["endpoint"]) and "network-namespace" not in in_force
        self.questions = 0  # descriptor of the gate, once the lock is applied
        if self.gate and not self.has_seccomp:
            raise RefusedError("an endpoint needs a network namespace or seccomp; both are refused")

    def _ruleset(self) -> _landlock.Ruleset | None:
        config = self.config
        writable = [*config["writable"], *config["folders"]]
        if self.inside:
            writable += ["/tmp", "/dev/shm"]
        try:
            return _landlock.Ruleset(
                ["/"] if self.inside else _root.landlock_readable(config["readable"]),
                _root.landlock_writable(writable),
                refuse_tcp="network-namespace" not in self.in_force,
            )
        except OSError:
            return None

    def _capability(self) -> int | None:
        """The right to read whatever is shown, if the dropped user would need it."""
        config = self.config
        needed = [*config["readable"], *config["programs"]]
        if self.uid is None or not _unreadable_to(self.uid, needed):
            return None
        own_root = self.inside and ("user-namespace" in self.in_force or self.has_seccomp)
        if not own_root and not (self.ruleset is not None and self.has_seccomp):
            raise RefusedError(
                "what the program must read is in a private folder of the superuser, and the "
                "system offers neither a mount namespace nor Landlock"
            )
        return kernel.CAP_DAC_READ_SEARCH

    def apply(self) -> dict[str, Any]:
        """Lock this process and all that it will start. Returns the record."""
        uid, config, in_force = self.uid, self.config, self.in_force
        refused = _set_limits(config, in_force, uid)
        try:
            kernel.become(uid, self.keep)
        except OSError as error:
            raise RefusedError(f"the user {uid} cannot be taken on ({error})") from None
        kernel.no_new_privileges()
        signals = self.own_processes or uid is not None
        if self.ruleset is not None:
            self.ruleset.restrict()
            signals = signals or self.ruleset.keeps_signals
        has_seccomp = self.has_seccomp and self._filter(signals)
        record = {
            "network": _first(
                ("namespace", "network-namespace" in in_force), ("seccomp", has_seccomp)
            ),
            "files": _first(
                ("namespace", self.inside),
                ("landlock", self.ruleset is not None),
                ("modes", uid is not None),
            ),
            "processes": _first(
                ("namespace", self.own_processes),
                ("user", uid is not None),
                ("signals", signals or has_seccomp),
            ),
            "user": _first(
                ("dropped", uid is not None), ("namespace", "user-namespace" in in_force)
            ),
            "syscalls": _first(("seccomp", has_seccomp)),
            "landlock": self.ruleset.version if self.ruleset is not None else 0,
            "may_read_all_shown": self.keep is not None,
            "limits_refused": refused,
        }
        for name in ("network", *config["require"]):
            if record[name] == "none":
                raise RefusedError(f"isolation of {name} is not available on this system")
        return record

    def _filter(self, signals: bool) -> bool:
        families: set[int] = set()
        if "network-namespace" in self.in_force and self.config["sockets"]:
            families = {_AF_INET, _AF_INET6} | ({_AF_UNIX} if self.inside else set())
        code = _seccomp.program(
            frozenset(families),
            own_pid=None if signals else os.getpid(),
            attributes=self.inside or self.uid is not None,
            shared_objects="ipc-namespace" in self.in_force and self.config["sockets"],
            gate=self.gate,
        )
        try:
            self.questions = _seccomp.install(code, gate=self.gate)
        except OSError as error:
            if self.gate:
                raise RefusedError(f"the system refuses a gate to the endpoint ({error})") from None
            return False
        return True


def _first(*layers: tuple[str, bool]) -> str:
    """The strongest layer in force."""
    return next((name for name, holds in layers if holds), "none")


def _unreadable_to(uid: int, paths: list[str]) -> bool:
    """Whether user `uid` lacks access to any of `paths`. `access` asks for the real user."""
    groups = os.getgroups()
    os.setgroups([])
    os.setresgid(uid, -1, -1)
    os.setresuid(uid, -1, -1)
    try:
        return any(
            os.path.exists(path)
            and not os.access(path, os.R_OK | os.X_OK if os.path.isdir(path) else os.R_OK)
            for path in paths
        )
    finally:
        os.setresuid(0, -1, -1)
        os.setresgid(0, -1, -1)
        os.setgroups(groups)


def _set_limits(config: dict[str, Any], in_force: set[str], uid: int | None) -> list[str]:
    """Resource limits that the program can never raise again. Returns the names refused."""
    processes = config["processes"]
    if uid is None:
        # The limit counts all of this user: the sandbox's own two, or everything they run.
        processes += 2 if "user-namespace" in in_force else _processes_of(os.getuid())
    cpu = max(1, int(config["cpu_seconds"] + 0.999))
    wanted = {
        "RLIMIT_AS": (config["memory_mb"] * MEGABYTE,) * 2,
        "RLIMIT_CPU": (cpu, cpu + 1),
        "RLIMIT_NPROC": (processes,) * 2,
        "RLIMIT_NOFILE": (config["open_files"],) * 2,
        "RLIMIT_FSIZE": (config["file_mb"] * MEGABYTE,) * 2,
        "RLIMIT_CORE": (0, 0),
        "RLIMIT_MEMLOCK": (0, 0),
        "RLIMIT_MSGQUEUE": (0, 0),
    }
    refused = []
    for name, values in wanted.items():
        try:
            resource.setrlimit(getattr(resource, name), values)
        except (AttributeError, ValueError, OSError):
            refused.append(name)
    return refused


def _processes_of(uid: int) -> int:
    """Threads that user `uid` has now, as the kernel's process limit counts them."""
    total = 0
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                if os.stat(f"/proc/{name}").st_uid == uid:
                    total += len(os.listdir(f"/proc/{name}/task"))
            except OSError:
                continue
    return total
