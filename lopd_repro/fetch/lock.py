"""What was found when a source was first fetched: later fetches are held to it.

`DATA/sources.lock.json` holds, by source, the revision and each file's size, digest and rows. It
fills what `sources.yaml` leaves open and never overrides it.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from lopd_repro.errors import UserError
from lopd_repro.fetch.registry import Pin, Source
from lopd_repro.files import read_json, write_json
from lopd_repro.settings import build

NAME = "sources.lock.json"


def locked(data: Path, source: Source) -> tuple[str | None, dict[str, Pin]]:
    """Revision and files of a source's first fetch; nothing if there was none.

    An entry of another revision than the registered one is an entry of another thing.
    """
    entry = _read(data).get(source.name)
    if entry is None or (source.revision and entry["revision"] != source.revision):
        return None, {}
    where = f"{data / NAME}: {source.name}"
    return entry["revision"], {
        name: build(Pin, values, f"{where}.{name}") for name, values in entry["files"].items()
    }


def record(data: Path, source: Source, revision: str | None, found: dict[str, Pin]) -> None:
    """Write a source's entry, whole."""
    content = _read(data)
    content[source.name] = {
        "source": source.repository or source.url,
        "revision": revision,
        "files": {
            name: {key: value for key, value in asdict(pin).items() if value is not None}
            for name, pin in found.items()
        },
    }
    write_json(data / NAME, content)


def _read(data: Path) -> dict[str, Any]:
    path = data / NAME
    if not path.exists():
        return {}
    content = read_json(path)
    if not isinstance(content, dict):
        raise UserError(f"{path}: is no lock file of fetched sources")
    return content
