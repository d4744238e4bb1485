"""Small trainings on one rank or several, and what they end with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from small import GRPO, ScriptDomain, backbone, codec
from small_lopd import RETRIEVED, TRAIN, bank, lopd_files, make_composer, resources

from lopd_repro.lopd.cold_start import ColdStartSettings, cold_start
from lopd_repro.lopd.latents import Framing, LatentSource
from lopd_repro.lopd.method import LOPD
from lopd_repro.models.backbone import copy_model, freeze, gathered
from lopd_repro.parallel.ranks import ONE, Ranks
from lopd_repro.rollout.divided import CopyEngine
from lopd_repro.rollout.engine import SamplingParams
from lopd_repro.rollout.hf_engine import HFEngine
from lopd_repro.training.evaluate import EvaluationPlan
from lopd_repro.training.hold import hold_frozen, hold_models
from lopd_repro.training.loop import LoopSettings, RunSeeds, TrainingRun
from lopd_repro.training.method import Method, load_method
from lopd_repro.training.step import StepSettings

SDPO: Any = load_method(Path(__file__).resolve().parents[2] / "baselines" / "sdpo.py")
SAMPLING = SamplingParams(1.2, max_turn_tokens=6, max_tail_tokens=40)
ENDS = 60
NAMES = ("lopd", "grpo", "sdpo")
PROMPTS = {"sibling_before": " tea ", "sibling_after": " cup"}
# LOPD: seven micro-batches of one, of which that of t5 has nothing to distil; three of GRPO's and
# SDPO's do not go evenly into two or four ranks. GRPO's backbone has a projection of its own.
KINDS = {"lopd": "qwen3", "grpo": "olmo3", "sdpo": "qwen3"}
STEPS: dict[str, dict[str, Any]] = {
    "lopd": {"micro_batch": 1},
    "grpo": {"micro_batch": 3, "head_chunk_tokens": 5},
    "sdpo": {"micro_batch": 3},
}


def build(
    name: str,
    folder: Path,
    ranks: Ranks = ONE,
    dtype: torch.dtype = torch.float64,
    **step: Any,
) -> TrainingRun:
    """A run of two steps as a new process would build it, with a state after the first.

    In float64: AdamW makes a step of full length of a gradient that is rounding alone, so that in
    float32 two orders of one sum end far apart in a few weights.
    """
    policy = backbone(KINDS[name], extra_ends=ENDS)
    policy.model.to(dtype)
    given = resources(policy)
    given.codec, given.domain = codec(ENDS), ScriptDomain()
    given.prompts |= PROMPTS
    if name == "lopd":
        # Each rank writes the same files: it needs its own, as they are replaced.
        own = folder / f"files{ranks.size}-{ranks.rank}"
        own.mkdir(parents=True, exist_ok=True)
        given.files = lopd_files(own, policy)
        method: Method = LOPD({"composer_lr": 1e-3, "beta_start": 0.3}, given)
    elif name == "sdpo":
        method = SDPO({"success": 0.5, "rate": 0.3}, given)
    else:
        method = GRPO({}, given)
    for module in method.modules():
        module.to(dtype)
    rollouts, group = (7, 1) if name == "lopd" else (8, 4)
    settings = StepSettings(lr=1e-3, warmup_steps=3, **{**STEPS[name], **step})
    twin = copy_model(policy.model)
    hold_models(policy.model, method, settings, ranks)
    sampled = policy.model if ranks.mesh is None else twin
    engine: Any = HFEngine(sampled, policy.eos_ids, given.codec.pad_id, 64)
    return TrainingRun(
        policy.model,
        method,
        engine if ranks.mesh is None else CopyEngine(engine, twin),
        TRAIN,
        EvaluationPlan(("t0", "t5"), 2, 9, SAMPLING),
        LoopSettings(2, rollouts, group, 2, 1, teacher_check_tasks=2 if name == "lopd" else 0),
        settings,
        SAMPLING,
        RunSeeds(1, 2, 3),
        folder,
        {"method": name},
        ranks,
    )


def cold(ranks: Ranks = ONE, **settings: Any) -> dict[str, Any]:
    """Three steps of a cold start on batches of three, and what they end with."""
    model = freeze(copy_model(backbone().model)).to(torch.float64)
    composer = make_composer(model)
    composer.compressor.to(torch.float64)
    own = ColdStartSettings(steps=3, batch=3, lr=1e-3, clip=0.5, **settings)
    hold_frozen(model, [composer.compressor], True, own, ranks)
    entries, domain = bank(), ScriptDomain()
    source = LatentSource(
        composer,
        {e.experience_id: e for e in entries},
        RETRIEVED,
        domain.task_text,
        Framing("<", ">"),
    )
    rows: list[dict[str, float]] = []
    cold_start(source, model, codec(), domain, entries, own, 0, rows.append, ranks)
    return {"rows": rows, "composer": whole(dict(composer.state_dict()))}


def outcome(run: TrainingRun) -> dict[str, Any]:
    """What a run ends with, gathered from all ranks."""
    return {
        "weights": whole(run.model.state_dict()),
        "method": whole(run.method.state_dict()),
        "teacher": whole(run.stepper.teacher.state_dict()),
        "moments": whole(run.stepper.optimisers.state_dict()),
        "metrics": [{k: v for k, v in row.items() if k != "seconds"} for row in run.metrics],
        "selected": run.selection.report()["selected_step"],
    }


def whole(tree: Any) -> Any:
    if isinstance(tree, dict):
        return {key: whole(value) for key, value in tree.items()}
    if isinstance(tree, list):
        return [whole(value) for value in tree]
    return gathered(tree).clone() if isinstance(tree, torch.Tensor) else tree
