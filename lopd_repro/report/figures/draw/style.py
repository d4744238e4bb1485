"""Looks shared by all pictures: sizes for print, colours that survive grey, bytes without dates.

Widths are a journal's: 3.3 in for one column, 7 in for two. No text is below 7 pt at that size.
Series differ by marker and line style as well, and the colours by lightness, so that nothing rests
on colour alone.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import IO, Any, cast

import matplotlib
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from lopd_repro.files import atomic_write

COLUMN, PAGE = 3.3, 7.0
FONT = 7.0
# Black and colours of Okabe and Ito, dark to light.
COLOURS = ("#000000", "#0072B2", "#D55E00", "#56B4E9", "#CC79A7", "#E69F00")
MARKERS = ("o", "s", "^", "D", "v", "P")
DASHES = ("-", (0, (4, 1.5)), (0, (1, 1.2)), (0, (5, 1.5, 1, 1.5)), (0, (8, 2)), (0, (2, 2)))
GREY = "#6b6b6b"

_RC: dict[str, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": FONT,
    "axes.labelsize": FONT,
    "axes.titlesize": FONT,
    "xtick.labelsize": FONT,
    "ytick.labelsize": FONT,
    "legend.fontsize": FONT,
    "legend.frameon": False,
    "legend.handlelength": 2.4,
    "legend.columnspacing": 1.2,
    "legend.labelspacing": 0.3,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "lines.linewidth": 1.0,
    "lines.markersize": 3.8,
    "hatch.linewidth": 0.4,
    "pdf.fonttype": 42,
    "savefig.dpi": 300,
}
_LINE = 1.3 * FONT / 72.0
_MARGIN = 0.03


@contextlib.contextmanager
def styled() -> Iterator[None]:
    """Our style over matplotlib's own defaults, whatever the user's matplotlibrc says."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        # Typed by the names of all of matplotlib's settings, which a mapping of ours is not.
        cast(dict[str, Any], matplotlib.rcParams).update(_RC)
        yield


def new_figure(width: float, height: float, notice: str) -> Figure:
    """An empty figure (inches) with the notice on its face, below what will be drawn."""
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    text = "\n".join(_wrapped(figure, notice, width - 2 * _MARGIN))
    lines = text.count("\n") + 1 if text else 0
    foot = (lines * _LINE + 2 * _MARGIN) / height
    figure.text(
        _MARGIN / width, _MARGIN / height, text, va="bottom", color="#333333", style="italic"
    )
    engine = figure.get_layout_engine()
    assert isinstance(engine, ConstrainedLayoutEngine)
    engine.set(rect=(0.0, foot, 1.0, 1.0 - foot), w_pad=0.03, h_pad=0.03, hspace=0.0, wspace=0.0)
    return figure


def _wrapped(figure: Figure, text: str, width: float) -> list[str]:
    """The text in lines of at most `width` inches."""
    lines: list[str] = []
    for word in text.split():
        longer = f"{lines[-1]} {word}" if lines else word
        probe = figure.text(0, 0, longer, style="italic")
        fits = probe.get_window_extent().width / figure.dpi <= width
        probe.remove()
        if lines and fits:
            lines[-1] = longer
        else:
            lines.append(word)
    return lines


def save(figure: Figure, pdf: Path, png: Path) -> None:
    """Both files; equal figures give equal bytes."""
    for form, path, metadata in (
        ("pdf", pdf, {"CreationDate": None, "ModDate": None}),
        ("png", png, {}),
    ):
        buffer = io.BytesIO()
        figure.savefig(buffer, format=form, metadata=metadata)
        data = buffer.getvalue()
        atomic_write(path, partial(_put, data))


def _put(data: bytes, file: IO[bytes]) -> None:
    file.write(data)
