"""The order in which a process is locked in, and the record of what came into force.

Three steps, in three processes: `enter_namespaces`, then `make_root` in the first process of
the new process namespace, then `lock` in the process that becomes the program. Every layer
that the system refuses is left out and shows in the record; `lock` raises `RefusedError`
before any foreign code runs if the record is below what was asked for.
"""

# ruff: noqa: PTH110, PTH112, PTH116, PTH123, PTH208
# (pathlib takes longer to import than a sandbox to start.)

from __future__ import annotations

import os
import resource
from collections.abc import Callable
from typing import Any

from lopd_repro.sandbox import _kernel as kernel
from lopd_repro.sandbox import _landlock, _root, _seccomp

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


def enter_namespaces(config: dict[str, Any], map_users: Callable[[], None]) -> set[str]:
    """Leave for new namespaces. Returns the layers in force; children are in them.

    `map_users` is called once in a new user namespace and has another process, which has the
    right to, write its maps; without privilege they are written here.
    """
    layers = set(config["layers"])
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
                _write(f"/proc/self/{name}", text)
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


def _write(path: str, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY)
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
        own_processes="pid-namespace" in in_force,
    )
    try:
        root.enter_stage()
    except OSError:
        in_force.discard("mount-namespace")
        return
    root.fill()


def lock(config: dict[str, Any], in_force: set[str]) -> dict[str, Any]:
    """Everything that cannot be taken back, in this process. Returns the record."""
    layers = set(config["layers"])
    uid = config["uid"] if os.geteuid() == 0 else None
    inside = "mount-namespace" in in_force
    own_processes = "pid-namespace" in in_force
    has_seccomp = "seccomp" in layers and _seccomp.supported()
    if config["hidden"] and not inside:
        raise RefusedError("paths cannot be hidden without a mount namespace")

    ruleset = None
    if "landlock" in layers and _landlock.version():
        writable = [*config["writable"], *config["folders"]]
        if inside:
            writable += ["/tmp", "/dev/shm"]
        try:
            ruleset = _landlock.Ruleset(
                ["/"] if inside else _root.landlock_readable(config["readable"]),
                _root.landlock_writable(writable),
                refuse_tcp="network-namespace" not in in_force,
            )
        except OSError:
            ruleset = None

    refused = _set_limits(config, in_force, uid)
    contained = (inside and ("user-namespace" in in_force or has_seccomp)) or (
        ruleset is not None and has_seccomp
    )
    keep = None
    if uid is not None and _unreadable_to(uid, [*config["readable"], *config["programs"]]):
        if not contained:
            raise RefusedError(
                "what the program must read is in a private folder of the superuser, and the "
                "system offers neither a mount namespace nor Landlock"
            )
        keep = kernel.CAP_DAC_READ_SEARCH
    try:
        kernel.become(uid, keep)
    except OSError as error:
        raise RefusedError(f"the user {uid} cannot be taken on ({error})") from None
    kernel.no_new_privileges()

    signals = own_processes or uid is not None
    if ruleset is not None:
        ruleset.restrict()
        signals = signals or ruleset.keeps_signals
    if has_seccomp:
        families: set[int] = set()
        if "network-namespace" in in_force and config["sockets"]:
            families = {_AF_INET, _AF_INET6} | ({_AF_UNIX} if inside else set())
        code = _seccomp.program(
            frozenset(families),
            own_pid=None if signals else os.getpid(),
            attributes=inside or uid is not None,
            shared_objects="ipc-namespace" in in_force,
        )
        try:
            _seccomp.install(code)
        except OSError:
            has_seccomp = False
    record = {
        "network": "namespace"
        if "network-namespace" in in_force
        else "seccomp"
        if has_seccomp
        else "none",
        "files": "namespace"
        if inside
        else "landlock"
        if ruleset is not None
        else "modes"
        if uid is not None
        else "none",
        "processes": "namespace"
        if own_processes
        else "user"
        if uid is not None
        else "signals"
        if signals or has_seccomp
        else "none",
        "user": "dropped"
        if uid is not None
        else "namespace"
        if "user-namespace" in in_force
        else "unchanged",
        "syscalls": "seccomp" if has_seccomp else "none",
        "landlock": ruleset.version if ruleset is not None else 0,
        "may_read_all_shown": keep is not None,
        "limits_refused": refused,
    }
    for name in ("network", *config["require"]):
        if record[name] in ("none", "unchanged"):
            raise RefusedError(f"isolation of {name} is not available on this system")
    return record


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
