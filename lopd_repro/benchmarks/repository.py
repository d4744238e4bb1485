"""A benchmark's official repository: which commit, where it is, and whether it is unchanged.

Files are checked by their content, so that a folder without git history serves as well as a clone.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from lopd_repro.errors import UserError
from lopd_repro.files import digest_file, digest_text


@dataclass(frozen=True)
class Repository:
    """A pinned repository.

    digest: `tree_digest` of the commit; parts: files and folders that it covers (of folders, the
    files with one of `suffixes`). option, variable: the setting and the environment variable that
    name a folder which holds it.
    """

    name: str
    url: str
    commit: str
    digest: str
    parts: tuple[str, ...]
    suffixes: tuple[str, ...]
    option: str
    variable: str

    def locate(self, named: str, default: Path) -> Path:
        """The folder named in the settings, in the environment, or the default one.

        `UserError` that says what is missing and how to get it, or what differs.
        """
        chosen = named or os.environ.get(self.variable, "")
        folder = Path(chosen) if chosen else default
        if not folder.is_dir():
            where = (self.option if named else self.variable) if chosen else self.name
            raise UserError(
                f"{where}: no official repository at {folder}; {self.how_to_get(default)}"
            )
        self.check(folder)
        return folder.resolve()

    def check(self, folder: Path) -> None:
        """`UserError` unless the folder's files are those of the commit."""
        missing = [part for part in self.parts if not (folder / part).exists()]
        if missing:
            raise UserError(f"{self.name}: {folder} has no {missing[0]}; {self.how_to_get(folder)}")
        found = self.tree_digest(folder)
        if found != self.digest:
            raise UserError(
                f"{self.name}: {folder} differs from commit {self.commit[:7]} (digest "
                f"{found[:12]}, expected {self.digest[:12]}); {self.how_to_get(folder)}"
            )

    def tree_digest(self, folder: Path) -> str:
        """SHA-256 over names and contents of the covered files."""
        files: list[Path] = []
        for part in self.parts:
            path = folder / part
            inside = (found for suffix in self.suffixes for found in path.rglob(f"*{suffix}"))
            files += inside if path.is_dir() else [path]
        named = sorted((path.relative_to(folder).as_posix(), digest_file(path)) for path in files)
        return digest_text("".join(f"{digest}  {name}\n" for name, digest in named))

    def fetch(self, target: Path, source: str = "") -> None:
        """Put the pinned commit's files into `target`, from the address or a local git folder."""
        source = source or self.url
        if target.exists():
            raise UserError(f"{self.name}: {target} exists already")
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=".fetch-") as scratch:
            folder = Path(scratch) / "repository"
            try:
                _git("init", "--quiet", str(folder))
                _git("-C", str(folder), "fetch", "--quiet", "--depth", "1", source, self.commit)
                _git("-C", str(folder), "checkout", "--quiet", "FETCH_HEAD")
                head = _git("-C", str(folder), "rev-parse", "HEAD").strip()
            except (OSError, subprocess.SubprocessError) as error:
                said = getattr(error, "stderr", None) or str(error)
                reason = (said.strip().splitlines() or ["no reason given"])[-1]
                raise UserError(
                    f"{self.name}: the official repository could not be fetched from {source} "
                    f"({reason}); {self.how_to_get(target)}"
                ) from None
            if head != self.commit:
                raise UserError(f"{self.name}: {source} gave commit {head}, not {self.commit}")
            self.check(folder)
            shutil.move(folder, target)

    def how_to_get(self, folder: Path) -> str:
        """One clause that says how to get the repository."""
        return (
            f"get it with: git clone {self.url} {folder} && git -C {folder} checkout "
            f"{self.commit}, or name a folder that has it in {self.option}"
        )


def _git(*arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments],
        capture_output=True,
        text=True,
        check=True,
        timeout=600,
        env={**os.environ, "GIT_TERMINAL_PROMPT": "0"},
    )
    return done.stdout
