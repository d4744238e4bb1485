"""Environments answer in a thread of their own while an engine goes on sampling other episodes."""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Generic, TypeVar

from lopd_repro.rollout.engine import OnTurns, Reply, Turn

T = TypeVar("T")


class TurnWorker(Generic[T]):
    """Calls `on_turns` in one thread, one call after the other in the order of `give`.

    Use it as a context manager; what has not been taken at its end is dropped.
    """

    def __init__(self, on_turns: OnTurns) -> None:
        self._on_turns = on_turns
        self._pool = ThreadPoolExecutor(1, "turns")
        self._given: deque[tuple[T, Future[list[Reply]]]] = deque()

    def give(self, what: T, turns: list[tuple[int, Turn]]) -> None:
        """Have turns answered; `what` comes back with the answers."""
        self._given.append((what, self._pool.submit(self._on_turns, turns)))

    @property
    def busy(self) -> bool:
        """Whether anything given has not been taken."""
        return bool(self._given)

    def take(self, wait: bool) -> list[tuple[T, list[Reply]]]:
        """What has been answered, in the order of `give`; `wait` for the first of it, if any.

        An error of `on_turns` is raised here.
        """
        found: list[tuple[T, list[Reply]]] = []
        while self._given and (self._given[0][1].done() or (wait and not found)):
            what, future = self._given.popleft()
            found.append((what, future.result()))
        return found

    def __enter__(self) -> TurnWorker[T]:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)
