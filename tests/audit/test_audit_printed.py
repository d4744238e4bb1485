"""Printed digits and the numbers behind them."""

from __future__ import annotations

from fractions import Fraction

import pytest

from lopd_repro.audit.printed import (
    Rounding,
    counts_behind,
    parse_printed,
    print_number,
    printable,
    round_units,
)


@pytest.mark.parametrize(
    ("numerator", "denominator", "decimals", "half_up", "half_even", "cut"),
    [
        # 34/60 = 56.666...
        (34, 60, 1, "56.7", "56.7", "56.6"),
        # 140/164 = 85.365...
        (140, 164, 2, "85.37", "85.37", "85.36"),
        # 197/800 = 24.625 exactly: a tie; 2 is even, so half-even stays
        (197, 800, 2, "24.63", "24.62", "24.62"),
        # 219/800 = 27.375 exactly: 7 is odd, so half-even goes up too
        (219, 800, 2, "27.38", "27.38", "27.37"),
        (1, 1, 1, "100.0", "100.0", "100.0"),
        # 1/8 = 12.5
        (1, 8, 0, "13", "12", "12"),
    ],
)
def test_rounding(
    numerator: int, denominator: int, decimals: int, half_up: str, half_even: str, cut: str
) -> None:
    value = Fraction(100 * numerator, denominator)
    assert print_number(value, decimals, Rounding.HALF_UP) == half_up
    assert print_number(value, decimals, Rounding.HALF_EVEN) == half_even
    assert print_number(value, decimals, Rounding.TRUNCATED) == cut


def test_rounding_agrees_with_decimal() -> None:
    from decimal import ROUND_DOWN, ROUND_HALF_EVEN, ROUND_HALF_UP, Decimal

    modes = {
        Rounding.HALF_UP: ROUND_HALF_UP,
        Rounding.HALF_EVEN: ROUND_HALF_EVEN,
        Rounding.TRUNCATED: ROUND_DOWN,
    }
    for k in range(0, 161):  # k/16 is exact in decimal, with ties at one and two decimals
        for mode, name in modes.items():
            expected = int((Decimal(k) * 100 / 16).quantize(Decimal("0.1"), name) * 10)
            assert round_units(Fraction(1000 * k, 16), mode) == expected


def test_parse() -> None:
    plain = parse_printed("33.00")
    assert (plain.face, plain.decimals, plain.units, plain.exact) == (33, 2, 3300, True)
    # rounded: [32.995, 33.005); cut off: [33.00, 33.01)
    assert (plain.low, plain.high) == (Fraction("32.995"), Fraction("33.01"))
    above = parse_printed(">0.61")
    assert above.low > Fraction("0.61") and above.face == Fraction("0.61") and not above.exact
    below = parse_printed("<3")
    assert below.high < 3 and not below.exact
    between = parse_printed("0.63-0.64")
    assert (between.low, between.high) == (Fraction("0.63"), Fraction("0.64"))
    assert parse_printed("1e-5").face == Fraction(1, 100000)
    assert parse_printed("1e-5").decimals == 5


@pytest.mark.parametrize("text", ["", "n/a", "63,7", "0.64-0.63", "1.2.3", "nan", "63.7%"])
def test_parse_refuses(text: str) -> None:
    with pytest.raises(ValueError):
        parse_printed(text)


def test_counts_behind() -> None:
    # 56.6 of 60: 34/60 = 56.67 is cut off to it, nothing rounds to it
    assert counts_behind(566, 60, 1000, Rounding.TRUNCATED) == [34]
    assert counts_behind(566, 60, 1000, Rounding.HALF_UP) == []
    # 85.37 and 85.36 of 164 are both 140
    assert counts_behind(8537, 164, 10000, Rounding.HALF_UP) == [140]
    assert counts_behind(8536, 164, 10000, Rounding.TRUNCATED) == [140]
    # with 2,000 items and one decimal two counts share each value: 0.05 and 0.1 round to 0.1
    assert counts_behind(1, 2000, 1000, Rounding.HALF_UP) == [1, 2]
    assert counts_behind(1000, 7, 1000, Rounding.HALF_UP) == [7]
    assert counts_behind(0, 7, 1000, Rounding.HALF_UP) == [0]


def test_counts_and_printable_agree() -> None:
    for mode in Rounding:
        values = printable(30, 1000, mode)
        assert len(values) == 31
        for unit in range(1001):
            assert bool(counts_behind(unit, 30, 1000, mode)) == (unit in values)
