"""Small result folders for the figures' tests, made by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from lopd_repro.files import write_json, write_jsonl

SETTINGS: dict[str, Any] = {
    "scale": "test",
    "notice": "Made by hand.",
    "domain": "tool_use",
    "backbone": "small",
    "paper_backbone": "Qwen3-4B",
    "seeds": [0, 1],
    "labels": {
        "lopd": "LOPD",
        "grpo": "GRPO",
        "lopd_margin_0": "LOPD, m = 0",
        "lopd_frozen": "LOPD, frozen composer",
        "lopd_retrieved_1": "LOPD, n = 1",
    },
    "figure3": {"margin": {"0.05": "lopd", "0.0": "lopd_margin_0"}, "frozen": "lopd_frozen"},
    "figure4": {"methods": ["lopd", "grpo"]},
    "figure5": {"latents": {"16": "lopd"}, "retrieved": {"2": "lopd", "1": "lopd_retrieved_1"}},
    "methods": ["grpo", "lopd"],
}
"""Keys that other reports read, such as `methods`, must be passed over."""

PAPER = Path(__file__).parents[2] / "paper_tables"


_CONTROLS = """backbone,metric,label,difference,ci_low,ci_high,verdict
small,envscaler,Vanilla,48.0,45.0,50.8,lopd_higher
small,envscaler,"LOPD, shuffled experiences",0.5,-0.2,1.1,undecided
small,envscaler,"LOPD, frozen composer",-3.0,-4.0,-2.0,control_higher
small,envscaler,"LOPD, self retrieval",,,,incomplete
"""
_DIAGNOSTICS = """backbone,method,label,seed,generations,margin,flag,delta,beta,frac_delta_ge_m,\
kl_q1,kl_q2,kl_q3,kl_q4,kl_success,kl_failure
small,lopd,LOPD,0,32,0.05,,0.06,0.0,0.1,0.4,0.3,0.2,0.1,0.1,0.4
small,lopd,LOPD,0,64,0.05,0,0.05,0.0,0.1,0.4,0.3,0.2,0.1,0.1,
small,lopd,LOPD,1,32,0.05,,0.01,0.5,0.2,0.4,0.3,0.2,0.1,0.1,0.2
small,lopd,LOPD,1,64,0.05,1,0.01,0.9,0.2,0.4,0.3,0.2,0.1,0.1,0.1
small,lopd_margin_0,"LOPD, m = 0",0,32,0.0,,0.01,0.0,0.2,0.4,0.3,0.2,0.1,0.1,0.2
small,lopd_margin_0,"LOPD, m = 0",0,64,0.0,0,0.01,0.0,0.2,0.4,0.3,0.2,0.1,0.1,0.1
"""
TABLES = {"controls": _CONTROLS, "diagnostics": _DIAGNOSTICS, "divergence": _DIAGNOSTICS}


def settings(**changes: Any) -> str:
    return json.dumps({**SETTINGS, **changes})


def put_rows(
    root: Path, benchmark: str, method: str, seed: int, rows: list[dict[str, Any]]
) -> Path:
    path = root / "eval" / benchmark / "tool_use" / "small" / method / f"seed{seed}.jsonl"
    full = [{"repeat": 0, "status": "ok", **row} for row in rows]
    write_jsonl(path, full, expected=len(full), data="by hand", scorer="by hand")
    return path


def put_scores(root: Path, method: str, seed: int, **scores: float) -> Path:
    rows = [{"task_id": task, "score": score} for task, score in scores.items()]
    return put_rows(root, "envscaler", method, seed, rows)


def put_run(
    root: Path, method: str, seed: int, rewards: dict[int, float], selected: int, per_step: int = 32
) -> Path:
    """Validation rewards by step; a step is `per_step` generations."""
    folder = root / "runs" / "tool_use" / "small" / method / f"seed{seed}"
    rows = [
        {"kind": "validation", "step": s, "generations": per_step * s, "reward_mean": r}
        for s, r in rewards.items()
    ]
    write_jsonl(folder / "metrics.jsonl", [{"kind": "train", "step": 1}, *rows])
    scores = {str(step): reward for step, reward in rewards.items()}
    write_json(
        folder / "selected.json",
        {"rule": "best", "selected_step": selected, "validation_scores": scores},
    )
    write_json(folder / "manifest.json", {})
    return folder


def fill_figure3(root: Path) -> None:
    # Test, seed means: LOPD 1.0 and 0.5; m = 0: 0.25 and 0.75; frozen 0.5 and 0.5.
    put_scores(root, "lopd", 0, a=1.0, b=1.0)
    put_scores(root, "lopd", 1, a=1.0, b=0.0)
    put_scores(root, "lopd_margin_0", 0, a=0.5, b=0.0)
    put_scores(root, "lopd_margin_0", 1, a=1.0, b=0.5)
    put_scores(root, "lopd_frozen", 0, a=0.5, b=0.5)
    put_scores(root, "lopd_frozen", 1, a=0.5, b=0.5)
    for method, best in (("lopd", 0.9), ("lopd_margin_0", 0.7), ("lopd_frozen", 0.4)):
        put_run(root, method, 0, {0: 0.3, 10: best, 20: best - 0.1}, selected=10)
        put_run(root, method, 1, {0: 0.3, 10: 0.2, 20: best - 0.2}, selected=20)


def fill_figure4(root: Path) -> None:
    put_run(root, "lopd", 0, {0: 0.3, 10: 0.6, 20: 0.8}, selected=20)
    put_run(root, "lopd", 1, {0: 0.3, 10: 0.8, 20: 0.9}, selected=20)
    put_run(root, "grpo", 0, {0: 0.3, 10: 0.4, 20: 0.5}, selected=20)
    put_run(root, "grpo", 1, {0: 0.3, 10: 0.4}, selected=10)
    for seed, (first, second) in enumerate([(1.0, 0.5), (0.5, 0.5)]):
        rows = [
            {"task_id": task, "score": score, "step": step}
            for step, score in ((10, first), (20, second))
            for task in ("a", "b")
        ]
        put_rows(root, "envscaler_candidates", "lopd", seed, rows)


def fill_figure5(root: Path) -> None:
    for method in ("lopd", "lopd_retrieved_1"):
        for seed in (0, 1):
            put_scores(root, method, seed, a=1.0, b=0.5)
            put_run(root, method, seed, {0: 0.3, 10: 0.6}, selected=10)
            put_rows(
                root,
                "acebench",
                method,
                seed,
                [
                    {"task_id": "s1", "category": "multi_step", "score": 1.0},
                    {"task_id": "s2", "category": "multi_step", "score": 0.0},
                    {"task_id": "t1", "category": "multi_turn", "score": 0.25},
                ],
            )
