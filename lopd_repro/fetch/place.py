"""Brings a source from where it is (placed already, a given folder, the cache, the network) into
the data folder, checked.

Files are linked, not copied: they stay in the given folder or the cache. `fetched.json` beside them
holds revision, sizes, digests and rows. Nothing is placed unless every check holds.
"""

from __future__ import annotations

import gzip
import shutil
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from lopd_repro.errors import UserError
from lopd_repro.fetch import hub, lock
from lopd_repro.fetch.checks import check, facts
from lopd_repro.fetch.registry import MODEL_PATTERNS, Pin, Source
from lopd_repro.files import atomic_folder, read_json, write_bytes, write_json

MANIFEST = "fetched.json"
Say = Callable[[str], None]


@dataclass(frozen=True)
class Options:
    """data: folder of fetched things. given: a folder to take the files from. offline: ask no
    host. check: read every placed file again."""

    data: Path
    given: Path | None = None
    offline: bool = False
    check: bool = False


def fetch(source: Source, options: Options, say: Say = print) -> Path:
    """Place one source; returns its folder. `UserError` in one line if that cannot be done."""
    given = options.given or (Path(source.folder) if source.folder else None)
    if source.kind == "git":
        return _repository(source, replace(options, given=given), say)
    target = options.data / source.name
    if options.given is None and placed(source, options.data, options.check):
        say(f"{source.name}: is in {target} already")
        return target
    options = replace(options, given=given)
    revision, known = lock.locked(options.data, source)
    revision = source.revision or revision
    say(_announcement(source, revision))
    if source.kind == "url":
        files = _from_url(source, options, say)
    elif options.given is not None:
        files = _inside(source, options.given)
    else:
        folder, revision = _from_hub(source, revision, known, options, say)
        files = _inside(source, folder)
    found = _checked(source, files, known)
    _link(target, files, {"source": source.name, "revision": revision, "files": _rows(found)})
    lock.record(options.data, source, revision, found)
    total = sum(pin.bytes or 0 for pin in found.values())
    say(f"{source.name}: {len(found)} files, {size_text(total)}, checked, in {target}")
    return target


def placed(source: Source, data: Path, thorough: bool = False) -> bool:
    """Whether a source stands in the data folder as its manifest says; `thorough` reads it all."""
    if source.kind == "git":
        return Path(source.target).is_dir()
    target = data / source.name
    if not (target / MANIFEST).is_file():
        return False
    manifest = read_json(target / MANIFEST)
    if source.revision not in (None, manifest["revision"]):
        return False
    for name, values in manifest["files"].items():
        path = target / name
        if not path.is_file() or path.stat().st_size != values["bytes"]:
            return False
        if thorough:
            found = facts(path, name, "rows" in values)
            check(str(path), found, Pin(**values), f"{target / MANIFEST}")
        check(str(path), Pin(**values), source.files.get(name, Pin()), "sources.yaml")
    return True


def size_text(size: float | None) -> str:
    """A size for people."""
    if size is None:
        return "size not known before it is fetched"
    for unit, factor in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= factor:
            return f"{size / factor:.3g} {unit}"
    return f"{size:.0f} bytes"


def _announcement(source: Source, revision: str | None) -> str:
    at = f" at {revision[:12]}" if revision else ", latest (the lock will keep which)"
    size = size_text(source.known_bytes)
    about = "" if source.files and all(p.bytes for p in source.files.values()) else "about "
    size = size if source.known_bytes is None else about + size
    where = source.repository or source.url
    return (
        f"{source.name}: {source.about}\n  {where}{at if source.kind != 'url' else ''}\n"
        f"  licence: {source.licence} ({source.page})\n  size: {size}"
    )


def _from_hub(
    source: Source, revision: str | None, known: Mapping[str, Pin], options: Options, say: Say
) -> tuple[Path, str]:
    """The snapshot's folder in the cache, and its commit."""
    folder = hub.cached(source, revision)
    if folder is not None:
        say(f"{source.name}: all files are in the Hugging Face cache")
        return folder, folder.name
    if options.offline:
        raise UserError(
            f"source {source.name}: the Hugging Face cache has not all of {source.repository} at "
            f"{revision or 'any revision'}, and --offline was given; --from FOLDER takes it from a "
            "folder"
        )
    there = hub.listing(source, revision)
    if not there.files:
        raise UserError(
            f"source {source.name}: {source.repository} holds no file like "
            f"{', '.join(source.patterns)}"
        )
    for name, (size, sha256) in there.files.items():
        for pins, said_by in ((source.files, "sources.yaml"), (known, lock.NAME)):
            check(f"{source.repository}/{name}", Pin(size, sha256), pins.get(name, Pin()), said_by)
    _room(there.bytes, source)
    say(f"{source.name}: {len(there.files)} files, {size_text(there.bytes)}, less what is cached")
    return hub.download(source, there.commit), there.commit


def _room(size: int, source: Source) -> None:
    from huggingface_hub.constants import HF_HUB_CACHE

    folder = Path(HF_HUB_CACHE)
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    if free < size:
        raise UserError(
            f"source {source.name}: needs {size_text(size)}, {folder} has {size_text(free)} free "
            "(HF_HOME names another place)"
        )


def model_files(what: str, folder: Path) -> dict[str, Path]:
    """Files of a whole model in Hugging Face form, by name; `UserError` if one is missing."""
    return _inside(Source(what, "hub-model", "", patterns=MODEL_PATTERNS), folder)


def _inside(source: Source, folder: Path) -> dict[str, Path]:
    """The source's files in a folder, by name."""
    if not folder.is_dir():
        raise UserError(f"{folder}: no such folder")
    names = [
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if path.is_file() and not any(p.startswith(".") for p in path.relative_to(folder).parts)
    ]
    chosen = [name for name in hub.wanted(source, names) if name != MANIFEST]
    missing = [name for name in source.files if name not in chosen]
    if missing:
        raise UserError(f"source {source.name}: {folder} has no {missing[0]}")
    if source.kind == "hub-model":
        _whole_model(source, folder, chosen)
    return {name: (folder / name).resolve() for name in chosen}


def _whole_model(source: Source, folder: Path, names: list[str]) -> None:
    index = "model.safetensors.index.json"
    needed = {"config.json"}
    if index in names:
        needed |= set(read_json(folder / index)["weight_map"].values())
    elif not any(name.endswith(".safetensors") for name in names):
        needed.add("model.safetensors")
    missing = sorted(needed - set(names))
    if missing:
        raise UserError(f"source {source.name}: {folder} has no {missing[0]}")


def _from_url(source: Source, options: Options, say: Say) -> dict[str, Path]:
    """The unpacked file of an address or of the given folder."""
    packed, name = source.url.rsplit("/", 1)[1], source.unpack
    if options.given is not None:
        for candidate in (options.given / name, options.given / packed):
            if candidate.is_file():
                data = candidate.read_bytes()
                break
        else:
            raise UserError(
                f"source {source.name}: {options.given} has neither {name} nor {packed}"
            )
        packed_data = candidate.name == packed
    else:
        if options.offline:
            raise UserError(f"source {source.name}: is not placed, and --offline was given")
        data, packed_data = _read_url(source), True
    if packed_data:
        try:
            data = gzip.decompress(data)
        except (OSError, EOFError) as error:
            raise UserError(f"source {source.name}: {packed} does not unpack ({error})") from None
    path = options.data / ".downloads" / name
    write_bytes(path, data)
    return {name: path}


def _read_url(source: Source) -> bytes:
    try:
        with urllib.request.urlopen(source.url, timeout=60) as stream:
            return bytes(stream.read())
    except (OSError, urllib.error.URLError) as error:
        raise UserError(f"source {source.name}: {source.url} cannot be read ({error})") from None


def _checked(source: Source, files: dict[str, Path], known: Mapping[str, Pin]) -> dict[str, Pin]:
    """Facts of every file, after comparing them with all that is known."""
    found = {}
    for name, path in files.items():
        found[name] = facts(path, name, source.kind != "hub-model")
        where = f"source {source.name}: {path}"
        check(where, found[name], source.files.get(name, Pin()), "sources.yaml")
        check(where, found[name], known.get(name, Pin()), lock.NAME)
    if source.rows_between:
        total = sum(pin.rows or 0 for pin in found.values())
        low, high = source.rows_between
        if not low <= total <= high:
            raise UserError(
                f"source {source.name}: has {total} rows, expected between {low} and {high}"
            )
    return {name: replace(pin, md5=None) for name, pin in found.items()}


def _rows(found: Mapping[str, Pin]) -> dict[str, dict[str, Any]]:
    return {
        name: {key: value for key, value in asdict(pin).items() if value is not None}
        for name, pin in found.items()
    }


def _link(target: Path, files: Mapping[str, Path], manifest: dict[str, Any]) -> None:
    """Make the folder of links beside its place, then rename it."""
    with atomic_folder(target) as new:
        for name, path in files.items():
            (new / name).parent.mkdir(parents=True, exist_ok=True)
            if path.parent.name == ".downloads":
                path.replace(new / name)
            else:
                (new / name).symlink_to(path)
        write_json(new / MANIFEST, manifest)


def _repository(source: Source, options: Options, say: Say) -> Path:
    from lopd_repro.benchmarks.ace.repository import REPOSITORY as ACEBENCH
    from lopd_repro.benchmarks.lcb.official import REPOSITORY as LIVECODEBENCH

    repository = {r.name: r for r in (ACEBENCH, LIVECODEBENCH)}[source.repository]
    target = Path(source.target)
    if target.is_dir():
        repository.check(target)
        say(f"{source.name}: is in {target} already")
        return target
    say(_announcement(source, source.revision))
    if options.given is None and options.offline:
        raise UserError(f"source {source.name}: is not in {target}, and --offline was given")
    repository.fetch(target, str(options.given.resolve()) if options.given else "")
    return target
