"""What stands beside the official verdicts of a benchmark on programs, counted.

Scores are the official verdicts, odd ones included. The rows of such a benchmark also hold a strict
reading of every reply, which changes no score, and what became of programs that ran out of time,
which the official scorers do not always call by that name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

TIME_OUT = "time-out"
_LIVECODEBENCH = {-3: TIME_OUT, -4: "runtime error", -5: "compile error"}


@dataclass
class Readings:
    """Counts over rows; those of other benchmarks count for nothing.

    verdicts: rows with an official verdict. read: of these, with a strict reading.
    to_right, to_wrong: verdicts that the strict reading would change, by what it makes of them.
    timeouts: programs that ran out of time, by the official name of what happened.
    deaths: programs whose process left no status, which EvalPlus calls a time-out.
    """

    verdicts: int = 0
    read: int = 0
    to_right: int = 0
    to_wrong: int = 0
    timeouts: Counter[str] = field(default_factory=Counter)
    deaths: int = 0

    @property
    def changed(self) -> int:
        """Verdicts that the strict reading would change."""
        return self.to_right + self.to_wrong

    @property
    def remarkable(self) -> bool:
        """Whether there is more to say than that both readings agree."""
        return bool(self.changed or self.timeouts.total() or self.deaths)

    def add(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Count rows of an evaluation file."""
        for row in rows:
            if "error_code" not in row and "base_status" not in row:
                continue
            self.verdicts += 1
            if "strict_score" in row:
                self.read += 1
                self.to_right += row["strict_score"] > row["score"]
                self.to_wrong += row["strict_score"] < row["score"]
            if row["status"] == "timeout":
                self.timeouts[_official_name(row)] += 1
            self.deaths += bool(row.get("died", False))

    def merge(self, other: Readings) -> None:
        """Add another's counts."""
        for name in ("verdicts", "read", "to_right", "to_wrong", "deaths"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.timeouts.update(other.timeouts)

    def sentence(self) -> str:
        """The counts in words, "" where no row has an official verdict."""
        if not self.verdicts:
            return ""
        made = f"{self.verdicts:,} verdicts"
        if not self.read:
            parts = [f"no strict reading of {made}"]
        else:
            parts = [f"a strict reading would change {self.changed:,} of {made}"]
            if self.read < self.verdicts:
                parts[0] += f" (of which it has read {self.read:,})"
            if self.changed:
                parts[0] += f": {self.to_right:,} to right, {self.to_wrong:,} to wrong"
        if self.timeouts.total():
            parts.append(f"{_counted(self.timeouts.total(), TIME_OUT)}{self._filed()}")
        if self.deaths:
            parts.append(f"{_counted(self.deaths, 'death')}, officially filed as {TIME_OUT}")
        return "; ".join(parts)

    def _filed(self) -> str:
        if set(self.timeouts) == {TIME_OUT}:
            return ""
        named = ", ".join(f"{count:,} as {name}" for name, count in sorted(self.timeouts.items()))
        return f" (officially filed {named})"


def _official_name(row: Mapping[str, Any]) -> str:
    if "error_code" in row:
        return _LIVECODEBENCH.get(row["error_code"], "failure")
    return TIME_OUT if "timeout" in (row["base_status"], row.get("plus_status")) else "failure"


def _counted(number: int, name: str) -> str:
    return f"{number:,} {name}" + ("" if number == 1 else "s")
