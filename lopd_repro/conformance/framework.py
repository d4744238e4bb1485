"""Reads a folder of golden vectors, runs the adapters, prints the verdicts."""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lopd_repro.conformance.outcome import AbsentError, Outcome
from lopd_repro.errors import UserError

Adapter = Callable[[dict[str, Any], Path], Outcome]

ADAPTER_MODULES = (
    "lopd_repro.conformance.losses",
    "lopd_repro.conformance.composer",
    "lopd_repro.conformance.environments",
    "lopd_repro.conformance.acebench",
    "lopd_repro.conformance.livecodebench",
    "lopd_repro.conformance.evalplus",
    "lopd_repro.conformance.bfcl",
)
"""Modules that expose `ENTRIES` (and perhaps `SOURCES`); one that is missing covers nothing."""


@dataclass(frozen=True)
class Registry:
    """Adapters by name prefix and by part of the source; the longest match wins, names first."""

    entries: Mapping[str, Adapter]
    sources: Mapping[str, Adapter]

    def find(self, entry: Mapping[str, Any]) -> Adapter | None:
        """The adapter of an entry, or None if it is not covered."""
        name, source = str(entry["name"]), str(entry.get("source", ""))
        prefixes = [prefix for prefix in self.entries if name.startswith(prefix)]
        if prefixes:
            return self.entries[max(prefixes, key=len)]
        parts = [part for part in self.sources if part in source]
        return self.sources[max(parts, key=len)] if parts else None


def load_registry(modules: Sequence[str] = ADAPTER_MODULES) -> Registry:
    """Import the adapter modules that exist and merge what they cover."""
    entries: dict[str, Adapter] = {}
    sources: dict[str, Adapter] = {}
    for name in modules:
        try:
            module = importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name != name:
                raise
            continue
        entries.update(module.ENTRIES)
        sources.update(getattr(module, "SOURCES", {}))
    return Registry(entries, sources)


def read_manifest(folder: Path) -> list[dict[str, Any]]:
    """The entries of DIR/manifest.json, checked for the fields that every entry needs."""
    path = folder / "manifest.json"
    if not folder.is_dir():
        raise UserError(f"{folder}: no such folder")
    try:
        manifest = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: not a readable JSON file ({error})") from None
    entries = manifest.get("entries") if isinstance(manifest, dict) else None
    if not isinstance(entries, list):
        raise UserError(f"{path}: needs a list 'entries'")
    for index, entry in enumerate(entries):
        for field in ("name", "file"):
            if not isinstance(entry, dict) or not isinstance(entry.get(field), str):
                raise UserError(f"{path}: entry {index} needs a text '{field}'")
    return entries


def run_entry(entry: dict[str, Any], folder: Path, adapter: Adapter) -> Outcome:
    """Run one adapter; a file that cannot be read or lacks an array makes the entry differ.

    `AbsentError` passes: what the adapter needs is not on this machine.
    """
    path = folder / entry["file"]
    if not path.resolve().is_relative_to(folder.resolve()):
        return _broken("its file lies outside the folder")
    if not path.is_file():
        return _broken(f"{path.name} is missing")
    try:
        return adapter(entry, path)
    except AbsentError:
        raise
    except Exception as error:
        first = (str(error).splitlines() or [""])[0]
        return _broken(f"{type(error).__name__}: {first}")


def _broken(reason: str) -> Outcome:
    return Outcome(float("nan"), None, False, reason)


def run(folder: Path, registry: Registry, only: str = "") -> int:
    """Print one line per entry and a total; 1 if a covered entry differs, else 0."""
    entries = [entry for entry in read_manifest(folder) if entry["name"].startswith(only)]
    width = max((len(entry["name"]) for entry in entries), default=0)
    counts = {"ok": 0, "differs": 0, "not covered": 0}
    for entry in entries:
        adapter = registry.find(entry)
        verdict, errors, detail = "not covered", "", ""
        if adapter is not None:
            try:
                outcome = run_entry(entry, folder, adapter)
            except AbsentError as reason:
                detail = f" here  ({reason})"
            else:
                verdict = "ok" if outcome.ok else "differs"
                grad = "none" if outcome.grad_error is None else f"{outcome.grad_error:.2e}"
                errors = f"values {outcome.value_error:<10.2e}gradients {grad}"
                detail = f"  ({outcome.detail})" if outcome.detail else ""
        counts[verdict] += 1
        print(f"{entry['name']:<{width}}  {errors:<37}{verdict}{detail}", flush=True)
    print(
        f"total: {len(entries)} entries, {counts['ok']} ok, {counts['differs']} differ, "
        f"{counts['not covered']} not covered"
    )
    return 1 if counts["differs"] else 0


def main(argv: Sequence[str] | None = None) -> int:
    """The command line: `DIR [--only PREFIX]`."""
    parser = argparse.ArgumentParser(
        prog="python -m lopd_repro.conformance",
        description="Compare this project's functions with a folder of golden vectors.",
    )
    parser.add_argument("folder", metavar="DIR", type=Path, help="holds manifest.json")
    parser.add_argument("--only", default="", metavar="PREFIX", help="entries of this prefix only")
    arguments = parser.parse_args(argv)
    try:
        return run(arguments.folder, load_registry(), arguments.only)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
