"""A configuration from its files, laid over one another and checked as the workflow does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from lopd_repro.errors import UserError

ROOT = Path(__file__).resolve().parents[2]
SCHEMA = ROOT / "config" / "schema.yaml"


def load(files: Sequence[Path]) -> dict[str, Any]:
    """`--configfile A B` of Snakemake: B over A, mappings merged; `UserError` if it does not fit
    the schema."""
    config: dict[str, Any] = {}
    for file in files:
        try:
            values = yaml.safe_load(file.read_text())
        except (OSError, yaml.YAMLError) as error:
            raise UserError(f"{file}: cannot be read ({error})") from None
        if not isinstance(values, dict):
            raise UserError(f"{file}: holds no mapping")
        _update(config, values)
    _check(config, ", ".join(map(str, files)))
    return config


def _check(config: dict[str, Any], where: str) -> None:
    import jsonschema

    if not SCHEMA.is_file():
        raise UserError(f"{SCHEMA}: not there; run this in a checkout of the project")
    try:
        jsonschema.validate(config, yaml.safe_load(SCHEMA.read_text()))
    except jsonschema.ValidationError as error:
        at = "/".join(map(str, error.absolute_path)) or "top level"
        raise UserError(f"{where}: {at}: {error.message.splitlines()[0][:200]}") from None


def _update(below: dict[str, Any], above: Mapping[str, Any]) -> None:
    for key, value in above.items():
        if isinstance(value, Mapping) and isinstance(below.get(key), dict):
            _update(below[key], value)
        else:
            below[key] = value
