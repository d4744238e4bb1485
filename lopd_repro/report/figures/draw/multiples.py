"""Small multiples: variants side by side in blocks, one row of panels per quantity."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from lopd_repro.report.figures.draw.style import PAGE, new_figure

_ACROSS = 7
_TITLE = 16


def multiples(
    titles: Sequence[str],
    quantities: Sequence[str],
    draw: Callable[[Axes, int, int], object],
    notice: str,
    height: float,
) -> Figure:
    """`draw(ax, variant, quantity)` into each panel; a quantity has one scale in all panels.

    `height` is a panel's, in inches. Long titles are broken into lines, and their own breaks stay.
    """
    blocks = -(-len(titles) // _ACROSS)
    across = -(-len(titles) // blocks)
    wrapped = ["\n".join(textwrap.fill(t, _TITLE) for t in text.split("\n")) for text in titles]
    lines = [
        max(1 + t.count("\n") for t in wrapped[b * across : (b + 1) * across])
        for b in range(blocks)
    ]
    rows = len(quantities)
    figure = new_figure(PAGE, 0.65 + blocks * (rows * height + 0.42) + 0.12 * sum(lines), notice)
    grid = figure.add_gridspec(blocks * rows, across)
    first: dict[int, Axes] = {}
    for variant, title in enumerate(wrapped):
        block, column = divmod(variant, across)
        for row, quantity in enumerate(quantities):
            place = grid[block * rows + row, column]
            ax = figure.add_subplot(place, sharex=first.get(0), sharey=first.get(row))
            first.setdefault(row, ax)
            draw(ax, variant, row)
            ax.tick_params(labelleft=column == 0, labelbottom=row == rows - 1)
            if row == 0:
                ax.set_title(title, pad=3.0)
            if column == 0:
                ax.set_ylabel(quantity)
            if row == rows - 1 and column == 0:
                ax.set_xlabel("generations", loc="left", labelpad=1.0)
    for ax in first.values():
        ax.xaxis.set_major_locator(MaxNLocator(2, steps=[1, 2, 5, 10]))
    return figure
