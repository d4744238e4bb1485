"""Runs of a method with other settings, for figures and controls: names, labels, settings.

A variant is an entry of `method_settings` with `like: METHOD`. Controls are written there by hand;
a figure's grid is made here from `analyses`: each point is LOPD with one setting changed, and the
value that LOPD itself has is LOPD's own run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lopd_repro.errors import UserError


@dataclass(frozen=True)
class Variant:
    """A method's name, printed label, the method or variant whose settings it starts from, and the
    method at the end of that line, whose file and inputs it shares."""

    name: str
    label: str
    like: str
    root: str


@dataclass(frozen=True)
class Variants:
    """All variants, and per axis the method that stands for each value, as printed."""

    variants: tuple[Variant, ...]
    grids: dict[str, dict[str, str]]

    def names(self) -> list[str]:
        """Method names."""
        return [variant.name for variant in self.variants]

    def of(self, axis: str) -> dict[str, str]:
        """Method by value of one axis; empty if the configuration has no such grid."""
        return self.grids.get(axis, {})


# The configuration's key of an axis: its name and its symbol.
_AXES = {
    "margins": ("margin", "m"),
    "latents": ("latents", "K"),
    "retrieved": ("retrieved", "n"),
}


def expand(config: dict[str, Any]) -> Variants:
    """The variants that a configuration asks for; a grid's settings join `method_settings`."""
    analyses, written = config.get("analyses") or {}, config["method_settings"]
    if analyses and analyses["backbone"] not in config["backbones"]:
        allowed = ", ".join(config["backbones"])
        raise UserError(
            f"analyses.backbone: found {analyses['backbone']!r}, allowed: one of {allowed}"
        )
    found = [
        Variant(
            name,
            written[name].get("label", f"{written[name]['like']}, {name}"),
            like,
            _root(written, name),
        )
        for name in config["controls"]
        if (like := (written.get(name) or {}).get("like"))
    ]
    grids = {}
    for key, (axis, symbol) in _AXES.items():
        methods = {}
        for value in analyses.get(key, []):
            text = f"{value:g}"
            if value == _own_value(config, axis):
                methods[text] = "lopd"
                continue
            name = f"lopd_{axis}_{text}"
            if name in written:
                raise UserError(f"method_settings.{name}: this name belongs to analyses.{key}")
            methods[text] = name
            written[name] = {"like": "lopd", **_change(axis, value)}
            found.append(Variant(name, f"LOPD, {symbol} = {text}", "lopd", "lopd"))
        if methods:
            grids[axis] = methods
    return Variants(tuple(found), grids)


def _root(written: Mapping[str, Any], name: str) -> str:
    seen = [name]
    while like := (written.get(seen[-1]) or {}).get("like"):
        if like in seen or like not in written:
            known = ", ".join(sorted(written))
            raise UserError(
                f"method_settings.{seen[-1]}.like: found {like!r}, allowed: one of {known}"
            )
        seen.append(like)
    return seen[-1]


def _own_value(config: Mapping[str, Any], axis: str) -> Any:
    own = config["method_settings"].get("lopd") or {}
    if axis == "latents":
        return own.get("composer", {}).get("n_latents", config["composer"]["n_latents"])
    if axis == "margin":
        return own.get("margin", 0.05)
    return own.get("n_retrieved", 3)


def _change(axis: str, value: Any) -> dict[str, Any]:
    if axis == "latents":
        return {"composer": {"n_latents": value}}
    return {{"margin": "margin", "retrieved": "n_retrieved"}[axis]: value}
