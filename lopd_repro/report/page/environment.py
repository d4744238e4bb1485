"""What the training runs recorded about themselves: packages, hardware, digests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from lopd_repro.report.page.grid import Cell, Column, Row, grid
from lopd_repro.report.page.markup import Html, el
from lopd_repro.report.page.results import Results, Run
from lopd_repro.report.page.section import Section, absent

_NAMES = {
    "processor": "Processor",
    "machine": "Machine",
    "cores": "Cores",
    "torch_threads": "Threads of a job",
    "gpu": "GPU",
}


def environment_section(results: Results, runs: list[tuple[Run, dict[str, Any]]]) -> Section:
    """Each fact once; where runs differ, every value with the number of runs that have it."""
    if not runs:
        return Section("environment", "Environment", absent(results, "table1.csv"))
    manifests = [manifest for _, manifest in runs]
    body = [
        el("p", f"As recorded in the manifests of {len(runs)} training runs."),
        grid(
            "Environment",
            [Column("What"), Column("Value", text=True)],
            _facts(manifests),
            wrap=True,
        ),
    ]
    return Section("environment", "Environment", body)


def _facts(manifests: list[dict[str, Any]]) -> Iterable[Row]:
    yield _row("Python", (m.get("python") for m in manifests))
    names = sorted({name for m in manifests for name in _mapping(m, "packages")})
    for name in names:
        yield _row(name, (_mapping(m, "packages").get(name) for m in manifests))
    hardware = dict.fromkeys(key for m in manifests for key in _mapping(m, "hardware"))
    for key in sorted(hardware, key=lambda k: (list(_NAMES).index(k) if k in _NAMES else 99, k)):
        title = _NAMES.get(key, key)
        yield _row(title, (_mapping(m, "hardware").get(key) for m in manifests))
    for key in sorted({key for m in manifests for key in _mapping(m, "isolation")}):
        title = f"Isolation of environments: {key.replace('_', ' ')}"
        yield _row(title, (_mapping(m, "isolation").get(key) for m in manifests))
    yield ["Source digests", Cell(_digests(manifests))]


def _mapping(manifest: Mapping[str, Any], key: str) -> dict[str, Any]:
    found = manifest.get(key)
    return found if isinstance(found, dict) else {}


def _row(title: str, values: Iterable[Any]) -> Row:
    counts = Counter(_shown(value) for value in values)
    if len(counts) == 1:
        return [title, next(iter(counts))]
    lines = [f"{value} ({n} runs)" for value, n in sorted(counts.items())]
    return [title, Cell(lines[0], tuple(lines[1:]))]


def _shown(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return str(value)


def _digests(manifests: list[dict[str, Any]]) -> Html:
    """A digest covers the source that one kind of run imports, so methods differ."""
    found: dict[str, set[str]] = {}
    for manifest in manifests:
        digest = str(manifest.get("source_digest", ""))
        found.setdefault(digest, set()).add(str(manifest.get("method", "")))
    lines = [
        el("li", el("code", digest), f" {', '.join(sorted(methods))}")
        for digest, methods in sorted(found.items(), key=lambda item: sorted(item[1]))
    ]
    return el("ul", lines, class_="plain")
