"""Numbers as the page prints them: what the file says, to fewer places."""

from __future__ import annotations

import math


def number(value: str | None, places: int | None = None, *, sign: bool = False) -> str:
    """A CSV's number to so many places, or without trailing zeros; other text as it is."""
    if not value:
        return ""
    try:
        parsed = float(value)
    except ValueError:
        return value
    if not math.isfinite(parsed):
        return value
    if places is None:
        shown = f"{parsed:.4f}".rstrip("0").rstrip(".") if "." in value else value
        shown = "0" if shown == "-0" else shown
        return f"+{shown}" if sign and parsed > 0 else shown
    shown = f"{parsed:{'+' if sign else ''},.{places}f}"
    # A rounded zero has no sign.
    return f"{0:.{places}f}" if float(shown.replace(",", "")) == 0 else shown


def span(
    low: str | None, high: str | None, places: int | None = None, *, sign: bool = False
) -> str:
    """An interval, empty where an end is."""
    if not low or not high:
        return ""
    return f"{number(low, places, sign=sign)} to {number(high, places, sign=sign)}"


def as_float(value: str | None) -> float | None:
    """The number a text holds, or None."""
    try:
        parsed = float(value or "")
    except ValueError:
        return None
    return parsed if math.isfinite(parsed) else None


def seconds(value: float) -> str:
    """A duration for reading: '41 s', '12 min', '1 h 05 min'."""
    if value < 90:
        return f"{value:.0f} s"
    minutes = round(value / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"
