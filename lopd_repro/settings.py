"""Settings: plain mappings from the configuration into typed dataclasses."""

from __future__ import annotations

import dataclasses
import json
import typing
from pathlib import Path
from typing import Any, TypeVar

from lopd_repro.errors import UserError

T = TypeVar("T")


def build(kind: type[T], values: Any, where: str) -> T:
    """A dataclass from a mapping; `where` names the mapping's place in the configuration.

    Unknown keys, missing keys and values of another type are refused. Whole numbers pass as
    floats; nothing else is converted.
    """
    if not isinstance(values, dict):
        raise UserError(f"{where}: found {values!r}, allowed: a mapping")
    fields = {f.name: f for f in dataclasses.fields(kind)}  # type: ignore[arg-type]
    hints = typing.get_type_hints(kind)
    unknown = sorted(set(values) - set(fields))
    if unknown:
        allowed = ", ".join(sorted(fields))
        raise UserError(f"{where}.{unknown[0]}: unknown key, allowed: {allowed}")
    for name, field in fields.items():
        required = (
            field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        )
        if required and name not in values:
            raise UserError(f"{where}.{name}: missing")
    return kind(**{name: _check(values[name], hints[name], f"{where}.{name}") for name in values})


def at_most(value: int, limit: int, where: str, limit_where: str) -> None:
    """Refuse a value above another setting's; both are named by their places."""
    if value > limit:
        raise UserError(f"{where}: found {value}, allowed: up to {limit} ({limit_where})")


def _check(value: Any, hint: Any, where: str) -> Any:
    kinds = typing.get_args(hint) if typing.get_origin(hint) is not None else (hint,)
    plain = tuple(k for k in kinds if isinstance(k, type) and k is not type(None))
    if typing.get_origin(hint) in (dict, list, tuple):
        expected = typing.get_origin(hint)
        if expected is tuple and isinstance(value, list):
            return tuple(value)
        if not isinstance(value, expected):
            raise UserError(f"{where}: found {value!r}, allowed: a {expected.__name__}")
        return value
    if value is None and type(None) in kinds:
        return value
    if float in plain and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if plain and (not isinstance(value, plain) or (isinstance(value, bool) and bool not in plain)):
        names = " or ".join(k.__name__ for k in plain)
        raise UserError(f"{where}: found {value!r}, allowed: {names}")
    return value


def read_settings(text: str) -> dict[str, Any]:
    """The `--settings` option: JSON text, or `@FILE` with JSON or YAML."""
    try:
        if text.startswith("@"):
            import yaml

            parsed = yaml.safe_load(Path(text[1:]).read_text())
        else:
            parsed = json.loads(text)
    except (OSError, ValueError) as error:
        raise UserError(f"--settings: cannot be read ({error})") from None
    if not isinstance(parsed, dict):
        raise UserError("--settings: found no mapping, allowed: a JSON object or @FILE")
    return parsed
