"""The official problems: pinned files, the two windows cut out of them, and their checks.

The data set `livecodebench/code_generation_lite` is six JSON Lines files at one revision; release
v5 is the first five together, v6 all six. `prepare` goes through them once and keeps the rows of
the windows, unchanged; `load` reads those. Nothing of the data set's loading script is used.
"""

from __future__ import annotations

import hashlib
import json
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from lopd_repro.benchmarks.lcb.questions import WINDOWS, Question, contest_day, read_questions
from lopd_repro.errors import UserError
from lopd_repro.files import digest_file, read_json, write_json, write_text

DATASET = "livecodebench/code_generation_lite"
REVISION = "0fe84c3912ea0c4d4a78037083943e8f0c4dd505"
URL = f"https://huggingface.co/datasets/{DATASET}/resolve/{REVISION}"
HOW = (
    "get it with: python eval/livecodebench/fetch.py data FOLDER (4.5 GB are read, "
    "the windows are kept), and name the folder in benchmark.data_folder"
)


@dataclass(frozen=True)
class SourceFile:
    """One file of the data set, the window that is cut out of it, and how many rows it has."""

    name: str
    window: str
    rows: int
    bytes: int
    sha256: str


FILES = (
    SourceFile(
        "test.jsonl", "v5", 400, 1252609773,
        "2bd02b38beb48e8c46b5b9987095d999ff38cd8efc255ea5d58974317c48f63f",
    ),
    SourceFile(
        "test2.jsonl", "v5", 111, 713377060,
        "095df7c5daf15f882c51a9deb84085cff1e073495a5dbcf95015a564d485f3a3",
    ),
    SourceFile(
        "test3.jsonl", "v5", 101, 623360766,
        "28ed26cc83363ce3f1fe2d5fad9f8393077beb1907b167a31bd3b32f80801b79",
    ),
    SourceFile(
        "test4.jsonl", "v5", 101, 1204644685,
        "d711138ddaebfcf5f8ec6a4283ee677298c0f5c5d374a235af92aaf0584510da",
    ),
    SourceFile(
        "test5.jsonl", "v5", 167, 557699297,
        "7f77571c2a6df0c2a72a3277650309f67e01e0008e18117e624633df53f81214",
    ),
    SourceFile(
        "test6.jsonl", "v6", 175, 134303240,
        "bb4c364f71921c4495a6ad15abe1a927350b720009f4933e2e71f8af0f6fd1f5",
    ),
)  # fmt: skip
"""Rows are the differences of the releases' sizes: 400, 511, 612, 713, 880, 1,055."""


def prepare(
    target: Path,
    source: str = "",
    files: tuple[SourceFile, ...] = FILES,
    counts: dict[str, int] | None = None,
    say: Callable[[str], None] = print,
) -> None:
    """Write `v5.jsonl`, `v6.jsonl` and `manifest.json` into `target`.

    `source` is a folder that holds the files, or an address; the pinned one if empty. `UserError`
    if a file's size, digest or number of rows, or a window's count is not as pinned; then nothing
    is written.
    """
    counts = counts or {name: window.count for name, window in WINDOWS.items()}
    kept: dict[str, list[str]] = {name: [] for name in counts}
    for file in files:
        found = _read(file, source or URL)
        kept[file.window] += found
        say(f"{file.name}: {len(found)} problems of window {file.window}")
    for window, lines in kept.items():
        _check_count(window, len(lines), counts[window], "the data set")
    digests = {}
    for window, lines in kept.items():
        path = target / f"{window}.jsonl"
        write_text(path, "".join(line + "\n" for line in lines))
        digests[window] = digest_file(path)
    write_json(
        target / "manifest.json",
        {"dataset": DATASET, "revision": REVISION, "counts": counts, "sha256": digests},
    )


def load(folder: Path, window: str) -> list[Question]:
    """One window's problems; `UserError` if anything differs from what `prepare` wrote."""
    path = folder / f"{window}.jsonl"
    if not path.is_file() or not (folder / "manifest.json").is_file():
        raise UserError(f"livecodebench: no data in {folder} ({path.name}, manifest.json); {HOW}")
    manifest: dict[str, Any] = read_json(folder / "manifest.json")
    if manifest.get("revision") != REVISION:
        raise UserError(
            f"{folder}: made from revision {manifest.get('revision')!r}, "
            f"pinned is {REVISION}; {HOW}"
        )
    if manifest.get("sha256", {}).get(window) != digest_file(path):
        raise UserError(f"{path}: was changed after it was made; {HOW}")
    questions = read_questions(path, window)
    _check_count(window, len(questions), WINDOWS[window].count, str(path))
    return questions


def _check_count(window: str, found: int, expected: int, where: str) -> None:
    if found != expected:
        span = f"{WINDOWS[window].start} to {WINDOWS[window].end}"
        raise UserError(
            f"livecodebench: {where} has {found} problems in window {window} ({span}), "
            f"expected {expected}"
        )


def _read(file: SourceFile, source: str) -> list[str]:
    """The lines of a file that lie in its window, after every check."""
    digest, size, rows = hashlib.sha256(), 0, 0
    kept = []
    for line in _lines(file, source):
        digest.update(line)
        size += len(line)
        if not line.strip():
            continue
        rows += 1
        try:
            row = json.loads(line)
        except ValueError as error:
            raise UserError(f"{file.name}: row {rows} is not JSON ({error})") from None
        if WINDOWS[file.window].holds(contest_day(row)):
            kept.append(line.decode().rstrip("\n"))
    for what, found, expected in (
        ("bytes", size, file.bytes),
        ("rows", rows, file.rows),
        ("sha256", digest.hexdigest(), file.sha256),
    ):
        if found != expected:
            raise UserError(
                f"{source}/{file.name}: {what} {found}, pinned for revision {REVISION[:7]}: "
                f"{expected}"
            )
    return kept


def _lines(file: SourceFile, source: str) -> Iterator[bytes]:
    where = f"{source.rstrip('/')}/{file.name}"
    try:
        with _open(where) as stream:
            yield from stream
    except (OSError, urllib.error.URLError) as error:
        raise UserError(f"livecodebench: {where} cannot be read ({error}); {HOW}") from None


def _open(where: str) -> IO[bytes]:
    if where.startswith("https://"):
        stream: IO[bytes] = urllib.request.urlopen(where, timeout=120)
        return stream
    return Path(where).open("rb")
