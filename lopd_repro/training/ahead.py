"""What a later step needs, made in a thread while the present step updates the policy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Generic, TypeVar

T = TypeVar("T")


class Ahead(Generic[T]):
    """Holds at most one step's work. `work` must not read what the update changes."""

    def __init__(self, work: Callable[[int], T]) -> None:
        self._work = work
        self._made: tuple[int, T] | None = None

    @contextmanager
    def meanwhile(self, step: int | None) -> Iterator[None]:
        """Do a step's work beside the block, which ends when both have; None does nothing."""
        if step is None:
            yield
            return
        with ThreadPoolExecutor(1, "ahead") as pool:
            future = pool.submit(self._work, step)
            yield
        self._made = step, future.result()

    def keep(self, step: int, made: T) -> None:
        """Hold work that was done before."""
        self._made = step, made

    @property
    def made(self) -> tuple[int, T] | None:
        """The step that was worked for, and its work, until it is taken."""
        return self._made

    def take(self, step: int) -> T | None:
        """The work for a step, if it was done."""
        made, self._made = self._made, None
        return made[1] if made is not None and made[0] == step else None
