"""The file system that a confined process sees: a new root that holds the allow-list alone.

What is not listed is not there, so nothing need be guessed about secrets. Everything is
read-only but the writable paths, the scratch folder and a small /tmp in memory. /etc holds no
file of the system's but the loader's cache and the time zone.
"""

# ruff: noqa: PTH102, PTH103, PTH106, PTH110, PTH112, PTH114, PTH115, PTH116, PTH120, PTH123, PTH211
# (pathlib takes longer to import than a sandbox to start.)

from __future__ import annotations

import os
import stat

from lopd_repro.sandbox import _kernel as kernel

TYPE_CHECKING = False
if TYPE_CHECKING:  # collections is slow to import
    from collections.abc import Sequence

SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
ETC = ("ld.so.cache", "ld.so.conf", "ld.so.conf.d", "alternatives", "localtime")
DEVICES = ("null", "zero", "full", "random", "urandom")
PROC = ("cpuinfo", "meminfo", "stat", "sys", "filesystems", "loadavg", "uptime", "version")
_PROC_HIDDEN = ("kcore", "keys", "kmsg", "timer_list", "sched_debug", "slabinfo", "vmallocinfo")
_PROC_READ_ONLY = ("sys", "sysrq-trigger", "irq", "bus", "fs")
_STAGE, _OLD = "/tmp", "/.old"


def landlock_readable(readable: Sequence[str]) -> list[str]:
    """The same allow-list for Landlock. /proc is the process's own part of it."""
    etc = (f"/etc/{name}" for name in (*ETC, "passwd", "group", "hosts"))
    return [*SYSTEM, *etc, "/proc/self", *(f"/proc/{name}" for name in PROC), *readable]


def landlock_writable(writable: Sequence[str]) -> list[str]:
    return [*(f"/dev/{name}" for name in DEVICES), *writable]


class Root:
    """What is visible, and how it is mounted, in a mount namespace of the caller's own.

    `sources` names where a path really is, if elsewhere. `folders` are empty and in memory, of
    `memory_mb` each. `proc` asks for a /proc, and is only for callers in a process namespace.
    """

    def __init__(
        self,
        readable: Sequence[str],
        writable: Sequence[str],
        hidden: Sequence[str],
        folders: Sequence[str],
        sources: dict[str, str],
        *,
        memory_mb: int,
        proc: bool,
    ) -> None:
        self.readable, self.writable, self.hidden = readable, writable, hidden
        self.folders, self.sources = folders, sources
        self.memory_mb, self.proc = memory_mb, proc

    def enter_stage(self) -> None:
        """An empty root. On `OSError`, the system's refusal, the old root is still in place."""
        kernel.mount("none", "/", None, kernel.MS_REC | kernel.MS_PRIVATE)
        flags = kernel.MS_NOSUID | kernel.MS_NODEV
        kernel.mount("tmpfs", _STAGE, "tmpfs", flags, "mode=0755,size=4m,nr_inodes=4096")
        try:
            kernel.protect_mount(_STAGE, read_only=False)
            os.mkdir(_STAGE + _OLD, 0o755)
            kernel.pivot_root(_STAGE, _STAGE + _OLD)
        except OSError:
            kernel.unmount(_STAGE)
            raise
        os.chdir("/")

    def fill(self) -> None:
        """Mount what is visible, from the old root, and leave that for good."""
        os.umask(0o022)
        for path in SYSTEM:
            self._system(path)
        self._etc()
        self._devices()
        self._memory("/tmp")
        os.mkdir("/dev/shm", 0o755)
        kernel.mount("/tmp", "/dev/shm", None, kernel.MS_BIND)
        if self.proc:
            self._proc()
        chosen = [(path, True) for path in self.readable] + [(p, False) for p in self.writable]
        for path, read_only in sorted(chosen, key=lambda one: (one[0].count("/"), one[0], -one[1])):
            self._bind(path, read_only=read_only)
        for path in self.folders:
            self._memory(path)
        for path in self.hidden:
            self._hide(path)
        kernel.unmount(_OLD)
        os.rmdir(_OLD)
        kernel.protect_mount("/", read_only=True, recursive=False)

    def _system(self, path: str) -> None:
        old = _OLD + path
        if os.path.islink(old):
            os.symlink(os.readlink(old), path)
        elif os.path.isdir(old):
            self._bind(path, read_only=True)

    def _etc(self) -> None:
        os.mkdir("/etc", 0o755)
        for name in ETC:
            old = f"{_OLD}/etc/{name}"
            if os.path.islink(old):
                os.symlink(os.readlink(old), f"/etc/{name}")
            elif os.path.exists(old):
                self._bind(f"/etc/{name}", read_only=True)
        user = "nobody:x:65534:65534:nobody:/:/bin/false\n"
        for name, text in (
            ("passwd", user),
            ("group", "nogroup:x:65534:\n"),
            ("hosts", "127.0.0.1 localhost\n"),
            ("nsswitch.conf", "passwd: files\ngroup: files\nhosts: files\n"),
        ):
            with open(f"/etc/{name}", "w") as file:
                file.write(text)

    def _devices(self) -> None:
        os.mkdir("/dev", 0o755)
        for name in DEVICES:
            _place(f"/dev/{name}", folder=False)
            # Not `protect_mount`: without devices a device file would be dead.
            kernel.mount(f"{_OLD}/dev/{name}", f"/dev/{name}", None, kernel.MS_BIND)
        for name, target in (("fd", ""), ("stdin", "/0"), ("stdout", "/1"), ("stderr", "/2")):
            os.symlink(f"/proc/self/fd{target}", f"/dev/{name}")

    def _memory(self, path: str) -> None:
        _place(path, folder=True)
        flags = kernel.MS_NOSUID | kernel.MS_NODEV
        options = f"mode=1777,size={self.memory_mb}m,nr_inodes=65536"
        kernel.mount("tmpfs", path, "tmpfs", flags, options)

    def _proc(self) -> None:
        os.mkdir("/proc", 0o755)
        flags = kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC
        try:
            kernel.mount("proc", "/proc", "proc", flags)
        except OSError:
            return  # a container that masks parts of its own /proc refuses; an empty one is safe
        for name in _PROC_READ_ONLY:
            if os.path.exists(f"/proc/{name}"):
                kernel.mount(f"/proc/{name}", f"/proc/{name}", None, kernel.MS_BIND)
                kernel.protect_mount(f"/proc/{name}", read_only=True)
        for name in _PROC_HIDDEN:
            if os.path.exists(f"/proc/{name}"):
                kernel.mount("/dev/null", f"/proc/{name}", None, kernel.MS_BIND)

    def _bind(self, path: str, *, read_only: bool) -> None:
        source = _OLD + self.sources.get(path, path)
        _place(path, folder=stat.S_ISDIR(os.stat(source).st_mode))
        kernel.mount(source, path, None, kernel.MS_BIND | kernel.MS_REC)
        kernel.protect_mount(path, read_only=read_only)

    def _hide(self, path: str) -> None:
        if os.path.isdir(path):
            flags = kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_RDONLY
            kernel.mount("tmpfs", path, "tmpfs", flags, "mode=0755,size=4k,nr_inodes=2")
        elif os.path.exists(path):
            kernel.mount("/dev/null", path, None, kernel.MS_BIND)


def _place(path: str, *, folder: bool) -> None:
    """Something to mount on at `path`, made where there is nothing yet."""
    if folder:
        os.makedirs(path, 0o755, exist_ok=True)
        return
    os.makedirs(os.path.dirname(path), 0o755, exist_ok=True)
    if not os.path.exists(path):
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o644))
