"""What was run: methods, backbones, seeds, steps, digests of settings and source."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from lopd_repro.files import digest_json
from lopd_repro.report.page.grid import Cell, Column, Row, grid
from lopd_repro.report.page.markup import Content, Html, el, join
from lopd_repro.report.page.results import Results, Run
from lopd_repro.report.page.section import Section, absent, fold
from lopd_repro.report.page.settings import PageSettings

Runs = list[tuple[Run, dict[str, Any]]]


def run_section(results: Results, settings: PageSettings, runs: Runs) -> Section:
    """Methods with their runs on every backbone."""
    if not runs:
        return Section("run", "What was run", absent(results, "table1.csv"))
    backbones = list(dict.fromkeys((run.domain, run.backbone) for run, _ in runs))
    facts = el("dl", *_facts(settings, runs, backbones), class_="facts")
    tables = [
        fold(
            f"{title} ({len(methods)})",
            grid(title, *_methods(settings, runs, backbones, methods)),
            open_=n == 0,
        )
        for n, (title, methods) in enumerate(_groups(settings, runs).items())
        if methods
    ]
    return Section("run", "What was run", [facts, tables])


def settings_digest(runs: Runs) -> str:
    """One digest over the settings digests of all runs."""
    return digest_json({"/".join(run.parts()): m.get("settings_digest") for run, m in runs})


def _facts(
    settings: PageSettings, runs: Runs, backbones: Sequence[tuple[str, str]]
) -> list[Content]:
    named = [
        f"{settings.backbone_title(backbone)}, {domain.replace('_', ' ')}"
        for domain, backbone in backbones
    ]
    facts: list[tuple[str, Content]] = [
        ("Backbones", join(named, el("br"))),
        ("Scale", settings.scale),
        ("Where paper and released code differ", f"preset {settings.preset}"),
        ("Seeds", ", ".join(map(str, settings.seeds))),
        ("Training runs", f"{len(runs)}"),
        ("Digest of all runs' settings", el("code", settings_digest(runs)[:16])),
    ]
    return [
        el("div", el("dt", name), el("dd", value), class_="wide" if n == 0 else None)
        for n, (name, value) in enumerate(facts)
    ]


def _groups(settings: PageSettings, runs: Runs) -> dict[str, list[str]]:
    """Methods that have runs, by what they are for."""
    found = sorted({run.method for run, _ in runs}, key=_natural)
    groups = {
        "Methods of the tables": [m for m in settings.methods if m in found],
        "Controls": [m for m in settings.controls if m in found],
    }
    named = {m for own in groups.values() for m in own}
    groups["Other settings of a method"] = [m for m in found if m not in named]
    return groups


def _natural(name: str) -> list[tuple[bool, float, str]]:
    """A sort key that puts 'K_8' before 'K_16'."""
    parts = re.split(r"(\d+(?:\.\d+)?)", name)
    return [(n % 2 == 1, float(p) if n % 2 else 0.0, p) for n, p in enumerate(parts)]


def _methods(
    settings: PageSettings,
    runs: Runs,
    backbones: Sequence[tuple[str, str]],
    methods: Sequence[str],
) -> tuple[list[Column], list[Row]]:
    columns = [
        Column("Method"),
        *(Column(f"Runs, {name}") for _, name in backbones),
        Column("Steps"),
        Column("Generations"),
        Column("Digest of settings", text=True),
    ]
    return columns, [_method(settings, runs, backbones, method) for method in methods]


def _method(
    settings: PageSettings, runs: Runs, backbones: Sequence[tuple[str, str]], method: str
) -> Row:
    own = [(run, manifest) for run, manifest in runs if run.method == method]
    counts = [sum((r.domain, r.backbone) == place for r, _ in own) for place in backbones]
    steps = _distinct(_train(m, "steps") for _, m in own)
    generations = _distinct(
        _product(_train(m, "steps"), _train(m, "rollouts_per_step")) for _, m in own
    )
    if method == "vanilla":
        steps, generations = "0", "0"
    digests = dict.fromkeys(str(m.get("settings_digest", ""))[:12] for _, m in own)
    return [
        Cell(settings.label(method), (method,)),
        *(f"{count}" if count else "" for count in counts),
        steps,
        generations,
        Cell(_codes(list(digests))),
    ]


def _train(manifest: dict[str, Any], key: str) -> Any:
    settings = manifest.get("settings")
    train = settings.get("train") if isinstance(settings, dict) else None
    return train.get(key) if isinstance(train, dict) else None


def _product(first: Any, second: Any) -> int | None:
    return first * second if isinstance(first, int) and isinstance(second, int) else None


def _distinct(values: Any) -> str:
    return " / ".join(f"{v:,}" for v in sorted({v for v in values if isinstance(v, int)}))


def _codes(digests: Sequence[str]) -> Html:
    return join([el("code", digest) for digest in digests], el("br"))
