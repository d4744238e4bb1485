"""Training checkpoints: everything a resumed run needs, written whole or not at all.

Weights that are held in shards stand in a folder beside the state file, which names it: a state is
there when its file is, and folders that it does not name are left from before.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import torch

from lopd_repro.errors import UserError
from lopd_repro.files import atomic_folder, atomic_write
from lopd_repro.parallel.ranks import ONE, Ranks

STATE_FILE = "state.pt"
_SHARDS = "shards"


def save_state(folder: Path, state: dict[str, Any], ranks: Ranks = ONE) -> None:
    """Replace the run's resumable state by this one; every rank must take part."""
    kept = ""
    if ranks.mesh is not None:
        from lopd_repro.parallel.state import write_shards

        kept = f"{_SHARDS}{state['next_step']:06d}"
        if ranks.first:
            folder.mkdir(parents=True, exist_ok=True)
            shutil.rmtree(folder / kept, ignore_errors=True)
        ranks.wait()
        state = {**write_shards(folder / kept, state), _SHARDS: kept}
    if ranks.first:
        atomic_write(folder / STATE_FILE, lambda file: torch.save(state, file))
        _drop_shards(folder, kept)
    ranks.wait()


def clear_state(folder: Path) -> None:
    """Remove a state that nobody will go on from."""
    (folder / STATE_FILE).unlink(missing_ok=True)
    _drop_shards(folder)


def load_state(folder: Path, identity: dict[str, Any], ranks: Ranks = ONE) -> dict[str, Any] | None:
    """State of an interrupted run, or None when there is none.

    `identity` (settings and digests) must equal the saved one: a state of other settings is
    refused, not continued. How many ranks saved it does not matter.
    """
    file = folder / STATE_FILE
    if not file.exists():
        return None
    state: dict[str, Any] = torch.load(file, map_location="cpu", weights_only=True)
    if state.get("identity") != identity:
        raise UserError(
            f"{file}: it was made with other settings or inputs; remove the folder to start anew"
        )
    shards = state.pop(_SHARDS, None)
    if shards is not None or ranks.mesh is not None:
        from lopd_repro.parallel.state import read_shards

        state = read_shards(None if shards is None else folder / shards, state, ranks)
    return state


def save_model(folder: Path, model: Any, tokenizer: Any, ranks: Ranks = ONE) -> None:
    """Write a model folder in Hugging Face form; it appears complete or not at all.

    Of a model held in shards every rank must ask; the first writes.
    """
    options: dict[str, Any] = {}
    if ranks.mesh is not None:
        from lopd_repro.parallel.sharding import whole_state

        options = {"state_dict": whole_state(model, keep=ranks.first)}
    if ranks.first:
        _write_model(folder, model, tokenizer, options)
    ranks.wait()


def _drop_shards(folder: Path, kept: str = "") -> None:
    for entry in folder.glob(f"{_SHARDS}*"):
        if entry.name != kept:
            shutil.rmtree(entry)


def _write_model(folder: Path, model: Any, tokenizer: Any, options: dict[str, Any]) -> None:
    with atomic_folder(folder) as scratch:
        model.save_pretrained(scratch, **options)
        tokenizer.save_pretrained(scratch)
