"""Carries the one permitted connection out of a network namespace.

The listening socket was made inside the namespace, so only confined processes reach it; this
process is outside and joins each connection to the real endpoint, byte for byte. One thread,
one epoll: a connection costs two sockets and no work while it is idle.
"""

from __future__ import annotations

import _socket
import os
import select

_CHUNK = 1 << 16
_IN, _OUT = select.EPOLLIN, select.EPOLLOUT
_AGAIN = (11, 115)  # EAGAIN, EINPROGRESS


class _Side:
    """One socket of a pair, with what it still has to send."""

    def __init__(self, sock: _socket.socket) -> None:
        self.sock = sock
        self.pending = bytearray()
        self.other: _Side = self
        self.ended = False  # nothing more will be read from it
        self.closed_for_writing = False
        self.watched = 0
        self.connecting = False


class Relay:
    """Add its descriptors to `poll`; call `handle` with those it `owns`."""

    def __init__(
        self, listener: int, address: tuple[str, int], poll: select.epoll, most: int = 512
    ) -> None:
        self.listener = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM, 0, listener)
        self.listener.setblocking(False)
        self.address, self.poll, self.most = address, poll, most
        self.sides: dict[int, _Side] = {}
        self.connections = 0
        poll.register(listener, _IN)

    def owns(self, descriptor: int) -> bool:
        return descriptor in self.sides or descriptor == self.listener.fileno()

    def handle(self, descriptor: int, events: int) -> None:
        if descriptor == self.listener.fileno():
            self._accept()
            return
        side = self.sides[descriptor]
        try:
            if events & (select.EPOLLERR | select.EPOLLHUP):
                # The other direction may still hold data that arrived before the end.
                self._read(side)
                self._close(side)
                return
            if events & _OUT:
                side.connecting = False
                self._write(side)
            if events & _IN:
                self._read(side)
            self._settle(side)
        except OSError:
            self._close(side)

    def _accept(self) -> None:
        try:
            descriptor, _ = self.listener._accept()  # type: ignore[attr-defined]
        except OSError:
            return
        inner = _Side(_socket.socket(_socket.AF_INET, _socket.SOCK_STREAM, 0, descriptor))
        if len(self.sides) >= 2 * self.most:
            inner.sock.close()
            return
        self.connections += 1
        outer = _Side(_socket.socket(_socket.AF_INET, _socket.SOCK_STREAM))
        inner.other, outer.other = outer, inner
        for side in (inner, outer):
            side.sock.setblocking(False)
            side.sock.setsockopt(_socket.IPPROTO_TCP, _socket.TCP_NODELAY, 1)
            os.set_inheritable(side.sock.fileno(), False)
            self.sides[side.sock.fileno()] = side
        result = outer.sock.connect_ex(self.address)
        outer.connecting = result in _AGAIN
        if result and not outer.connecting:
            self._close(inner)
            return
        self._watch(inner)
        self._watch(outer)

    def _read(self, side: _Side) -> None:
        """Move what has arrived at `side` to the other one."""
        try:
            data = side.sock.recv(_CHUNK)
        except BlockingIOError:
            return
        if not data:
            side.ended = True
        side.other.pending += data
        if not side.other.connecting:
            self._write(side.other)

    def _write(self, side: _Side) -> None:
        try:
            while side.pending:
                del side.pending[: side.sock.send(side.pending)]
        except BlockingIOError:
            return
        if side.other.ended and not side.closed_for_writing:
            side.closed_for_writing = True
            side.sock.shutdown(_socket.SHUT_WR)

    def _settle(self, side: _Side) -> None:
        if side.closed_for_writing and side.other.closed_for_writing:
            self._close(side)
            return
        self._watch(side)
        self._watch(side.other)

    def _watch(self, side: _Side) -> None:
        """Read only while the other side keeps up; write only when there is something."""
        wanted = 0
        if not side.ended and len(side.other.pending) < 4 * _CHUNK:
            wanted |= _IN
        if side.pending or side.connecting:
            wanted |= _OUT
        descriptor = side.sock.fileno()
        if wanted == side.watched:
            return
        if not wanted:
            self.poll.unregister(descriptor)
        elif not side.watched:
            self.poll.register(descriptor, wanted)
        else:
            self.poll.modify(descriptor, wanted)
        side.watched = wanted

    def _close(self, side: _Side) -> None:
        for one in (side, side.other):
            descriptor = one.sock.fileno()
            if descriptor >= 0 and self.sides.pop(descriptor, None) is not None:
                if one.watched:
                    self.poll.unregister(descriptor)
                one.sock.close()
