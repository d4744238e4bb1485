"""Can a column of percentages come from k/(R*n) items, for which R, rounded how?

The idea is the GRIM test (Brown and Heathers 2017) with an unknown number of repeats R and an
unknown way of rounding. R belongs to the whole column: for each R the column's likelihood is
written down for a table in which a cell is, independently,

- with probability 1 - SLIP - MIXED one of the values that k/(R*n) prints under the main rounding,
- with probability MIXED one of those it prints under another rounding,
- with probability SHIFTED, if R > 1, one that averaging runs which were rounded before can print,
- with probability SLIP any printable number at all (a typing error),

each uniform over its values. A larger R prints more values, so each of them is less likely: that
is what prefers R = 1 to R = 2 when both fit, and it does so more surely with every cell. The three
small probabilities only have to be small: they say how surprising an odd cell is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from lopd_repro.audit.printed import Rounding, counts_behind, printable

MAX_REPEATS = 10
SLIP = 0.01
MIXED = 0.05
SHIFTED = 0.02
DECISIVE = math.log(20.0)
"""R is called identified when its likelihood is 20 times that of every other R."""
RULED_OUT = math.log(1e6)
"""An R that prints every cell excuses a cell which the best R cannot print, unless its likelihood
is a million times smaller. For the true R of an honest table that happens, by Markov's inequality,
with a probability below 1e-6 for each other R."""


@dataclass(frozen=True)
class CellFit:
    """One cell at the column's R: the counts that print it, by rounding."""

    units: int
    counts: dict[Rounding, tuple[int, ...]]
    shifted: tuple[int, ...]
    """The counts that print it if each run was rounded before the mean was: rounding twice moves
    a value by up to 1 unit, cutting off twice by up to 2. Empty for R = 1, and where one run's
    share prints exactly."""

    @property
    def roundings(self) -> frozenset[Rounding]:
        """The roundings under which some count prints this cell."""
        return frozenset(mode for mode, ks in self.counts.items() if ks)

    @property
    def fits(self) -> bool:
        """Whether any count prints this cell under any rounding."""
        return bool(self.roundings)

    @property
    def near(self) -> bool:
        """No count prints it, but some does if runs were rounded before they were averaged."""
        return not self.fits and bool(self.shifted)

    @property
    def truncated(self) -> bool:
        """Only cutting off gives these digits."""
        return self.roundings == {Rounding.TRUNCATED}

    @property
    def rounded(self) -> bool:
        """Cutting off cannot give these digits, rounding can."""
        return self.fits and Rounding.TRUNCATED not in self.roundings

    def candidates(self, plausible: frozenset[Rounding]) -> tuple[int, ...]:
        """The possible counts: those under the plausible roundings of the column, else those
        under any; with those of runs rounded first."""
        usual = {k for mode in plausible for k in self.counts[mode]}
        usual = usual or {k for ks in self.counts.values() for k in ks}
        return tuple(sorted(usual | set(self.shifted)))


@dataclass(frozen=True)
class ColumnFit:
    """What one column of printed shares says about the number of runs behind it."""

    items: int
    repeats: int
    decisive: bool
    """`repeats` was stated, or no other R comes within a factor of 20 in likelihood."""
    rivals: tuple[int, ...]
    """Other R that the cells do not rule out (empty when decisive)."""
    excuses: tuple[int, ...]
    """Every R up to MAX_REPEATS, itself not ruled out, that prints all cells in some way."""
    main: Rounding
    plausible: frozenset[Rounding]
    """Roundings whose likelihood is within a factor of 20 of the main one's."""
    cells: tuple[CellFit, ...]

    @property
    def total(self) -> int:
        """Scored episodes behind each cell: items times repeats."""
        return self.items * self.repeats


def fit_column(
    units: Sequence[int],
    items: int,
    full: int,
    stated_repeats: int | None = None,
    stated_rounding: Rounding | None = None,
) -> ColumnFit:
    """Infer R and the rounding of a column; see the module's text.

    units: the printed values in last-place units; items: n; full: what 1.0 prints, in units.
    """
    candidates = [stated_repeats] if stated_repeats else list(range(1, MAX_REPEATS + 1))
    modes = [stated_rounding] if stated_rounding else list(Rounding)
    by_mode = {
        r: {mode: _log_likelihood(units, items, r, full, mode) for mode in modes}
        for r in candidates
    }
    score = {r: max(values.values()) for r, values in by_mode.items()}
    chosen = max(score, key=lambda r: (score[r], -r))
    main = max(modes, key=lambda mode: by_mode[chosen][mode])
    rivals = tuple(r for r in score if r != chosen and score[chosen] - score[r] < DECISIVE)
    excuses = tuple(
        r
        for r in score
        if score[chosen] - score[r] < RULED_OUT
        and all(unit in _anyhow(items, r, full) for unit in units)
    )
    return ColumnFit(
        items=items,
        repeats=chosen,
        decisive=not rivals,
        rivals=rivals,
        excuses=excuses,
        main=main,
        plausible=frozenset(
            mode for mode in modes if score[chosen] - by_mode[chosen][mode] < DECISIVE
        ),
        cells=tuple(_cell_fit(unit, items, chosen, full) for unit in units),
    )


def _log_likelihood(
    units: Sequence[int], items: int, repeats: int, full: int, main: Rounding
) -> float:
    total = items * repeats
    usual = printable(total, full, main)
    others = _any_rounding(total, full)
    shifted = _shifted_values(items, repeats, full)
    result = 0.0
    for unit in units:
        p = SLIP / (full + 1)
        if unit in usual:
            p += (1 - SLIP - MIXED - SHIFTED) / len(usual)
        if unit in others:
            p += MIXED / len(others)
        if unit in shifted:
            p += SHIFTED / len(shifted)
        result += math.log(p)
    return result


@lru_cache(maxsize=4096)
def _any_rounding(total: int, full: int) -> frozenset[int]:
    return frozenset().union(*(printable(total, full, mode) for mode in Rounding))


def _anyhow(items: int, repeats: int, full: int) -> frozenset[int]:
    return _any_rounding(items * repeats, full) | _shifted_values(items, repeats, full)


@lru_cache(maxsize=4096)
def _shifted_values(items: int, repeats: int, full: int) -> frozenset[int]:
    """Every printed value that `_shifted_counts` gives a count for."""
    if repeats == 1 or full % items == 0:
        return frozenset()
    total = items * repeats
    values: set[int] = set()
    for k in range(total + 1):
        # units - 1 <= full * k / total <= units + 2, solved for units
        values.update(range(-((2 * total - full * k) // total), full * k // total + 2))
    return frozenset(value for value in values if 0 <= value <= full)


def _shifted_counts(unit: int, items: int, repeats: int, full: int) -> tuple[int, ...]:
    if repeats == 1 or full % items == 0:
        return ()
    total = items * repeats
    first = max(0, -((1 - unit) * total // full))
    last = min(total, (unit + 2) * total // full)
    return tuple(range(first, last + 1))


def _cell_fit(unit: int, items: int, repeats: int, full: int) -> CellFit:
    counts = {mode: tuple(counts_behind(unit, items * repeats, full, mode)) for mode in Rounding}
    return CellFit(unit, counts, _shifted_counts(unit, items, repeats, full))
