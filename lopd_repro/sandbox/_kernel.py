"""The kernel calls that confinement needs and Python does not offer.

Linux, through libc by ctypes. Every function raises `OSError` with the kernel's errno, except
`try_unshare`, where a refusal is an ordinary answer. Imported inside the sandbox: standard
library only, and as little of that as possible.
"""

from __future__ import annotations

import _socket
import ctypes
import fcntl
import os
import struct

NEWNS, NEWUTS, NEWIPC = 0x00020000, 0x04000000, 0x08000000
NEWUSER, NEWPID, NEWNET = 0x10000000, 0x20000000, 0x40000000

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC = 1, 2, 4, 8
MS_BIND, MS_REC, MS_PRIVATE = 4096, 16384, 1 << 18
MNT_DETACH = 2

CAP_DAC_READ_SEARCH = 2
LAST_CAPABILITY = 63

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_KEEPCAPS = 1, 4, 8
_PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS = 24, 38
_PR_SET_CHILD_SUBREAPER, _PR_CAP_AMBIENT = 36, 47
_CAP_AMBIENT_RAISE, _CAP_AMBIENT_CLEAR_ALL = 2, 4
_CAPABILITY_VERSION = 0x20080522
_SYS_MOUNT_SETATTR = 442
_SYS_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
_AT_FDCWD, _AT_RECURSIVE = -100, 0x8000
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 1

libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
machine = os.uname().machine


def check(result: int, what: str) -> int:
    """`result`, or the error that errno holds if it is negative."""
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def prctl(option: int, first: int, second: int = 0) -> None:
    check(libc.prctl(option, first, second, 0, 0), f"prctl({option})")


def try_unshare(flag: int) -> bool:
    """Enter a new namespace. False where the system does not permit it."""
    return bool(libc.unshare(flag) == 0)


def enter_again(descriptor: int, flag: int) -> None:
    """Go back to a namespace by an open handle on it."""
    check(libc.setns(descriptor, flag), "setns")


def mount(source: str, target: str, kind: str | None, flags: int, data: str = "") -> None:
    result = libc.mount(
        os.fsencode(source),
        os.fsencode(target),
        kind.encode() if kind else None,
        ctypes.c_ulong(flags),
        data.encode() or None,
    )
    check(result, f"mount {target}")


def protect_mount(target: str, *, read_only: bool, recursive: bool = True) -> None:
    """No set-uid programs and no devices below `target`, and no writing if `read_only`."""
    attributes = MS_NOSUID | MS_NODEV | (MS_RDONLY if read_only else 0)
    struct_mount_attr = (ctypes.c_uint64 * 4)(attributes, 0, 0, 0)
    result = libc.syscall(
        _SYS_MOUNT_SETATTR,
        _AT_FDCWD,
        ctypes.c_char_p(os.fsencode(target)),
        _AT_RECURSIVE if recursive else 0,
        ctypes.byref(struct_mount_attr),
        ctypes.c_size_t(32),
    )
    check(result, f"mount_setattr {target}")


def unmount(target: str) -> None:
    check(libc.umount2(os.fsencode(target), MNT_DETACH), f"umount {target}")


def pivot_root(new: str, old: str) -> None:
    number = _SYS_PIVOT_ROOT.get(machine)
    if number is None:
        raise OSError(38, f"pivot_root is not known on {machine}")
    arguments = (ctypes.c_char_p(os.fsencode(new)), ctypes.c_char_p(os.fsencode(old)))
    check(libc.syscall(number, *arguments), "pivot_root")


def loopback_up() -> None:
    """Start the loopback interface of this network namespace."""
    with _socket_of(_socket.AF_INET, _socket.SOCK_DGRAM) as control:
        request = struct.pack("16sH14x", b"lo", 0)
        answer = fcntl.ioctl(control.number, _SIOCGIFFLAGS, request)
        flags = struct.unpack("16sH14x", answer)[1] | _IFF_UP
        fcntl.ioctl(control.number, _SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", flags))


class _socket_of:  # noqa: N801 - a function with an end
    def __init__(self, family: int, kind: int) -> None:
        self.socket = _socket.socket(family, kind)
        self.number = self.socket.fileno()

    def __enter__(self) -> _socket_of:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()


def die_with_parent(signal_number: int) -> None:
    prctl(_PR_SET_PDEATHSIG, signal_number)


def adopt_orphans() -> None:
    """Descendants whose parent ends become children of this process."""
    prctl(_PR_SET_CHILD_SUBREAPER, 1)


def hide_memory(hide: bool = True) -> None:
    """No debugger and no /proc access for other processes of the same user, nor for itself."""
    prctl(_PR_SET_DUMPABLE, 0 if hide else 1)


def no_new_privileges() -> None:
    prctl(_PR_SET_NO_NEW_PRIVS, 1)


def become(uid: int | None, keep: int | None) -> None:
    """Give up all capabilities but `keep`, and become user and group `uid` if one is given."""
    for capability in range(LAST_CAPABILITY + 1):
        if capability != keep:
            libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)
    if uid is not None:
        prctl(_PR_SET_KEEPCAPS, 1)
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    bits = 0 if keep is None else 1 << keep
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)
    data = (ctypes.c_uint32 * 6)(bits, bits, bits, 0, 0, 0)
    check(libc.capset(header, data), "capset")
    libc.prctl(_PR_CAP_AMBIENT, _CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
    if keep is not None:
        prctl(_PR_CAP_AMBIENT, _CAP_AMBIENT_RAISE, keep)
