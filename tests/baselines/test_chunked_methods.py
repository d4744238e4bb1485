"""Every method's step with the output projection in chunks, against the dense form in float64."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from small import ScriptDomain, codec, end_ids, grouped, make_model, tokenizer
from small_lopd import PROMPTS, lopd_files

from lopd_repro.errors import UserError
from lopd_repro.experience.demonstrations import Demonstration, write_pool
from lopd_repro.experience.skills import Skill, write_skills
from lopd_repro.lopd.method import LOPD
from lopd_repro.models.backbone import Backbone
from lopd_repro.rollout.episodes import Trajectory
from lopd_repro.training import chunked_head
from lopd_repro.training.chunked_scores import ChunkedScores
from lopd_repro.training.method import Batch, Loss, Method, Resources, load_method
from lopd_repro.training.step import PhaseClock, Stepper, StepSettings

BASELINES = Path(__file__).resolve().parents[2] / "baselines"
METHODS: dict[str, type[Method]] = {
    name: load_method(BASELINES / f"{name}.py")
    for name in ("grpo", "sdft", "opsd", "sdpo", "skill_sd", "lopd_text")
} | {"lopd": LOPD}
CASES: list[tuple[str, dict[str, Any]]] = [
    ("grpo", {}),
    ("grpo", {"old_logp": "rollout"}),
    ("sdft", {"skip_tokens": 1}),
    ("sdft", {"alpha": 0.5, "empty_rows": "count"}),
    ("opsd", {}),
    ("opsd", {"temperature": 1.1, "beta": 0.5}),
    ("opsd", {"top_k": 5}),
    ("sdpo", {}),
    ("sdpo", {"support": "teacher", "outside": "renormalise"}),
    ("sdpo", {"top_k": 0, "alpha": 0.0}),
    ("skill_sd", {"weight": 0.5}),
    ("grpo", {"importance_cap": 2.0}),
    ("skill_sd", {"importance_cap": 2.0, "detach_rho": True}),
    ("lopd_text", {}),
    ("lopd", {"beta_start": 0.7}),
    ("lopd", {"beta_start": 0.7, "frozen_composer": True, "loss_averaging": "token_mean"}),
]


def surroundings(folder: Path) -> Resources:
    policy = Backbone(make_model(dtype=torch.float64), tokenizer(), end_ids())
    pool = [Demonstration(t, f"1. do {t}", 1.0, "base") for t in ("t0", "t1")]
    write_pool(folder / "pool.jsonl", pool)
    write_skills(folder / "skills.jsonl", [("t0", Skill("find_order", "-", "1. look"))])
    files = {
        "demonstrations": str(folder / "pool.jsonl"),
        "skills": str(folder / "skills.jsonl"),
        **lopd_files(folder, policy),
    }
    names = ("reference", "demonstration", "sibling")
    texts = {f"{n}_{side}": "\n" for n in names for side in ("before", "after")}
    texts |= {f"skill_{part}": "\n" for part in ("works", "avoid", "workflow", "after", "request")}
    return Resources(policy, codec(), ScriptDomain(), 7, "base", files, {**PROMPTS, **texts})


def episodes(rewards: Sequence[float] = (1.0, 0.25, 1.0, 0.0)) -> list[Trajectory]:
    """A group of three on t0 and one rollout on t5, which has no context of any kind."""
    made = grouped(rewards, "t5")
    for one in made:
        one.raw_logp = [-1.0 if kept else 0.0 for kept in one.supervised]
    return made


def step(
    name: str,
    given: dict[str, Any],
    folder: Path,
    chunk: int,
    temperature: float,
    n: int = 4,
) -> tuple[dict[str, float], dict[str, torch.Tensor], list[Batch]]:
    """Metrics, gradients and batches of one step."""
    given = dict(given)
    cap = given.pop("importance_cap", 0.0)
    method = METHODS[name](given, surroundings(folder))
    moved = [p for group in method.parameter_groups() for p in group.parameters]
    with torch.no_grad():  # away from the cold start, so that the anchor counts
        for parameter in moved:
            parameter.add_(torch.linspace(-0.05, 0.05, parameter.numel()).view(parameter.shape))
    seen: list[Batch] = []
    inner = method.loss

    def watched(batch: Batch) -> Loss:
        seen.append(batch)
        return inner(batch)

    method.loss = watched  # type: ignore[method-assign]
    model = method.resources.backbone.model
    settings = StepSettings(
        clip=1e9, scoring_temperature=temperature, head_chunk_tokens=chunk, importance_cap=cap
    )
    metrics = Stepper(model, method, settings, PhaseClock()).step(episodes()[:n])
    found = {n: p.grad for n, p in model.named_parameters() if p.grad is not None}
    extra = {f"extra {i}": p.grad for i, p in enumerate(moved) if p.grad is not None}
    return metrics, found | extra, seen


@pytest.mark.parametrize(
    ("name", "given"), CASES, ids=[f"{n}-{i}" for i, (n, _) in enumerate(CASES)]
)
def test_a_step_in_chunks_is_the_dense_step(
    name: str, given: dict[str, Any], tmp_path: Path
) -> None:
    temperature = 1.0 if given.get("old_logp") == "rollout" else 0.9
    metrics, gradients, _ = step(name, given, tmp_path, 0, temperature)
    # Tied embeddings: the head's gradient is in this one.
    assert float(gradients["model.embed_tokens.weight"].abs().max()) > 1e-4
    for chunk in (1, 5):
        found, others, seen = step(name, given, tmp_path, chunk, temperature)
        assert all(isinstance(b.student, ChunkedScores) for b in seen)
        assert all(b.teacher is None or isinstance(b.teacher, ChunkedScores) for b in seen)
        assert found.keys() == metrics.keys() and others.keys() == gradients.keys()
        for key, value in metrics.items():
            assert found[key] == pytest.approx(value, rel=1e-6, abs=1e-9), (chunk, key)
        for key, gradient in gradients.items():
            # The models' norms round to float32.
            size = max(float(gradient.abs().max()), 1e-6)
            torch.testing.assert_close(others[key], gradient, rtol=0, atol=2e-6 * size)


@pytest.mark.parametrize(
    ("name", "passes"),
    # Student forward and, unless gradients are made at once, backward; teacher forward. SDFT's
    # divergence passes over both itself.
    [("grpo", 1), ("skill_sd", 2), ("sdpo", 3), ("lopd_text", 3), ("lopd", 3), ("sdft", 0)],
)
def test_a_step_passes_over_the_vocabulary_no_more_than_it_must(
    name: str, passes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []
    inner = chunked_head._log_probs

    def counted(*args: Any) -> Any:
        calls.append(1)
        return inner(*args)

    monkeypatch.setattr(chunked_head, "_log_probs", counted)
    step(name, {}, tmp_path, 1000, 1.0, 3)
    assert len(calls) == passes


def test_a_method_that_asks_for_whole_distributions_is_told_so(tmp_path: Path) -> None:
    class Whole(Method):
        name = "whole"

        def loss(self, batch: Batch) -> Loss:
            return Loss(batch.student.log_probs().sum())

    method = Whole({}, surroundings(tmp_path))
    model = method.resources.backbone.model
    settings = StepSettings(head_chunk_tokens=4)
    with pytest.raises(UserError, match="asks for whole distributions"):
        Stepper(model, method, settings, PhaseClock()).step(episodes())
