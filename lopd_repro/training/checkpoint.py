"""Training checkpoints: everything a resumed run needs, written whole or not at all."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import torch

from lopd_repro.errors import UserError
from lopd_repro.files import atomic_write

STATE_FILE = "state.pt"


def save_state(folder: Path, state: dict[str, Any]) -> None:
    """Replace the run's resumable state by this one."""
    atomic_write(folder / STATE_FILE, lambda file: torch.save(state, file))


def load_state(folder: Path, identity: dict[str, Any]) -> dict[str, Any] | None:
    """State of an interrupted run, or None when there is none.

    `identity` (settings and digests) must equal the saved one: a state of other settings is
    refused, not continued.
    """
    file = folder / STATE_FILE
    if not file.exists():
        return None
    state: dict[str, Any] = torch.load(file, map_location="cpu", weights_only=True)
    if state.get("identity") != identity:
        raise UserError(
            f"{file}: it was made with other settings or inputs; remove the folder to start anew"
        )
    return state


def save_model(folder: Path, model: Any, tokenizer: Any) -> None:
    """Write a model folder in Hugging Face form; it appears complete or not at all."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
    try:
        model.save_pretrained(scratch)
        tokenizer.save_pretrained(scratch)
        scratch.chmod(0o755)
        if folder.exists():
            shutil.rmtree(folder)
        scratch.replace(folder)
    except BaseException:
        shutil.rmtree(scratch, ignore_errors=True)
        raise
