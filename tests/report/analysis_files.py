"""Run folders and evaluation rows of analyses, small, and the settings that name them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lopd_repro.files import write_json, write_jsonl
from lopd_repro.report.candidates import candidates_file
from lopd_repro.report.runs import run_folder
from lopd_repro.report.scores import evaluation_file

BACKBONE = "small"
LABELS = {
    "vanilla": "Vanilla",
    "grpo": "GRPO",
    "skill_sd": "Skill-SD",
    "lopd": "LOPD",
    "lopd_shuffled": "LOPD, shuffled",
}


def settings(**changes: Any) -> dict[str, Any]:
    """Two seeds, LOPD and two rivals, no grid."""
    return {
        "scale": "test",
        "notice": "Made up.",
        "preset": "paper",
        "domain": "tool_use",
        "backbone": BACKBONE,
        "backbone_label": "small model",
        "paper_backbone": "Qwen3-4B",
        "seeds": [0, 1],
        "labels": LABELS,
        "methods": ["vanilla", "grpo", "skill_sd", "lopd"],
        "controls": [],
        "figure3": {"margin": {}, "frozen": None},
        "figure4": {"methods": []},
        "figure5": {"latents": {}, "retrieved": {}},
        **changes,
    }


def as_option(values: Mapping[str, Any]) -> str:
    """Settings as the command line takes them."""
    return json.dumps(values)


def put_run(
    root: Path,
    method: str,
    seed: int,
    validation: Mapping[int, float],
    train: Sequence[Mapping[str, Any]] = ({},),
    generations: int = 32,
    selected: int | None = None,
    inputs: Mapping[str, Any] | None = None,
    **method_settings: Any,
) -> Path:
    """A run: validation rewards by step, training rows, `generations` a step."""
    folder = run_folder(root, "tool_use", BACKBONE, method, seed)
    trained = [
        {"kind": "train", "step": i + 1, "generations": (i + 1) * generations, **row}
        for i, row in enumerate(train)
    ]
    validated = [
        {
            "kind": "validation",
            "step": step,
            "generations": step * generations,
            "reward_mean": reward,
        }
        for step, reward in validation.items()
    ]
    write_jsonl(folder / "metrics.jsonl", [*validated, *trained])
    steps = {step: reward for step, reward in validation.items() if step}
    best = max(steps, key=lambda step: (steps[step], -step)) if steps else 0
    write_json(
        folder / "selected.json",
        {
            "rule": "highest, earliest",
            "selected_step": best if selected is None else selected,
            "validation_scores": {str(step): reward for step, reward in validation.items()},
        },
    )
    write_json(
        folder / "manifest.json",
        {"method": method, "method_settings": method_settings, "inputs": dict(inputs or {})},
    )
    return folder


def put_test(root: Path, method: str, seed: int, scores: Mapping[str, float]) -> None:
    """Test rows of a run, one repeat a task."""
    rows = [
        {"task_id": task, "repeat": 0, "score": score, "status": "ok"}
        for task, score in scores.items()
    ]
    path = evaluation_file(root, "envscaler", "tool_use", BACKBONE, method, seed)
    write_jsonl(path, rows, expected=len(rows), data="made up", scorer="by hand")


def put_candidates(
    root: Path, method: str, seed: int, scores: Mapping[int, Mapping[str, float]]
) -> Path:
    """Test rows of every validated step."""
    rows = [
        {"step": step, "task_id": task, "repeat": 0, "score": score, "status": "ok"}
        for step, tasks in scores.items()
        for task, score in tasks.items()
    ]
    path = candidates_file(root, "tool_use", BACKBONE, method, seed)
    write_jsonl(path, rows, expected=len(rows), data="made up", scorer="by hand")
    return path
