"""Digest of the source a command can import, so that an edited module reruns what uses it.

Imports are followed statically from a module through the project's own package; files outside
it, such as a method's, are followed the same way; data files count with their content.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from lopd_repro.files import digest_json, digest_text

PACKAGE = "lopd_repro"


def digest(root: Path, module: str, files: Iterable[str] = ()) -> str:
    """SHA-256 over the module, what it imports from the project, and the given files likewise."""
    paths = closure(root, module, files)
    return digest_json({str(p.relative_to(root)): _file_digest(p) for p in paths})[:16]


def closure(root: Path, module: str, files: Iterable[str] = ()) -> list[Path]:
    """Every project file that the module or the files import, directly or not, and themselves."""
    start = _module_file(root, module)
    if start is None:
        raise ValueError(f"no module {module} under {root}")
    waiting = [start, *(root / file for file in files)]
    seen: set[Path] = set()
    while waiting:
        path = waiting.pop()
        if path in seen:
            continue
        seen.add(path)
        waiting += _direct(root, path)
    return sorted(seen)


# Every rule asks for the closure of its command, and they share most of their modules.
@cache
def _direct(root: Path, path: Path) -> tuple[Path, ...]:
    """The project files that one file imports by itself."""
    return tuple({found: None for name in _imports(path) for found in _files(root, name)})


@cache
def _file_digest(path: Path) -> str:
    return digest_text(path.read_text())


def _imports(path: Path) -> tuple[str, ...]:
    if path.suffix != ".py":
        return ()
    names: list[str] = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names.append(node.module)
            names += [f"{node.module}.{alias.name}" for alias in node.names]
    return tuple(n for n in names if n == PACKAGE or n.startswith(f"{PACKAGE}."))


@cache
def _files(root: Path, name: str) -> tuple[Path, ...]:
    """The module's file and the `__init__` of every package above it."""
    parts = name.split(".")
    found = [_module_file(root, ".".join(parts[:depth])) for depth in range(1, len(parts) + 1)]
    return tuple(path for path in found if path is not None)


@cache
def _module_file(root: Path, name: str) -> Path | None:
    base = root.joinpath(*name.split("."))
    for path in (base.with_suffix(".py"), base / "__init__.py"):
        if path.is_file():
            return path
    return None
