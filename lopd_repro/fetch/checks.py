"""Facts of a file, and whether they are those that are known of it."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from lopd_repro.errors import UserError
from lopd_repro.fetch.registry import Pin

_BLOCK = 1 << 20


def facts(path: Path, name: str, count_rows: bool) -> Pin:
    """Size, digests and, of a table's file, the number of rows; `name` tells its kind, since the
    cache calls files by their digests."""
    sha256, md5 = hashlib.sha256(), hashlib.md5(usedforsecurity=False)
    size = 0
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            sha256.update(block)
            md5.update(block)
            size += len(block)
    return Pin(size, sha256.hexdigest(), md5.hexdigest(), rows(path, name) if count_rows else None)


def rows(path: Path, name: str) -> int | None:
    """Records of a JSON, JSON Lines or Parquet file; None for other kinds."""
    suffix = Path(name).suffix
    try:
        if suffix == ".json":
            value: Any = json.loads(path.read_text())
            return len(value) if isinstance(value, list | dict) else None
        if suffix == ".jsonl":
            with path.open("rb") as file:
                return sum(1 for line in file if line.strip())
        if suffix == ".parquet":
            return _parquet_rows(path)
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: cannot be read as {suffix} ({error})") from None
    return None


def check(where: str, found: Pin, known: Pin, said_by: str) -> None:
    """`UserError` that names the first fact which differs; what is not known is not compared."""
    for name in ("bytes", "rows", "sha256", "md5"):
        have, want = getattr(found, name), getattr(known, name)
        if have is not None and want is not None and have != want:
            raise UserError(f"{where}: {name} {have}, {said_by} has {want}")


def _parquet_rows(path: Path) -> int:
    try:
        from pyarrow.parquet import read_metadata
    except ImportError:
        raise UserError(
            f"{path}: a Parquet file is read with pyarrow, which is not installed: pip install "
            "'.[paper]'"
        ) from None
    from pyarrow import ArrowInvalid

    try:
        return int(read_metadata(path).num_rows)
    except ArrowInvalid as error:
        raise ValueError(str(error)) from None
