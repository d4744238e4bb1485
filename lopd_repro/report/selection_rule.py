"""The rule file: what is chosen, by which validation score, and which of equals is kept."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import yaml

from lopd_repro.errors import UserError
from lopd_repro.report.analysis import GRIDS
from lopd_repro.settings import build
from lopd_repro.stats import first_best
from lopd_repro.stats.optimism import FloatArray, IntArray

CHECKPOINT = "checkpoint"
_EARLIEST = ("earliest",)


@dataclass(frozen=True)
class AxisRule:
    """How one thing is chosen. `ties` also says in which order candidates are looked at."""

    score: str
    ties: str
    one_standard_error: bool = False

    @property
    def text(self) -> str:
        """The rule in words."""
        kept = f"highest {SCORES[self.score]}, the {self.ties} of equals"
        if not self.one_standard_error:
            return kept
        return f"the {self.ties} value within one standard error over seeds of the {kept}"

    def choose(self, validation: FloatArray) -> IntArray:
        """Index of the chosen candidate: `[..., C, S] -> [...]`, C in the order of `ties`."""
        means = validation.mean(axis=-1)
        best = first_best(means)
        if not self.one_standard_error:
            return best
        n_seeds = validation.shape[-1]
        spread = validation.std(axis=-1, ddof=1) if n_seeds > 1 else np.zeros_like(means)
        at = best[..., None]
        limit = np.take_along_axis(means - spread / np.sqrt(n_seeds), at, axis=-1)
        return np.asarray(np.argmax(means >= limit - 1e-9, axis=-1))


SCORES = {
    "validation_reward": "validation reward among the run's validated steps after step 0",
    "selected_validation_reward": (
        "validation reward of the selected checkpoints, mean over training seeds"
    ),
}
"""Scores that may decide, all from the validation split."""


def read_rule(path: Path) -> dict[str, AxisRule]:
    """The rule of every choice that the file names; a choice it does not name is not made."""
    try:
        values = yaml.safe_load(path.read_text())
    except (OSError, ValueError, yaml.YAMLError) as error:
        line = " ".join(str(error).split())
        raise UserError(f"{path}: not a readable YAML file ({line})") from None
    allowed = (CHECKPOINT, *GRIDS)
    if not isinstance(values, dict) or not values:
        raise UserError(f"{path}: found no choice, allowed: {', '.join(allowed)}")
    rules = {}
    for name, entry in values.items():
        if name not in allowed:
            raise UserError(f"{path}: found {name!r}, allowed: {', '.join(allowed)}")
        rules[name] = _axis(build(AxisRule, entry, f"{path}: {name}"), f"{path}: {name}", name)
    return rules


def _axis(rule: AxisRule, where: str, name: str) -> AxisRule:
    # Training keeps the earliest best checkpoint as it goes; another rule would not be what it did.
    score, ties, errors = (
        ("validation_reward", _EARLIEST, (False,))
        if name == CHECKPOINT
        else ("selected_validation_reward", ("smallest", "largest"), (False, True))
    )
    for key, found, allowed in (
        ("score", rule.score, (score,)),
        ("ties", rule.ties, ties),
        ("one_standard_error", rule.one_standard_error, errors),
    ):
        if found not in allowed:
            names = ", ".join(str(a).lower() for a in allowed)
            raise UserError(f"{where}.{key}: found {found!r}, allowed: {names}")
    return rule
