"""A PNG inside the page, somewhat above the size its resolution gives it, which is for print."""

from __future__ import annotations

import base64
import struct
from pathlib import Path

from lopd_repro.errors import UserError
from lopd_repro.report.page.markup import Html, el

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_CSS_PIXELS_PER_METRE = 96 / 0.0254
_ENLARGED = 1.35


def picture(path: Path, alt: str) -> Html:
    """An `img` element that holds the file's bytes. On a narrow screen it shrinks to its own size,
    and no further."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from None
    width, height = natural_size(data, path)
    encoded = base64.b64encode(data).decode("ascii")
    source = f"data:image/png;base64,{encoded}"
    shown = round(_ENLARGED * width)
    return el(
        "img",
        src=source,
        alt=alt,
        width=shown,
        height=round(_ENLARGED * height),
        style=f"max-width: max(100%, {width}px)",
    )


def natural_size(data: bytes, path: Path) -> tuple[int, int]:
    """Width and height in CSS pixels, from the PNG's header and its resolution (pHYs) if any."""
    if data[:8] != _SIGNATURE or data[12:16] != b"IHDR":
        raise UserError(f"{path}: not a PNG file")
    width, height = struct.unpack(">II", data[16:24])
    place = 8
    while place + 12 <= len(data):
        length = int.from_bytes(data[place : place + 4], "big")
        kind = data[place + 4 : place + 8]
        if kind == b"pHYs":
            across, down, unit = struct.unpack(">IIB", data[place + 8 : place + 17])
            if unit == 1 and across and down:
                width = round(width * _CSS_PIXELS_PER_METRE / across)
                height = round(height * _CSS_PIXELS_PER_METRE / down)
            break
        if kind == b"IDAT":
            break
        place += 12 + length
    return width, height
