"""LOPD's experiences as text: what the teacher reads, and the loss against float64."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from small_lopd import GROUPS, RETRIEVED, bank, experience
from test_baseline_methods import (
    BASELINES,
    TEXTS,
    episodes,
    head_with,
    per_token,
    stepper,
    surroundings,
)

from lopd_repro.errors import UserError
from lopd_repro.experience.bank import write_bank
from lopd_repro.files import write_json
from lopd_repro.models.backbone import copy_model
from lopd_repro.rollout.heads import ContextOverflowError, TextContext
from lopd_repro.training.method import Method, Resources, load_method

LOPD_TEXT: Any = load_method(BASELINES / "lopd_text.py")


def given(folder: Path) -> Resources:
    write_bank(folder / "bank.jsonl", bank())
    write_json(folder / "retrieved.json", {"train": RETRIEVED, "groups": GROUPS})
    made = surroundings(folder)
    made.files = {
        "bank": str(folder / "bank.jsonl"),
        "retrieved": str(folder / "retrieved.json"),
    }
    return made


def method(folder: Path, **settings: Any) -> Method:
    made: Method = LOPD_TEXT(settings, given(folder))
    return made


def text(*traces: str) -> str:
    return "".join(f"{TEXTS['reference_before']}{t}{TEXTS['reference_after']}" for t in traces)


def shown(chosen: Method) -> list[str | None]:
    """What the teacher reads for the rollouts of t0 (three) and t2."""
    own = episodes()
    chosen.prepare(own)
    contexts = chosen.contexts(own)
    assert all(c is None or isinstance(c, TextContext) for c in contexts)
    return [c.text if isinstance(c, TextContext) else None for c in contexts]


def test_the_teacher_reads_the_traces_best_first(tmp_path: Path) -> None:
    # bank(): trace of t_i is "{i + 1}. do " and i times "more "; t0 retrieved t1 and t2.
    both = text("2. do more ", "3. do more more ")
    assert shown(method(tmp_path))[0] == both
    assert shown(method(tmp_path, n_retrieved=1))[:2] == [text("2. do more ")] * 2
    assert shown(method(tmp_path, n_retrieved=1))[3] == text("4. do more more more ")


@pytest.mark.parametrize("averaging", ["trajectory_mean", "token_mean"])
@pytest.mark.parametrize("micro_batch", [1, 3, 8])
def test_the_loss(tmp_path: Path, micro_batch: int, averaging: str) -> None:
    """KL(student || teacher) on the teacher's top 5 and one bucket for the rest (eq. 9-10)."""

    def measure(ours: torch.Tensor, theirs: torch.Tensor) -> torch.Tensor:
        ids = theirs.topk(5, dim=-1).indices
        p, q = ours.gather(-1, ids).exp(), theirs.gather(-1, ids).exp()
        p_rest, q_rest = 1 - p.sum(-1), 1 - q.sum(-1)
        return (p * (p / q).log()).sum(-1) + p_rest * (p_rest / q_rest).log()

    own = episodes()
    heads = [head_with(text("2. do more "), "end_of_first_user")] * 3
    heads.append(head_with(text("4. do more more more "), "end_of_first_user", "t2"))
    values = per_token(list(zip(own, heads, strict=True)), measure)
    expected = torch.stack([v.mean() for v in values]).mean()
    if averaging == "token_mean":
        expected = torch.cat(values).mean()
    chosen = method(tmp_path, top_m=5, n_retrieved=1, loss_averaging=averaging)
    metrics = stepper(chosen, micro_batch=micro_batch).step(own)
    assert metrics["loss"] == pytest.approx(float(expected), rel=1e-4)
    assert metrics["divergence"] == pytest.approx(metrics["loss"], rel=1e-6)
    assert 0 < metrics["support_mass"] < 1 and metrics["with_context"] == 1.0
    assert "pairing_overlap" not in metrics


def test_the_teacher_stays_and_the_policy_moves(tmp_path: Path) -> None:
    chosen = method(tmp_path)
    model = chosen.resources.backbone.model
    start = copy_model(model).state_dict()
    taught = stepper(chosen, lr=1e-2)
    taught.step(episodes())
    taught.step(episodes())
    assert not all(torch.equal(v, start[k]) for k, v in model.state_dict().items())
    teacher = taught.teacher.model.state_dict()
    assert all(torch.equal(v, start[k]) for k, v in teacher.items())
    assert chosen.parameter_groups() == [] and not chosen.teacher.needs_grad


def test_a_task_without_experiences_gives_no_loss(tmp_path: Path) -> None:
    own = episodes()
    own[3].task_id = "t5"
    chosen = method(tmp_path)
    metrics = stepper(chosen).step(own)
    assert metrics["with_context"] == 0.75
    assert metrics["distilled_tokens"] == sum(t.n_sampled for t in own[:3])
    alone = stepper(method(tmp_path)).step(episodes()[:3])
    assert metrics["loss"] == pytest.approx(alone["loss"], rel=1e-5)


@pytest.mark.parametrize("pairing", ["shuffled", "unrelated"])
def test_other_experiences_by_pairing(tmp_path: Path, pairing: str) -> None:
    made = given(tmp_path)
    retrieved = {"t0": ["t2#1"], "t1": ["t3#1"], "t2": ["t0#1"], "t3": ["t1#1"]}
    write_json(tmp_path / "retrieved.json", {"train": retrieved, "groups": GROUPS})
    chosen = LOPD_TEXT({"pairing": pairing, "n_retrieved": 1}, made)
    own = episodes()
    metrics = stepper(chosen).step(own)
    assert metrics["pairing_overlap"] == 0.0 and metrics["with_context"] == 1.0
    # t0 and t2 retrieved one another, so that what they are given is of t1 or t3.
    others = {text("2. do more "), text("4. do more more more ")}
    assert set(shown(chosen)) <= others


def test_what_is_refused(tmp_path: Path) -> None:
    longest = max(len(t.head) + len(t.tail) for t in episodes())
    with pytest.raises(ContextOverflowError, match=r"methods\.lopd_text: task t0"):
        stepper(method(tmp_path, context_limit=longest)).step(episodes())
    dropping = method(tmp_path, context_limit=longest, context_overflow="drop")
    assert stepper(dropping).step(episodes())["dropped_contexts"] > 0
    for bad in ({"pairing": "random"}, {"loss_averaging": "sum"}, {"place": "top"}, {"margin": 1}):
        with pytest.raises(UserError, match=r"methods\.lopd_text"):
            method(tmp_path, **bad)
    for missing in ("bank", "retrieved"):
        made = given(tmp_path)
        del made.files[missing]
        with pytest.raises(UserError, match=f"needs the input file {missing}"):
            LOPD_TEXT({}, made)
    made = given(tmp_path)
    write_bank(tmp_path / "bank.jsonl", [*bank(), experience("validation-1", "1. peek")])
    with pytest.raises(UserError, match="entry 4 is of task validation-1"):
        LOPD_TEXT({}, made)
