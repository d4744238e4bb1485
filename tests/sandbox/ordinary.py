"""An interpreter that an ordinary user can start, and a way to be one."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
NOBODY = 65534


def drop() -> None:
    os.setgroups([])
    os.setresgid(NOBODY, NOBODY, NOBODY)
    os.setresuid(NOBODY, NOBODY, NOBODY)


@cache
def interpreter() -> str | None:
    """A Python 3.11 or later that works for `nobody` and can import this project."""
    code = (
        f"import sys; sys.path.insert(0, {str(REPOSITORY)!r}); import lopd_repro.sandbox.executor"
    )
    version = "import sys; assert sys.version_info >= (3, 11);"
    for path in (
        sys.executable,
        "/usr/bin/python3",
        "/usr/local/bin/python3",
        "/usr/bin/python3.11",
    ):
        try:
            done = subprocess.run(
                [path, "-B", "-c", version + code], preexec_fn=drop, capture_output=True, cwd="/"
            )
        except OSError:
            continue
        if done.returncode == 0:
            return path
    return None


def script(user: str, path: Path, *arguments: str) -> tuple[list[str], dict[str, Any]]:
    """Command and options of `subprocess` for a Python script as `self` or as `nobody`."""
    if user == "self":
        return [sys.executable, str(path), *arguments], {"cwd": "/"}
    if os.geteuid() != 0:
        pytest.skip("not root: the tests as they are already run as an ordinary user")
    python = interpreter()
    if python is None:
        pytest.skip("no Python 3.11 that an ordinary user could start here")
    return [python, "-B", str(path), *arguments], {"cwd": "/", "preexec_fn": drop}
