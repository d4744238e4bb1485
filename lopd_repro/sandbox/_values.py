"""Return values on their way out of a sandbox: as JSON text that keeps Python's built-in types.

`encode` runs beside the program, `decode` outside. What arrives may have been written by the
program itself, so `decode` accepts anything that has the form and executes nothing: the result
holds built-in types and `Foreign` alone.

    None, bool, str, small int, list     themselves
    {"i": hex}  {"f": hex}  {"c": [f, f]}      int, float, complex
    {"t": [...]}  {"s": [...]}  {"z": [...]}   tuple, set, frozenset
    {"d": [[key, value], ...]}  {"b": hex}     dict, bytes
    {"o": [type, text, value]}                 anything else; value as of its `tolist`, or None
"""

from __future__ import annotations

import json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_DEPTH = 100
_SMALL = 1 << 53
_TEXT = 1000
_SEQUENCES: tuple[tuple[type, str], ...] = ((tuple, "t"), (set, "s"), (frozenset, "z"))


class ValueRefusedError(Exception):
    """The text is no encoded value, or the value cannot be encoded."""


class Foreign:
    """A value of a type that is not built in: its type's name, its repr, its `tolist`."""

    def __init__(self, type_name: str, text: str, value: Any) -> None:
        self.type_name, self.text, self.value = type_name, text, value

    def __repr__(self) -> str:
        return f"Foreign({self.type_name!r}, {self.text!r})"


def encode(value: Any, dumps: Any = json.dumps) -> bytes:
    """JSON bytes of any value. Sub-classes of built-in types count as those types."""
    return bytes(dumps(_encode(value, _DEPTH)).encode())


def _encode(value: Any, depth: int) -> Any:
    if value is None or value is True or value is False:
        return value
    if depth == 0:
        raise ValueRefusedError("the value is nested too deeply")
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        plain = int.__int__(value)
        return plain if -_SMALL < plain < _SMALL else {"i": hex(plain)}
    if isinstance(value, float):
        return {"f": float.hex(value)}
    if isinstance(value, complex):
        return {"c": [float.hex(value.real), float.hex(value.imag)]}
    depth -= 1
    if isinstance(value, list):
        return [_encode(one, depth) for one in list.__iter__(value)]
    for kind, key in _SEQUENCES:
        if isinstance(value, kind):
            return {key: [_encode(one, depth) for one in kind.__iter__(value)]}  # type: ignore[attr-defined]
    if isinstance(value, dict):
        pairs = [[_encode(k, depth), _encode(v, depth)] for k, v in dict.items(value)]
        return {"d": pairs}
    if isinstance(value, (bytes, bytearray)):
        return {"b": bytes(value).hex()}
    name = f"{type(value).__module__}.{type(value).__qualname__}"
    to_list = getattr(value, "tolist", None)
    inner = _encode(to_list(), depth) if callable(to_list) else None
    return {"o": [name, repr(value)[:_TEXT], inner]}


def decode(text: bytes) -> Any:
    """The value of encoded bytes from an untrusted writer. Raises `ValueRefusedError`."""
    try:
        return _decode(json.loads(text), _DEPTH + 2)
    except (ValueError, TypeError, KeyError, RecursionError, OverflowError) as error:
        raise ValueRefusedError(f"no encoded value ({type(error).__name__})") from None


def _decode(item: Any, depth: int) -> Any:
    if depth == 0:
        raise ValueError("nested too deeply")
    if item is None or isinstance(item, (bool, int, str)):
        return item
    depth -= 1
    if isinstance(item, list):
        return [_decode(one, depth) for one in item]
    if not isinstance(item, dict) or len(item) != 1:
        raise ValueError("not an encoded value")
    ((key, inside),) = item.items()
    if key == "i":
        return int(inside, 16)
    if key == "f":
        return float.fromhex(inside)
    if key == "b":
        return bytes.fromhex(inside)
    if key == "c":
        real, imaginary = inside
        return complex(float.fromhex(real), float.fromhex(imaginary))
    if key == "d":
        return {_decode(k, depth): _decode(v, depth) for k, v in inside}
    if key == "o":
        name, text, value = inside
        return Foreign(str(name), str(text), _decode(value, depth))
    for kind, letter in _SEQUENCES:
        if key == letter:
            return kind(_decode(one, depth) for one in inside)
    raise ValueError("not an encoded value")
