"""Files that the parts exchange: written whole or not at all, and checked when read.

Every writer makes a temporary file in the target's folder, flushes it and renames it.
JSON Lines files end with a footer row that holds the row count and a SHA-256 of the rows;
`read_jsonl` refuses a file without it.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from lopd_repro.errors import UserError


def atomic_write(path: Path | str, write: Callable[[IO[bytes]], object]) -> None:
    """Call `write` with a binary file that replaces `path` once it is complete and on disk."""
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        umask = os.umask(0)
        os.umask(umask)
        Path(name).chmod(0o666 & ~umask)
        Path(name).replace(target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


@contextmanager
def atomic_folder(target: Path) -> Iterator[Path]:
    """An empty folder to fill, which takes the place of `target` when the block has ended well.

    After an error it is gone, and `target` is what it was.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}."))
    try:
        scratch.chmod(0o755)
        yield scratch
        if target.exists():
            shutil.rmtree(target)
        scratch.replace(target)
    except BaseException:
        shutil.rmtree(scratch, ignore_errors=True)
        raise


def write_bytes(path: Path | str, data: bytes) -> None:
    """Write bytes, whole or not at all."""
    atomic_write(path, lambda file: file.write(data))


def write_text(path: Path | str, text: str) -> None:
    """Write UTF-8 text, whole or not at all."""
    write_bytes(path, text.encode())


def json_text(value: Any) -> str:
    """One JSON document with sorted keys, so that equal values give equal texts."""
    return json.dumps(value, indent=2, sort_keys=True, allow_nan=False) + "\n"


def write_json(path: Path | str, value: Any) -> None:
    """Write one JSON document as `json_text` has it."""
    write_text(path, json_text(value))


def read_json(path: Path | str) -> Any:
    """Read one JSON document; a missing or broken file is a `UserError`."""
    try:
        return json.loads(Path(path).read_text())
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: not a readable JSON file ({error})") from None


def dump_rows(rows: Iterable[dict[str, Any]], **footer: Any) -> str:
    """Rows as JSON Lines with the footer `{"footer": true, "rows": n, "sha256": ..., **footer}`."""
    lines = [json.dumps(row, sort_keys=True, allow_nan=False) for row in rows]
    body = "".join(line + "\n" for line in lines)
    end = {"footer": True, "rows": len(lines), "sha256": digest_text(body), **footer}
    return body + json.dumps(end, sort_keys=True) + "\n"


def write_jsonl(path: Path | str, rows: Iterable[dict[str, Any]], **footer: Any) -> None:
    """Write rows as JSON Lines with a footer; `footer` adds fields such as `expected`."""
    write_text(path, dump_rows(rows, **footer))


def read_jsonl_with_footer(path: Path | str) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Rows and footer of a JSON Lines file; `UserError` if it is cut short or was edited."""
    try:
        text = Path(path).read_text()
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from None
    lines = text.splitlines()
    try:
        parsed = [json.loads(line) for line in lines]
    except ValueError as error:
        raise UserError(f"{path}: a line is not JSON ({error})") from None
    if not parsed or not isinstance(parsed[-1], dict) or parsed[-1].get("footer") is not True:
        raise UserError(f"{path}: no footer row, so the file is incomplete")
    footer, rows = parsed[-1], parsed[:-1]
    body = "".join(line + "\n" for line in lines[:-1])
    if footer.get("rows") != len(rows) or footer.get("sha256") != digest_text(body):
        raise UserError(f"{path}: the footer's row count or digest does not match the rows")
    return rows, footer


def read_jsonl(path: Path | str) -> list[dict[str, Any]]:
    """Rows of a JSON Lines file written by `write_jsonl`, checked against its footer."""
    return read_jsonl_with_footer(path)[0]


def digest_text(text: str) -> str:
    """SHA-256 of a text, hexadecimal."""
    return hashlib.sha256(text.encode()).hexdigest()


def digest_json(value: Any) -> str:
    """SHA-256 of a JSON value; independent of key order."""
    return digest_text(json.dumps(value, sort_keys=True, separators=(",", ":")))


def digest_file(path: Path | str) -> str:
    """SHA-256 of a file's bytes."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def link_or_copy(source: Path | str, target: Path | str) -> None:
    """A second name for the same bytes, which costs no disk; across file systems a copy."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
