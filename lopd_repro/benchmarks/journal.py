"""Finished tasks of one checkpoint, one JSON line each, so that a crash costs little."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import Any

from lopd_repro.errors import UserError

Key = tuple[str, int]


class Journal:
    """Rows by (task_id, repeat); each is on disk before `add` returns.

    A last line that was cut off by a crash is dropped; any other broken line is a `UserError`.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self.rows: dict[Key, dict[str, Any]] = {}
        text = path.read_text() if path.exists() else ""
        whole, _, rest = text.rpartition("\n")
        for number, line in enumerate(whole.splitlines(), 1):
            try:
                row = json.loads(line)
                self.rows[row["task_id"], row["repeat"]] = row
            except (ValueError, KeyError, TypeError):
                raise UserError(f"{path}: line {number} is broken; remove the file") from None
        if rest:
            with path.open("r+b") as file:
                file.truncate(len(text.encode()) - len(rest.encode()))
        path.parent.mkdir(parents=True, exist_ok=True)

    def add(self, row: dict[str, Any]) -> None:
        """Keep a finished task's row."""
        line = json.dumps(row, sort_keys=True, allow_nan=False) + "\n"
        with self._lock, self._path.open("a") as file:
            file.write(line)
            file.flush()
            os.fsync(file.fileno())
            self.rows[row["task_id"], row["repeat"]] = row
