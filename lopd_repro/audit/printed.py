"""Printed numbers: what a string of digits allows the number behind it to be.

A printed value is handled as a whole number of units in its last place, and every rounding is
done in integers, so no check depends on binary floating point.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from functools import lru_cache

_NUMBER = r"\d+(?:\.\d+)?(?:[eE][-+]?\d+)?"
_EXACT = re.compile(rf"^[-+]?{_NUMBER}$")
_BOUND = re.compile(rf"^([<>])\s*({_NUMBER})$")
_RANGE = re.compile(rf"^({_NUMBER})\s*[-\u2013]\s*({_NUMBER})$")

OPEN_EDGE = Fraction(1, 10**9)
"""Printed bounds such as '>0.61' are open: this much is added so that strict tests stay strict."""

UNBOUNDED = Fraction(10**9)


class Rounding(Enum):
    """How a last digit can have come about."""

    HALF_UP = "half-up"
    HALF_EVEN = "half-even"
    TRUNCATED = "truncated"


@dataclass(frozen=True)
class Printed:
    """One printed value.

    `face` is the number as read (the middle of a printed range), `low` and `high` enclose
    whatever it may stand for when its last digit may be rounded or cut off, `decimals` counts
    digits after the point, `exact` says that a plain number was printed, not a bound or a range.
    """

    text: str
    face: Fraction
    low: Fraction
    high: Fraction
    decimals: int
    exact: bool

    @property
    def units(self) -> int:
        """The value in units of its last printed digit."""
        return int(self.face * 10**self.decimals)


def parse_printed(text: str) -> Printed:
    """Read '33.00', '1e-5', '>0.61', '<0.3' or '0.63-0.64'; `ValueError` for anything else.

    A number known to +-(half a unit) when rounded and to (0, 1) unit when cut off lies within
    [value - unit/2, value + unit).
    """
    text = text.strip()
    if _EXACT.match(text):
        value, decimals = Fraction(text), _decimals(text)
        unit = Fraction(1, 10**decimals)
        return Printed(text, value, value - unit / 2, value + unit, decimals, True)
    if bound := _BOUND.match(text):
        value, decimals = Fraction(bound[2]), _decimals(bound[2])
        low = value + OPEN_EDGE if bound[1] == ">" else -UNBOUNDED
        high = value - OPEN_EDGE if bound[1] == "<" else UNBOUNDED
        return Printed(text, value, low, high, decimals, False)
    if ends := _RANGE.match(text):
        low, high = Fraction(ends[1]), Fraction(ends[2])
        if low > high:
            raise ValueError(f"{text!r} is a range that runs backwards")
        return Printed(text, (low + high) / 2, low, high, _decimals(ends[2]), False)
    raise ValueError(f"{text!r} is not a number, a bound such as >0.61 or a range such as 0.6-0.7")


def _decimals(text: str) -> int:
    mantissa, _, exponent = text.lower().partition("e")
    digits = len(mantissa.partition(".")[2])
    return max(0, digits - int(exponent or 0))


def round_units(value: Fraction, mode: Rounding) -> int:
    """Round a non-negative number of last-place units to a whole one."""
    numerator, denominator = value.numerator, value.denominator
    if mode is Rounding.TRUNCATED:
        return numerator // denominator
    doubled, rest = divmod(2 * numerator + denominator, 2 * denominator)
    if mode is Rounding.HALF_EVEN and rest == 0 and doubled % 2 == 1:
        return doubled - 1
    return doubled


def print_number(value: Fraction, decimals: int, mode: Rounding = Rounding.HALF_UP) -> str:
    """The digits that `value` prints at `decimals` decimals."""
    sign = "-" if value < 0 else ""
    units = round_units(abs(value) * 10**decimals, mode)
    if decimals == 0:
        return f"{sign}{units}"
    return f"{sign}{units // 10**decimals}.{units % 10**decimals:0{decimals}d}"


def counts_behind(units: int, total: int, full: int, mode: Rounding) -> list[int]:
    """Every k in 0..total whose share k/total prints as `units` last-place units.

    `full` is what total/total prints in those units: 10000 for percentages with two decimals.
    """
    first = max(0, (units - 1) * total // full)
    last = min(total, -((units + 1) * -total // full))
    return [
        k for k in range(first, last + 1) if round_units(Fraction(full * k, total), mode) == units
    ]


@lru_cache(maxsize=4096)
def printable(total: int, full: int, mode: Rounding) -> frozenset[int]:
    """Every value, in last-place units, that some k/total prints."""
    return frozenset(round_units(Fraction(full * k, total), mode) for k in range(total + 1))
