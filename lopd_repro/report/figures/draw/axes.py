"""A value axis, broken in two where a wide empty gap would squeeze both groups of points flat.

Both parts have the same units per inch, so that slopes and bars compare across the break.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.gridspec import SubplotSpec
from matplotlib.ticker import MultipleLocator

from lopd_repro.report.figures.draw.style import GREY
from lopd_repro.report.figures.points import Point

Span = tuple[float, float]
_PAD = 0.08
_GAP = 0.3
_LEAST = 0.3


def spans(taken: Sequence[Span]) -> list[Span]:
    """Axis parts from the top down that hold all taken intervals: one, or two around the widest
    free gap if that is over 30% of the whole range."""
    order = sorted(taken)
    low = high = order[0][0]
    gap = (low, low)
    for begin, end in order:
        if begin - high > gap[1] - gap[0]:
            gap = (high, begin)
        high = max(high, end)
    whole = high - low
    if whole == 0.0 or gap[1] - gap[0] <= _GAP * whole:
        return [_padded((low, high), max(whole, 1.0))]
    parts = [(gap[1], high), (low, gap[0])]
    size = max(sum(b - a for a, b in parts), 1.0)
    return [_padded(part, size) for part in parts]


def _padded(span: Span, size: float) -> Span:
    """Room for markers, and no part so thin that its ticks collide."""
    low, high = span
    grow = max(_PAD * size, (_LEAST * size - (high - low)) / 2)
    return low - grow, high + grow


def extent(points: Sequence[Point]) -> list[Span]:
    """What each point of a picture takes of the value axis."""
    fields = ("value", "ci_low", "ci_high", "bound_low", "bound_high")
    found = [[getattr(p, name) for name in fields] for p in points]
    numbers = [[v for v in values if v is not None] for values in found]
    return [(min(values), max(values)) for values in numbers if values]


def value_axes(
    figure: Figure,
    place: SubplotSpec,
    taken: Sequence[Span],
    draw: Callable[[Axes], Any],
    ceiling: float = 100.0,
) -> list[Axes]:
    """Axes from the top down in one place of a grid, each with everything drawn on it."""
    parts = spans(taken)
    sizes = [high - low for low, high in parts]
    grid = place.subgridspec(len(parts), 1, height_ratios=sizes, hspace=0.06)
    step = tick_step(sum(sizes))
    axes: list[Axes] = []
    for index, (low, high) in enumerate(parts):
        ax = figure.add_subplot(grid[index], sharex=axes[0] if axes else None)
        draw(ax)
        ax.set_ylim(low, high)
        ax.yaxis.set_major_locator(_Ticks(step, ceiling))
        ax.grid(axis="y", color="#e2e2e2", linewidth=0.5, zorder=0)
        ax.set_axisbelow(True)
        axes.append(ax)
    if len(axes) == 2:
        _break(*axes)
    return axes


class _Ticks(MultipleLocator):
    """Multiples of a step between 0 and a ceiling: a score has no tick beyond its bounds."""

    def __init__(self, step: float, ceiling: float) -> None:
        super().__init__(step)
        self._ceiling = ceiling

    def tick_values(self, vmin: float, vmax: float) -> Any:
        """Ticks of an axis from `vmin` to `vmax`."""
        found = super().tick_values(vmin, vmax)
        return [tick for tick in found if -1e-9 <= tick <= self._ceiling + 1e-9]


def tick_step(size: float, count: int = 6) -> float:
    """A round step that gives about `count` ticks over `size`."""
    rough = size / count
    unit = 10.0 ** math.floor(math.log10(rough))
    return next(unit * factor for factor in (1, 2, 5, 10) if rough <= unit * factor)


def _break(upper: Axes, lower: Axes) -> None:
    upper.spines["bottom"].set_visible(False)
    upper.tick_params(axis="x", bottom=False, labelbottom=False)
    marks: dict[str, Any] = {
        "marker": [(-1, -0.6), (1, 0.6)],
        "markersize": 5,
        "linestyle": "none",
        "color": GREY,
        "mew": 0.8,
        "clip_on": False,
    }
    upper.plot([0], [0], transform=upper.transAxes, **marks)
    lower.plot([0], [1], transform=lower.transAxes, **marks)
