"""The methods of a workflow: registered by their rule files, chosen by the configuration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lopd_repro.errors import UserError


@dataclass
class MethodEntry:
    """One registered method. `order` sorts table rows; `control` keeps it out of the tables.

    `outputs` are files of its own that a run leaves beside the usual ones.
    """

    name: str
    label: str
    file: str
    order: int
    control: bool
    inputs: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)


class Registry:
    """Methods by name, in the order of the tables."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._entries: dict[str, MethodEntry] = {}
        self._chosen = config["methods"]
        self._controls = config["controls"]

    def add(
        self,
        name: str,
        label: str,
        file: str,
        inputs: Sequence[str] = (),
        order: int = 50,
        control: bool = False,
        outputs: Sequence[str] = (),
    ) -> None:
        """Register a method; a name can be taken once."""
        if name in self._entries:
            raise UserError(f"method {name}: two rule files register it")
        self._entries[name] = MethodEntry(
            name, label, file, order, control, list(inputs), list(outputs)
        )

    def __getitem__(self, name: str) -> MethodEntry:
        if name not in self._entries:
            allowed = ", ".join(sorted(self._entries))
            raise UserError(f"methods: found {name!r}, allowed: all, or a list of {allowed}")
        return self._entries[name]

    def methods(self) -> list[str]:
        """Names of the methods of the tables."""
        if self._chosen == "all":
            chosen = [e for e in self._entries.values() if not e.control]
        else:
            chosen = [self[name] for name in self._chosen]
        return [e.name for e in sorted(chosen, key=lambda e: (e.order, e.name))]

    def controls(self) -> list[str]:
        """Names of the controls that the configuration asks for."""
        return [self[name].name for name in self._controls]

    def labels(self) -> dict[str, str]:
        """Printed name of each registered method."""
        return {e.name: e.label for e in self._entries.values()}
