"""One process at a time works on a run; the lock goes with the process, however it ends."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lopd_repro.errors import UserError


@contextmanager
def exclusive(folder: Path) -> Iterator[None]:
    """Hold the folder's lock; `UserError` when another process has it."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise UserError(f"{folder}: another process is working on this run") from None
        yield
