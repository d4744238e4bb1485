"""The one permitted connection where there is no network namespace.

The program's filter lets it make TCP sockets and nothing else, and hands each `connect` to the
supervisor, which looks at the address asked for. If it is the endpoint's, the supervisor makes
a connection of its own and puts it in the place of the program's socket; any other address is
refused. The kernel never connects on the program's word, so what it writes over the address
meanwhile changes nothing.
"""

# ruff: noqa: PTH123

from __future__ import annotations

import _socket
import array
import ctypes
import fcntl
import os
import struct

from lopd_repro.sandbox import _kernel as kernel

_RECEIVE, _SEND, _ADD_DESCRIPTOR = 0xC0502100, 0xC0182101, 0x40182103
_PUT_IN_PLACE = 1
_NOTIFICATION = "=QII iIQ 6Q"
_REFUSED, _NOT_ALLOWED, _NO_SUCH_THING = 111, 13, 2
_CLOSE_ON_EXEC = 0o2000000
_SECONDS = 5.0


class Gate:
    """Answers the `connect` calls that arrive on `descriptor`."""

    def __init__(self, descriptor: int, address: tuple[str, int], uid: int | None) -> None:
        self.descriptor, self.address, self.uid = descriptor, address, uid
        self.connections = 0

    def handle(self) -> None:
        notice = array.array("B", bytes(80))
        try:
            fcntl.ioctl(self.descriptor, _RECEIVE, notice)
        except OSError:
            return  # the caller has ended meanwhile
        number, pid, _, _, _, _, target, where, size, *_ = struct.unpack(_NOTIFICATION, notice)
        error = self._connect(number, pid, target & 0xFFFFFFFF, where, size & 0xFFFFFFFF)
        answer = array.array("B", struct.pack("=QqiI", number, 0, -error, 0))
        try:
            fcntl.ioctl(self.descriptor, _SEND, answer)
        except OSError:
            return

    def _connect(self, number: int, pid: int, target: int, where: int, size: int) -> int:
        """Zero, or the error that the program sees."""
        wanted = struct.pack("=H", _socket.AF_INET) + struct.pack("!H", self.address[1])
        wanted += bytes(int(part) for part in self.address[0].split("."))
        try:
            asked, flags = self._look(pid, target, where, min(size, 16))
        except OSError:
            return _NOT_ALLOWED
        if asked[: len(wanted)] != wanted:
            return _REFUSED
        ours = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
        try:
            ours.settimeout(_SECONDS)
            ours.connect(self.address)
            ours.setblocking(not flags & os.O_NONBLOCK)
            request = struct.pack(
                "=QIIII", number, _PUT_IN_PLACE, ours.fileno(), target, flags & _CLOSE_ON_EXEC
            )
            fcntl.ioctl(self.descriptor, _ADD_DESCRIPTOR, array.array("B", request))
        except OSError as error:
            return error.errno or _REFUSED
        finally:
            ours.close()
        self.connections += 1
        return 0

    def _look(self, pid: int, target: int, where: int, size: int) -> tuple[bytes, int]:
        """Bytes of the program's memory, and the flags of its descriptor `target`.

        The kernel shows them to the program's own user, or to one with a right that root may
        lack in a container. Taking on that user for files alone gives it no hold on this process.
        """
        if self.uid is not None:
            kernel.libc.setfsgid(ctypes.c_uint(self.uid))
            kernel.libc.setfsuid(ctypes.c_uint(self.uid))
        try:
            descriptor = os.open(f"/proc/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
            try:
                return os.pread(descriptor, size, where), _flags(pid, target)
            finally:
                os.close(descriptor)
        finally:
            if self.uid is not None:
                kernel.libc.setfsuid(ctypes.c_uint(os.geteuid()))
                kernel.libc.setfsgid(ctypes.c_uint(os.getegid()))


def _flags(pid: int, target: int) -> int:
    with open(f"/proc/{pid}/fdinfo/{target}") as file:
        for line in file:
            if line.startswith("flags:"):
                return int(line.split()[1], 8)
    raise OSError(_NO_SUCH_THING, "no such descriptor")
