"""The Hugging Face hub, through its own library: what a source weighs, and the files in the cache.

The library's environment variables hold (HF_HOME, HF_ENDPOINT, HF_HUB_OFFLINE, HF_TOKEN). Files
that have arrived stay in its cache, so a fetch that was cut short asks for the others only; a
connection that breaks within a file is taken up where it broke, as long as the process lives.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from lopd_repro.errors import UserError
from lopd_repro.fetch.registry import Source

T = TypeVar("T")


@dataclass(frozen=True)
class Listing:
    """A repository at a commit: what the hub says of each wanted file (size, SHA-256 or None)."""

    commit: str
    files: dict[str, tuple[int, str | None]]

    @property
    def bytes(self) -> int:
        """Size of all files."""
        return sum(size for size, _ in self.files.values())


def wanted(source: Source, names: list[str]) -> list[str]:
    """The names that the source's patterns ask for, by the hub's rules."""
    from huggingface_hub.utils import filter_repo_objects  # type: ignore[attr-defined]

    return sorted(filter_repo_objects(names, allow_patterns=list(source.patterns) or None))


def listing(source: Source, revision: str | None) -> Listing:
    """What the hub holds; `UserError` if it cannot be asked."""
    from huggingface_hub import HfApi
    from huggingface_hub.hf_api import RepoFile

    api = HfApi()

    def ask() -> Listing:
        commit = revision
        if commit is None:
            info = api.repo_info(source.repository, repo_type=source.repo_type)
            commit = str(info.sha)
        tree = api.list_repo_tree(
            source.repository, recursive=True, revision=commit, repo_type=source.repo_type
        )
        found = {f.path: f for f in tree if isinstance(f, RepoFile)}
        return Listing(
            commit,
            {name: _said(found[name]) for name in wanted(source, list(found))},
        )

    return _call(source, ask)


def download(source: Source, revision: str) -> Path:
    """Bring all wanted files into the cache; the snapshot's folder."""
    from huggingface_hub import snapshot_download

    return Path(_call(source, lambda: snapshot_download(**_arguments(source, revision))))


def cached(source: Source, revision: str | None) -> Path | None:
    """The snapshot's folder if the cache holds every wanted file, without asking the hub."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    arguments = _arguments(source, revision or "main")
    try:
        return Path(snapshot_download(**arguments, local_files_only=True))
    except (LocalEntryNotFoundError, OSError):
        return None


def _said(file: Any) -> tuple[int, str | None]:
    return int(file.size), str(file.lfs.sha256) if file.lfs else None


def _arguments(source: Source, revision: str) -> dict[str, Any]:
    return {
        "repo_id": source.repository,
        "repo_type": source.repo_type,
        "revision": revision,
        "allow_patterns": list(source.patterns) or None,
        "max_workers": 4,
    }


def _call(source: Source, ask: Callable[[], T]) -> T:
    from huggingface_hub.errors import GatedRepoError, HfHubHTTPError

    # Its HTTP client's own errors; which client that is has changed between versions.
    transport: tuple[type[Exception], ...] = tuple(
        base
        for base in HfHubHTTPError.__mro__
        if issubclass(base, Exception) and base.__module__.startswith("httpx")
    )
    caught: tuple[type[Exception], ...] = (*transport, OSError, ValueError)
    try:
        return ask()
    except GatedRepoError:
        raise UserError(
            f"source {source.name}: {source.page} asks for its terms to be accepted there first, "
            "and for HF_TOKEN"
        ) from None
    except caught as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise UserError(
            f"source {source.name}: {source.repository} could not be fetched ({reason}); with "
            f"--from FOLDER it is taken from a folder that has it"
        ) from None
