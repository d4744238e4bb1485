"""What a figure covers: the rule's settings."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any

from lopd_repro.errors import UserError
from lopd_repro.report.figures.points import Point
from lopd_repro.settings import build


@dataclass(frozen=True)
class FigureSettings:
    """Scale, backbone, seeds, printed names of methods, and the section of each figure."""

    scale: str
    backbone: str
    paper_backbone: str
    seeds: list[int]
    labels: dict[str, str]
    domain: str = "tool_use"
    bootstrap_seed: int = 0
    figure3: dict[str, Any] = field(default_factory=dict)
    figure4: dict[str, Any] = field(default_factory=dict)
    figure5: dict[str, Any] = field(default_factory=dict)

    def label(self, method: str) -> str:
        """A method's printed name."""
        if method not in self.labels:
            raise UserError(f"settings.labels: no name for {method!r}")
        return self.labels[method]

    def point(self, figure: str, method: str, **values: Any) -> Point:
        """A measured point of a method."""
        own = {"panel": "", "label": self.label(method), **values}
        return Point(figure=figure, scale=self.scale, backbone=self.backbone, method=method, **own)


def figure_settings(values: dict[str, Any]) -> FigureSettings:
    """From the settings that all commands of the analyses share; other keys are passed over."""
    known = {f.name for f in dataclasses.fields(FigureSettings)}
    settings = build(FigureSettings, {k: v for k, v in values.items() if k in known}, "settings")
    if not settings.seeds:
        raise UserError("settings.seeds: found none, allowed: at least one seed")
    return settings


def grid(section: dict[str, Any], figure: str, name: str) -> dict[str, str]:
    """A grid `{x: method}` in rising order of x, which is written as on the axis (`0`, `0.05`)."""
    found = section.get(name)
    if not isinstance(found, dict) or not found:
        raise UserError(f"settings.{figure}.{name}: found {found!r}, allowed: a filled mapping")
    try:
        return {f"{float(x):g}": found[x] for x in sorted(found, key=float)}
    except ValueError:
        raise UserError(
            f"settings.{figure}.{name}: found {list(found)}, allowed: numbers as keys"
        ) from None
