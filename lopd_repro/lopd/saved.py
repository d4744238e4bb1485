"""Shape of a saved composer, kept beside its weights."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from lopd_repro.files import json_text, read_json, write_bytes, write_json
from lopd_repro.lopd.composer import Composer, ComposerSettings
from lopd_repro.parallel.ranks import ONE, Ranks


def save_composer(composer: Composer, weights: Path, ranks: Ranks = ONE) -> None:
    """Write weights (`.safetensors`) and shape (`.json` of the same name).

    Of a composer in shards every rank must ask; the first writes.
    """
    data = composer.dump()
    if ranks.first:
        write_json(weights.with_suffix(".json"), asdict(composer.settings))
        write_bytes(weights, data)


def composer_files(composer: Composer) -> dict[str, bytes]:
    """Content of `composer.safetensors` and `composer.json`, as `save_composer` writes them."""
    return {
        "composer.safetensors": composer.dump(),
        "composer.json": json_text(asdict(composer.settings)).encode(),
    }


def composer_settings(weights: Path | str) -> ComposerSettings:
    """Shape of the composer whose weights are at `weights`."""
    return ComposerSettings(**read_json(Path(weights).with_suffix(".json")))
