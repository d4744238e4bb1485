"""What the checks report: one finding, its severity, and the order in which they are shown."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum


class Severity(Enum):
    """How much a finding says, from the most to the least."""

    CONTRADICTION = "contradiction"
    """The printed numbers cannot all be right under any reading that was tried."""
    DISCREPANCY = "discrepancy"
    """They differ under the plain reading; a named other reading explains it."""
    CAUTION = "caution"
    """They are right, and do not carry the weight that may be put on them."""
    INFO = "info"
    """A fact recovered from them."""


ORDER = {severity: place for place, severity in enumerate(Severity)}


@dataclass(frozen=True)
class Finding:
    """One result: a statement, the cells it speaks of, the arithmetic, the numbers behind it."""

    check: str
    severity: Severity
    cells: tuple[str, ...]
    statement: str
    evidence: str
    numbers: dict[str, object] = field(default_factory=dict)
    brief: str = ""
    """A few words for a summary that lists several findings of one kind."""

    def numbers_json(self) -> str:
        """The numbers as one line of JSON."""
        return json.dumps(self.numbers, sort_keys=True, default=str)


def counted(n: int, thing: str) -> str:
    """'1 cell', '2 cells'."""
    return f"{n} {thing}" + ("" if n == 1 else "s")


def numbered(findings: Sequence[Finding]) -> list[tuple[str, Finding]]:
    """Findings by severity, then in the order found, with ids F001, F002, ..."""
    ranked = sorted(findings, key=lambda finding: ORDER[finding.severity])
    return [(f"F{place:03d}", finding) for place, finding in enumerate(ranked, start=1)]
