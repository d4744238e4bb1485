"""The folder of results as the page reads it."""

from __future__ import annotations

import csv
import os
import urllib.parse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lopd_repro.errors import UserError
from lopd_repro.files import read_json


@dataclass(frozen=True)
class Results:
    """`root` is the workflow's results folder; `page` is where the page will be written."""

    root: Path
    page: Path

    def path(self, name: str) -> Path:
        """Where a result is, or would be."""
        return self.root / name

    def has(self, name: str) -> bool:
        """Whether a result is there."""
        return self.path(name).is_file()

    def href(self, name: str) -> str:
        """A result's address relative to the page."""
        relative = os.path.relpath(self.path(name), self.page.parent)
        return urllib.parse.quote(Path(relative).as_posix())

    def text(self, name: str) -> str:
        """A text file's content."""
        try:
            return self.path(name).read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(f"{self.path(name)}: cannot be read ({error})") from None

    def rows(self, name: str) -> list[dict[str, str]]:
        """A CSV file's rows as texts by column."""
        reader = csv.DictReader(self.text(name).splitlines(keepends=True), strict=True)
        try:
            rows = list(reader)
        except csv.Error as error:
            raise UserError(f"{self.path(name)}: not a CSV file ({error})") from None
        columns = reader.fieldnames or []
        for number, row in enumerate(rows, start=1):
            if None in row or None in row.values():
                raise UserError(f"{self.path(name)}: row {number} has not {len(columns)} cells")
        return rows

    def manifests(self) -> Iterator[tuple[Run, dict[str, Any]]]:
        """Every training run's manifest, in the order of names."""
        for path in sorted(self.root.glob("runs/*/*/*/seed*/manifest.json")):
            domain, backbone, method, seed = path.parent.relative_to(self.root / "runs").parts
            manifest = read_json(path)
            if not isinstance(manifest, dict):
                raise UserError(f"{path}: not a manifest")
            yield Run(domain, backbone, method, seed.removeprefix("seed")), manifest


@dataclass(frozen=True)
class Run:
    """Which run it is; the parts of its folder's name."""

    domain: str
    backbone: str
    method: str
    seed: str

    def parts(self) -> tuple[str, str, str, str]:
        """Domain, backbone, method, seed."""
        return self.domain, self.backbone, self.method, self.seed
