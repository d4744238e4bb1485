"""The sources that can be fetched, from `sources.yaml` and from the pins of the benchmarks' code.

    registry()["qwen3-4b"].repository

A configuration's `sources` names a file in the form of `sources.yaml` whose entries join the
registered ones or take their place, whole. With `folder` (relative to that file) an entry is taken
from this machine and no host is asked.

Where a benchmark already pins its files (LiveCodeBench, ACEBench, EvalPlus), the entry is made from
those pins, so that there is one of each.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from lopd_repro.errors import UserError
from lopd_repro.settings import build

KINDS = ("hub-dataset", "hub-model", "git", "url")
MODEL_PATTERNS = ("*.json", "*.safetensors", "*.txt", "*.jinja", "*.model")
"""What of a model repository is wanted: weights once, tokenizer, configuration, template."""


@dataclass(frozen=True)
class Pin:
    """What is known of one file; None for what is not."""

    bytes: int | None = None
    sha256: str | None = None
    md5: str | None = None
    rows: int | None = None


@dataclass(frozen=True)
class Source:
    """One thing to fetch.

    repository, revision: of the hub or of git; revision None is "what is there now", which the
    lock then keeps. about_bytes: a rough size to print where no exact one is known. rows_between:
    bounds of all rows together. unpack: name of the file that a `.gz` address unpacks to. target:
    where it is placed, if not in the data folder. folder: where this machine has it. listed: the
    file that it was read from, if not `sources.yaml`.
    """

    name: str
    kind: str
    about: str
    repository: str = ""
    revision: str | None = None
    url: str = ""
    licence: str = "not stated here, see the source's page"
    patterns: tuple[str, ...] = ()
    files: dict[str, Pin] = field(default_factory=dict)
    about_bytes: float | None = None
    rows_between: tuple[int, int] | None = None
    unpack: str = ""
    pins: str = ""
    target: str = ""
    folder: str = ""
    listed: str = ""

    @property
    def repo_type(self) -> str:
        """The hub's word for it."""
        return "model" if self.kind == "hub-model" else "dataset"

    @property
    def request(self) -> list[str]:
        """The arguments of `lopd-repro fetch` that name it."""
        if self.name in registry(self.listed):
            return [self.name, *(["--sources", self.listed] if self.listed else [])]
        return [self.repository, "--revision", str(self.revision)]

    def as_json(self) -> dict[str, Any]:
        """What a fetch depends on."""
        open_to_change = {"about": "", "pins": "", "about_bytes": None, "folder": "", "listed": ""}
        return {**asdict(self), **open_to_change}

    @property
    def known_bytes(self) -> float | None:
        """Size of all files, if every size is known, else the rough size, else None."""
        sizes = [pin.bytes for pin in self.files.values()]
        # Of a model, only the large files may be listed.
        exact = sum(size for size in sizes if size is not None)
        if sizes and None not in sizes:
            return float(exact)
        return self.about_bytes or (float(exact) if exact else None)

    @property
    def page(self) -> str:
        """Where a person reads about it."""
        if self.kind == "hub-dataset":
            return f"https://huggingface.co/datasets/{self.repository}"
        if self.kind == "hub-model":
            return f"https://huggingface.co/{self.repository}"
        return self.url


@cache
def registry(more: str = "") -> dict[str, Source]:
    """All sources by name; `more` is a file of further ones."""
    if more:
        return {**registry(), **_further(Path(more))}
    listed = yaml.safe_load(Path(__file__).with_name("sources.yaml").read_text())
    found = {name: read_source(name, values) for name, values in listed.items()}
    for source in _pinned_elsewhere():
        found[source.name] = source
    for name, md5 in _evalplus_digests().items():
        source = found[name]
        found[name] = read_source(name, {**listed[name], "files": {source.unpack: md5}})
    return found


def _further(path: Path) -> dict[str, Source]:
    try:
        listed = yaml.safe_load(path.read_text())
    except (OSError, yaml.YAMLError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(f"sources {path}: cannot be read ({reason})") from None
    if not isinstance(listed, dict) or not all(isinstance(v, dict) for v in listed.values()):
        raise UserError(f"sources {path}: holds no mapping of names to entries")
    found = {}
    for name, values in listed.items():
        source = read_source(name, {"about": "", **values})
        folder = str(path.parent / source.folder) if source.folder else ""
        target = registry()[name].target if name in registry() else ""
        found[name] = replace(source, folder=folder, listed=str(path), target=target)
    return found


def read_source(name: str, values: dict[str, Any]) -> Source:
    """One entry of the file."""
    where = f"sources.{name}"
    given = dict(values)
    files = {
        file: build(Pin, pin, f"{where}.files.{file}")
        for file, pin in given.pop("files", {}).items()
    }
    if "rows_between" in given:
        given["rows_between"] = tuple(given["rows_between"])
    source = build(Source, {"name": name, **given}, where)
    if source.kind not in KINDS:
        raise UserError(f"{where}.kind: found {source.kind!r}, allowed: {', '.join(KINDS)}")
    patterns = source.patterns or (MODEL_PATTERNS if source.kind == "hub-model" else ())
    return Source(**{**vars(source), "files": files, "patterns": patterns})


def find(name: str, revision: str | None = None, more: str = "") -> Source:
    """A source of `registry(more)`, or a model of the hub given as OWNER/NAME with its revision."""
    known = registry(more)
    if name in known:
        if revision not in (None, known[name].revision):
            raise UserError(
                f"source {name}: found revision {revision}, registered is {known[name].revision}"
            )
        return known[name]
    if re.fullmatch(r"[\w.-]+/[\w.-]+", name):
        if not revision or not re.fullmatch(r"[0-9a-f]{40}", revision):
            raise UserError(
                f"source {name}: found revision {revision!r}, allowed: 40 hexadecimal digits (a "
                "branch can move), or one of the registered names: " + ", ".join(known)
            )
        short = f"{name.replace('/', '--')}-{revision[:12]}"
        return read_source(
            short,
            {
                "kind": "hub-model",
                "repository": name,
                "revision": revision,
                "about": "a model of the hub",
            },
        )
    raise UserError(f"source {name}: unknown, allowed: {', '.join(known)}")


def _pinned_elsewhere() -> list[Source]:
    """Sources whose pins stand beside the benchmark that uses them."""
    from lopd_repro.benchmarks.ace.repository import REPOSITORY as ACEBENCH
    from lopd_repro.benchmarks.lcb import official_data
    from lopd_repro.benchmarks.lcb.official import REPOSITORY as LIVECODEBENCH

    data = Source(
        name="livecodebench-data",
        kind="hub-dataset",
        repository=official_data.DATASET,
        revision=official_data.REVISION,
        about="LiveCodeBench's problems, of which two windows are kept (279 and 131)",
        patterns=tuple(file.name for file in official_data.FILES),
        files={f.name: Pin(f.bytes, f.sha256, rows=f.rows) for f in official_data.FILES},
    )
    repositories = [
        Source(
            name=f"{repository.name}-repository",
            kind="git",
            repository=repository.name,
            revision=repository.commit,
            url=repository.url,
            licence=licence,
            about=f"{label}'s official code at the pinned commit",
            target=f"eval/{repository.name}/official",
        )
        for repository, label, licence in (
            (ACEBENCH, "ACEBench", "MIT"),
            (LIVECODEBENCH, "LiveCodeBench", "MIT"),
        )
    ]
    return [data, *repositories]


def _evalplus_digests() -> dict[str, dict[str, Any]]:
    from lopd_repro.benchmarks.evalplus.data import OFFICIAL

    return {
        name.replace("_", "-"): {"md5": data.md5, "rows": data.tasks}
        for name, data in OFFICIAL.items()
    }
