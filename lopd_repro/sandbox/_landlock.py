"""Landlock: an allow-list of paths that a process can lay on itself without any privilege.

It serves where mount namespaces are refused, and as a second fence where they are not. Newer
kernels also keep signals and abstract sockets inside, and refuse TCP. What it cannot do:
refuse changes of modes, owners, times and extended attributes (see `_seccomp`).
"""

from __future__ import annotations

import ctypes
import os
import stat

from lopd_repro.sandbox._kernel import check, libc

_CREATE, _ADD_RULE, _RESTRICT = 444, 445, 446
_VERSION = 1
_PATH_BENEATH = 1

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1, 2, 4, 8
_READ = _EXECUTE | _READ_FILE | _READ_DIR
_REFER, _TRUNCATE, _IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15
_FILE_ONLY = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV
_NET_TCP = 3
_SCOPE_SOCKETS, _SCOPE_SIGNALS = 1, 2


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = [("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32)]


def version() -> int:
    """The kernel's Landlock version, 0 where it has none."""
    return max(0, int(libc.syscall(_CREATE, None, ctypes.c_size_t(0), _VERSION)))


class Ruleset:
    """The allow-list. Paths are opened here, so make it while they can still be reached."""

    def __init__(self, readable: list[str], writable: list[str], *, refuse_tcp: bool) -> None:
        self.version = version()
        if self.version == 0:
            raise OSError("the kernel has no Landlock")
        self.handled = (1 << 13) - 1
        for since, right in ((2, _REFER), (3, _TRUNCATE), (5, _IOCTL_DEV)):
            if self.version >= since:
                self.handled |= right
        network = _NET_TCP if refuse_tcp and self.version >= 4 else 0
        self.keeps_signals = self.version >= 6
        scope = _SCOPE_SOCKETS | _SCOPE_SIGNALS if self.keeps_signals else 0
        attributes = (ctypes.c_uint64 * 3)(self.handled, network, scope)
        size = 8 if self.version < 4 else 16 if self.version < 6 else 24
        self.descriptor = check(
            libc.syscall(_CREATE, ctypes.byref(attributes), ctypes.c_size_t(size), 0),
            "landlock_create_ruleset",
        )
        os.set_inheritable(self.descriptor, False)
        for path in readable:
            self._allow(path, _READ)
        for path in writable:
            self._allow(path, self.handled)

    def _allow(self, path: str, rights: int) -> None:
        try:
            descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError:
            return  # what is not there need not be allowed
        try:
            if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
                rights &= _FILE_ONLY
            rule = _PathBeneath(rights & self.handled, descriptor)
            check(
                libc.syscall(_ADD_RULE, self.descriptor, _PATH_BENEATH, ctypes.byref(rule), 0),
                f"landlock_add_rule {path}",
            )
        finally:
            os.close(descriptor)

    def restrict(self) -> None:
        """Lay the list on this process for good. Needs `no_new_privileges` before."""
        check(libc.syscall(_RESTRICT, self.descriptor, 0), "landlock_restrict_self")
        os.close(self.descriptor)
