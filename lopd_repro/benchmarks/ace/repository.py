"""The official repository: which commit, where it is, and whether it is unchanged.

The code and the English agent data are checked file by file, so that a folder without git
history serves as well as a clone.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from lopd_repro.errors import UserError
from lopd_repro.files import digest_file, digest_text

URL = "https://github.com/chenchen0103/ACEBench.git"
COMMIT = "56dd66cf6439b0d9655ee1b353e4cd745c6f664e"
"""Answers as corrected on 2025-10-29."""
DIGEST = "3629bab204b53253ce651a57589da11f9704518ea6c05b84ae43ac4812459a95"
"""`tree_digest` of that commit."""
VARIABLE = "LOPD_ACEBENCH_REPO"
COUNTS = {"multi_step": 20, "multi_turn": 30}

_CODE = ("eval_main.py", "generate.py", "category.py", "model_eval/", "model_inference/")
_DATA = tuple(
    f"data_all/data_en/{place}data_agent_{category}.json"
    for category in COUNTS
    for place in ("", "possible_answer/")
)


def locate(named: str, default: Path) -> Path:
    """The repository: the folder named in the settings, in the environment, or the default one.

    Where only the default is left and it is absent, it is fetched. `UserError` that says what is
    missing and how to get it, or what differs from the pinned commit.
    """
    chosen = named or os.environ.get(VARIABLE, "")
    folder = Path(chosen) if chosen else default
    if chosen and not folder.is_dir():
        where = "acebench.official.repository" if named else VARIABLE
        raise UserError(f"{where}: {folder} is no folder; {_how_to_get(default)}")
    if not chosen and not folder.is_dir():
        fetch(default, URL)
    check(folder)
    return folder.resolve()


def fetch(target: Path, source: str = URL) -> None:
    """Put the pinned commit's files into `target`, from an address or a local git folder."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".acebench-") as scratch:
        folder = Path(scratch) / "repository"
        try:
            _git("init", "--quiet", str(folder))
            _git("-C", str(folder), "fetch", "--quiet", "--depth", "1", source, COMMIT)
            _git("-C", str(folder), "checkout", "--quiet", "FETCH_HEAD")
            head = _git("-C", str(folder), "rev-parse", "HEAD").strip()
        except (OSError, subprocess.SubprocessError) as error:
            said = getattr(error, "stderr", None) or str(error)
            reason = (said.strip().splitlines() or ["no reason given"])[-1]
            raise UserError(
                f"acebench: the official repository is missing at {target} and could not be "
                f"fetched from {source} ({reason}); {_how_to_get(target)}"
            ) from None
        if head != COMMIT:
            raise UserError(f"acebench: {source} gave commit {head}, expected {COMMIT}")
        check(folder)
        if target.exists():
            raise UserError(f"acebench: {target} exists already")
        shutil.move(folder, target)


def check(folder: Path) -> None:
    """`UserError` unless the folder's code and English agent data are those of the commit."""
    missing = [name for name in (*_CODE, *_DATA) if not (folder / name).exists()]
    if missing:
        raise UserError(f"acebench: {folder} has no {missing[0]}; {_how_to_get(folder)}")
    found = tree_digest(folder)
    if found != DIGEST:
        raise UserError(
            f"acebench: {folder} differs from commit {COMMIT[:7]} (digest {found[:12]}, expected "
            f"{DIGEST[:12]}); {_how_to_get(folder)}"
        )


def tree_digest(folder: Path) -> str:
    """SHA-256 over names and contents of the code and the English agent data."""
    files = [folder / name for name in _DATA]
    for name in _CODE:
        path = folder / name
        files += sorted(path.rglob("*.py")) if path.is_dir() else [path]
    named = sorted((path.relative_to(folder).as_posix(), digest_file(path)) for path in files)
    return digest_text("".join(f"{digest}  {name}\n" for name, digest in named))


def data_files() -> tuple[str, ...]:
    """Relative names of the English agent data files."""
    return _DATA


def _how_to_get(folder: Path) -> str:
    return (
        f"get it with: git clone {URL} {folder} && git -C {folder} checkout {COMMIT}, or name a "
        f"folder that has it in acebench.official.repository"
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
