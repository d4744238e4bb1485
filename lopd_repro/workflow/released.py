"""Checkpoints that others trained: rows of their own in the tables, and no training here.

`backbones.NAME.released` names them, each with a label, where its weights come from (`model`, a
registered source or OWNER/NAME with `revision`; or `path`, a folder in Hugging Face form), and
whose printed numbers of the paper stand beside its row (`paper_method`). Such a checkpoint is asked
once, with the draws of the first seed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from lopd_repro.errors import UserError
from lopd_repro.fetch.registry import Source, find


@dataclass(frozen=True)
class Released:
    """One checkpoint of a backbone. `tokenizer` is `own`, or `backbone` where it ships none;
    `sources` is the configuration's file of further sources."""

    name: str
    backbone: str
    label: str
    model: str | None = None
    revision: str | None = None
    path: str | None = None
    paper_method: str = ""
    tokenizer: str = "own"
    sources: str = ""

    @property
    def source(self) -> Source | None:
        """What is fetched; None for a folder that is there."""
        return find(self.model, self.revision, self.sources) if self.model else None


def released(domain: Mapping[str, Any]) -> list[Released]:
    """Those of a domain's configuration, in its order."""
    found = []
    for backbone, own in domain["backbones"].items():
        for name, values in own.get("released", {}).items():
            where = f"backbones.{backbone}.released.{name}"
            if ("model" in values) == ("path" in values):
                raise UserError(f"{where}: allowed: one of `model` (with the hub) and `path`")
            more = str(domain.get("sources", ""))
            found.append(Released(name, backbone, **values, sources=more))
    return found


def check_names(checkpoints: Collection[Released], methods: Collection[str]) -> None:
    """Files are named by method, so no checkpoint can have the name or label of one."""
    for one in checkpoints:
        if one.name in methods or one.label in methods:
            taken = one.name if one.name in methods else one.label
            raise UserError(
                f"backbones.{one.backbone}.released.{one.name}: a method has the name {taken!r}, "
                "allowed: another name and label"
            )
