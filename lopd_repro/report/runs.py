"""Training runs as the reports read them. A missing run is named, never replaced."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lopd_repro.errors import UserError
from lopd_repro.files import read_json, read_jsonl


@dataclass(frozen=True)
class Validated:
    """One validated step: generations spent until then, mean validation reward in [0, 1]."""

    step: int
    generations: int
    reward: float


@dataclass(frozen=True)
class Run:
    """One run. `scores` are the validation scores that its checkpoint was selected by."""

    folder: Path
    rule: str
    selected_step: int
    scores: dict[int, float]
    metrics: list[dict[str, Any]]
    manifest: dict[str, Any]

    @property
    def trained(self) -> list[dict[str, Any]]:
        """Rows of training steps."""
        return [row for row in self.metrics if row["kind"] == "train"]

    @property
    def validated(self) -> list[Validated]:
        """Validated steps in order, step 0 (the untrained policy) included."""
        found = [
            Validated(row["step"], row["generations"], row["reward_mean"])
            for row in self.metrics
            if row["kind"] == "validation"
        ]
        return sorted(found, key=lambda row: row.step)

    @property
    def setting(self) -> dict[str, Any]:
        """The method's resolved settings."""
        return dict(self.manifest.get("method_settings", {}))


def run_folder(root: Path, domain: str, backbone: str, method: str, seed: int) -> Path:
    """Where a run's files are."""
    return root / "runs" / domain / backbone / method / f"seed{seed}"


def read_run(folder: Path, problems: list[str]) -> Run | None:
    """A run, or None with a line in `problems` if one of its files is absent."""
    files = [folder / name for name in ("selected.json", "metrics.jsonl", "manifest.json")]
    for path in files:
        if not path.is_file():
            line = f"not run: {path} does not exist"
            if line not in problems:
                problems.append(line)
            return None
    selected, metrics, manifest = read_json(files[0]), read_jsonl(files[1]), read_json(files[2])
    try:
        return Run(
            folder,
            str(selected["rule"]),
            int(selected["selected_step"]),
            {int(step): float(s) for step, s in selected["validation_scores"].items()},
            metrics,
            manifest,
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UserError(f"{files[0]}: not a selection of a run ({error!r})") from None
