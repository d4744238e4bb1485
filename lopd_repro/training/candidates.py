"""Weights of every validated step of a run, as model folders `step<6 digits>`.

They are written to the run's state folder as they arise and appear in the run folder, all
together, at its end: a resumed run has those of an uninterrupted one, and a repeated run leaves
none of an earlier one behind. They serve to show what other choices would have given; nothing is
chosen by them.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from lopd_repro.errors import UserError
from lopd_repro.files import atomic_folder, link_or_copy
from lopd_repro.parallel.ranks import ONE, Ranks
from lopd_repro.training.checkpoint import save_model

FOLDER = "candidates"
_NAME = re.compile(r"step(\d{6})")


class Candidates:
    """The candidates of a run in progress, under `state`/candidates."""

    def __init__(self, state: Path, ranks: Ranks = ONE) -> None:
        self.folder = state / FOLDER
        self._ranks = ranks

    def begin(self, steps: Iterable[int] = ()) -> None:
        """Keep the candidates of these steps, which a resumed run has behind it, and no others."""
        kept = {step_folder(step) for step in steps}
        if self.folder.is_dir() and self._ranks.first:
            for entry in self.folder.iterdir():
                if entry.name not in kept:
                    shutil.rmtree(entry)
        for name in sorted(kept):
            if not (self.folder / name).is_dir():
                raise UserError(
                    f"{self.folder / name}: missing, so that the run cannot be resumed with all "
                    "its candidates; remove the state folder to start anew"
                )

    def add(self, step: int, model: Any, tokenizer: Any) -> None:
        """Write the step's weights; they appear complete or not at all. Every rank must ask."""
        save_model(self.folder / step_folder(step), model, tokenizer, self._ranks)

    def publish(self, out: Path) -> None:
        """Put all of them into `out`/candidates, in place of what is there.

        Nothing is taken from the state folder, since this run may still be resumed: call `begin`
        without steps once its result is whole.
        """
        with atomic_folder(out / FOLDER) as target:
            if self.folder.is_dir():
                shutil.copytree(self.folder, target, copy_function=link_or_copy, dirs_exist_ok=True)


def step_folder(step: int) -> str:
    """Name of a step's folder."""
    return f"step{step:06d}"


def candidate_folders(folder: Path) -> dict[int, Path]:
    """Model folders of a run's candidates by step, in order of steps; none is a `UserError`."""
    found = {}
    for entry in sorted(folder.iterdir()) if folder.is_dir() else []:
        match = _NAME.fullmatch(entry.name)
        if match:
            found[int(match[1])] = entry
    if not found:
        raise UserError(
            f"{folder}: no candidates (step000010 and so on); the run must have been trained with "
            "train.keep_candidates: true"
        )
    return found
