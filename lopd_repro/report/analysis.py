"""What the analyses' commands are told: one backbone, its runs, and which of them form a grid."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, TypeVar

from lopd_repro.errors import UserError
from lopd_repro.settings import build

GRIDS = {
    "margin": ("figure3", "margin"),
    "latents": ("figure5", "latents"),
    "retrieved": ("figure5", "retrieved"),
}
"""Grids by name: where `AnalysisSettings` has them."""


VANILLA = "vanilla"
"""The untrained policy among the methods."""


@dataclass(frozen=True)
class AnalysisSettings:
    """Scale, backbone, methods, labels and seeds; `figure3` and `figure5` hold the grids.

    A grid maps a value's text to the method that was run with it; the configured value is `lopd`.
    """

    scale: str
    notice: str
    domain: str
    backbone: str
    backbone_label: str
    seeds: tuple[int, ...]
    labels: dict[str, str]
    methods: tuple[str, ...]
    controls: tuple[str, ...]
    figure3: dict[str, Any]
    figure5: dict[str, Any]
    bootstrap_seed: int = 0

    def label(self, method: str) -> str:
        """Printed name of a method."""
        return self.labels.get(method, method)

    def grid(self, name: str) -> list[tuple[str, str]]:
        """(value, method) of a grid in order of value; empty if it was not asked for."""
        figure, key = GRIDS[name]
        return sorted_grid(getattr(self, figure), figure, key)

    def trained(self) -> list[str]:
        """Methods that train."""
        return [method for method in self.methods if method != VANILLA]

    def variants(self) -> list[str]:
        """LOPD's variants in the order of grids, frozen composer, controls; each once."""
        names = [method for grid in GRIDS for _, method in self.grid(grid)]
        frozen = self.figure3.get("frozen")
        names += [frozen] if frozen else []
        return [n for n in dict.fromkeys([*names, *self.controls]) if n not in self.methods]


S = TypeVar("S")


def part_of(kind: type[S], values: dict[str, Any]) -> S:
    """A command's part of the settings that all analyses share; other keys are passed over.

    kind: a dataclass with `seeds`, of which there must be at least one.
    """
    known = {f.name for f in dataclasses.fields(kind)}  # type: ignore[arg-type]
    settings = build(kind, {k: v for k, v in values.items() if k in known}, "settings")
    if not settings.seeds:  # type: ignore[attr-defined]
        raise UserError("settings.seeds: found none, allowed: at least one training seed")
    return settings


def sorted_grid(section: dict[str, Any], figure: str, key: str) -> list[tuple[str, str]]:
    """(value, method) of a grid in order of value; empty if it was not asked for."""
    values = section.get(key) or {}
    try:
        return sorted(values.items(), key=lambda item: float(item[0]))
    except (AttributeError, ValueError):
        raise UserError(
            f"settings.{figure}.{key}: found {values!r}, allowed: a mapping with numbers as keys"
        ) from None


def analysis_settings(values: dict[str, Any]) -> AnalysisSettings:
    """What selection, budget, diagnostics and controls read."""
    return part_of(AnalysisSettings, values)
