"""What the page is told about the run; results files say the rest."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any

from lopd_repro.errors import UserError
from lopd_repro.settings import build


@dataclass(frozen=True)
class PageSettings:
    """Scale, its notice, and the names and labels of what was run.

    `backbones` maps each domain to its backbones and those to `label` and `paper_backbone`.
    `methods` are the tables' rows in order; `labels` has the printed name of every method,
    control and variant. `checkpoints`: labels of checkpoints that others trained.
    """

    scale: str
    notice: str
    preset: str
    seeds: list[int]
    methods: list[str]
    labels: dict[str, str]
    backbones: dict[str, Any] = field(default_factory=dict)
    controls: list[str] = field(default_factory=list)
    checkpoints: list[str] = field(default_factory=list)

    def label(self, method: str) -> str:
        """A method's printed name."""
        return self.labels.get(method, method)

    def domains(self) -> list[str]:
        """The domains that were asked for; tool use where the settings name none."""
        return list(self.backbones) or ["tool_use"]

    def backbone_label(self, backbone: str) -> str:
        """A backbone's printed name."""
        return self._backbone(backbone).get("label", backbone)

    def paper_backbone(self, backbone: str) -> str:
        """The paper's backbone that it stands beside; empty if none is named."""
        return self._backbone(backbone).get("paper_backbone", "")

    def backbone_title(self, backbone: str) -> str:
        """Printed name, and which backbone's numbers of the paper stand beside."""
        paper = self.paper_backbone(backbone)
        return self.backbone_label(backbone) + (f" (paper: {paper})" if paper else "")

    def _backbone(self, backbone: str) -> dict[str, str]:
        for own in self.backbones.values():
            if backbone in own:
                found: dict[str, str] = own[backbone]
                return found
        return {}


def page_settings(values: dict[str, Any]) -> PageSettings:
    """Settings from the report commands' shared mapping, of which the page uses a part."""
    known = {f.name for f in dataclasses.fields(PageSettings)}
    settings = build(PageSettings, {k: v for k, v in values.items() if k in known}, "page")
    for domain, own in settings.backbones.items():
        named = isinstance(own, dict) and all(
            isinstance(b, dict) and all(isinstance(v, str) for v in b.values())
            for b in own.values()
        )
        if not named:
            raise UserError(
                f"page.backbones.{domain}: found {own!r}, allowed: names with label and"
                " paper_backbone"
            )
    return settings
