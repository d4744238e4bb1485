"""What a figure covers: the rule's settings."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from lopd_repro.errors import UserError
from lopd_repro.report.analysis import part_of, sorted_grid
from lopd_repro.report.figures.points import Point


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
    """From the settings that all commands of the analyses share."""
    return part_of(FigureSettings, values)


def grid(section: dict[str, Any], figure: str, name: str) -> dict[str, str]:
    """A filled grid `{x: method}` in rising order of x, written as on the axis (`0`, `0.05`)."""
    found = sorted_grid(section, figure, name)
    if not found:
        raise UserError(f"settings.{figure}.{name}: found none, allowed: a filled mapping")
    return {f"{float(x):g}": method for x, method in found}
