from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from small import ScriptDomain, backbone, codec, trajectory
from small_lopd import GROUPS, RETRIEVED, bank, experience, lopd_files, resources
from test_step import episodes, gradients, largest, snapshot, stepper

from lopd_repro.errors import UserError
from lopd_repro.experience.bank import write_bank
from lopd_repro.files import write_json
from lopd_repro.lopd.method import LOPD
from lopd_repro.models.chat import Head
from lopd_repro.rollout.episodes import Trajectory
from lopd_repro.rollout.heads import BuiltHead, build_head
from lopd_repro.training.scoring import sampled_tokens, score

MARGIN, WEIGHT, BETA, M = 0.05, 0.2, 0.7, 20


def lopd(folder: Path, moved: float = 0.0, **settings: Any) -> LOPD:
    method = LOPD({"composer_clip": 1e9, **settings}, resources(folder=folder))
    with torch.no_grad():
        for parameter in composer_parameters(method):
            shift = torch.linspace(-moved, moved, parameter.numel())
            parameter.add_(shift.view(parameter.shape))
    return method


def composer_parameters(method: LOPD) -> list[torch.nn.Parameter]:
    return method._source.composer.parameters()


def tail_kl(student: torch.Tensor, teacher: torch.Tensor) -> torch.Tensor:
    """KL(student || teacher) on the support and a bucket for the rest, from eq. 9."""
    p, q = student.exp(), teacher.exp()
    rest_p, rest_q = 1 - p.sum(-1), 1 - q.sum(-1)
    inside: torch.Tensor = (p * (student - teacher)).sum(-1)
    return inside + rest_p * (rest_p.log() - rest_q.log())


def two_passes(method: LOPD, reduction: str) -> tuple[dict[str, torch.Tensor], list[torch.Tensor]]:
    """The released order: the policy's pass and step, then the composer's on the same support."""
    own, model, coder = episodes(), method.resources.backbone.model, codec()
    tokens, row = sampled_tokens(own)
    counts = torch.bincount(row).double()
    weight = 1.0 / counts[row] / len(own)

    def teacher_log_probs() -> tuple[torch.Tensor, list[torch.Tensor]]:
        contexts = method._source.contexts([t.task_id for t in own])
        heads = [
            build_head(coder, ScriptDomain().opening(t.task_id), c)
            for t, c in zip(own, contexts, strict=True)
        ]
        scored = score(method.teacher_model, heads, own, coder.pad_id)
        return scored.log_probs(), [c.latents for c in contexts if c is not None]

    with torch.no_grad():
        support = teacher_log_probs()[0].topk(M).indices
        teacher_top = teacher_log_probs()[0].gather(-1, support)
    student = score(model, [BuiltHead(Head(t.head)) for t in own], own, coder.pad_id).log_probs()
    student_top = student.gather(-1, support)
    model.zero_grad()
    torch.autograd.backward((tail_kl(student_top, teacher_top) * weight).sum())
    policy_gradients = gradients(model)

    old_top = student_top.detach()
    old_logp = student.detach().gather(-1, tokens[:, None])[:, 0]
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.sub_(0.1)  # whatever the policy's step is, the composer's pass ignores it
    teacher, latents = teacher_log_probs()
    rewards = torch.tensor([t.reward for t in own])
    gap = teacher.gather(-1, tokens[:, None])[:, 0] - old_logp
    delta = ((2 * rewards - 1)[row] * gap * weight).sum()
    with torch.no_grad():
        start = method._start.latents([t.task_id for t in own])
    squares = [(a - b).square() for a, b in zip(latents, start, strict=True) if b is not None]
    if reduction == "sum":
        distances = [s.sum() for s in squares]
    elif reduction == "mean":
        distances = [s.mean() for s in squares]
    else:
        distances = [
            s.mean() / b.square().mean()
            for s, b in zip(squares, start, strict=True)
            if b is not None
        ]
    anchor = torch.stack(distances).mean()
    kl = (tail_kl(old_top, teacher.gather(-1, support)) * weight).sum()
    torch.autograd.backward(kl + BETA * (MARGIN - delta) + WEIGHT * anchor)
    return policy_gradients, [
        p.grad.clone() for p in composer_parameters(method) if p.grad is not None
    ]


@pytest.mark.parametrize("reduction", ["sum", "mean", "relative"])
def test_one_backward_pass_gives_the_gradients_of_the_released_two_passes(
    reduction: str, tmp_path: Path
) -> None:
    settings = {"beta_start": BETA, "anchor_reduction": reduction}
    policy, composer = two_passes(lopd(tmp_path, 0.05, **settings), reduction)
    method = lopd(tmp_path, 0.05, **settings)
    metrics = stepper(method, micro_batch=3).step(episodes())
    found = gradients(method.resources.backbone.model)
    assert found.keys() == policy.keys() and metrics["anchor"] > 0
    for name, value in found.items():
        torch.testing.assert_close(value, policy[name], rtol=1e-3, atol=1e-5 * largest(policy))
    own = [p.grad for p in composer_parameters(method)]
    scale = max(float(g.abs().max()) for g in composer)
    assert len(own) == len(composer) and scale > 1e-3
    for one, other in zip(own, composer, strict=True):
        assert one is not None
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-5 * scale)


def test_the_step_trains_policy_and_composer_and_not_the_teacher(tmp_path: Path) -> None:
    method = lopd(tmp_path)
    teacher = snapshot(method.teacher_model)
    policy = snapshot(method.resources.backbone.model)
    start = {k: v.clone() for k, v in method._start.composer.state_dict().items()}
    composer = {k: v.clone() for k, v in method._source.composer.state_dict().items()}
    own = stepper(method, lr=1e-3)
    assert own.teacher.model is method.teacher_model
    metrics = own.step(episodes())
    moved = {
        name
        for name, value in method.teacher_model.state_dict().items()
        if not torch.equal(value, teacher[name])
    }
    assert moved and all(".lora_" in name and ".composer." in name for name in moved)
    base = [p for n, p in method.teacher_model.named_parameters() if "lora_" not in n]
    assert all(p.grad is None for p in base)
    after = method._source.composer.state_dict()
    assert not any(torch.equal(after[name], value) for name, value in composer.items())
    assert all(torch.equal(v, start[k]) for k, v in method._start.composer.state_dict().items())
    changed = method.resources.backbone.model.state_dict()
    assert not any(torch.equal(changed[k], v) for k, v in policy.items())
    assert metrics["grad_norm_composer"] > 0 and metrics["grad_norm"] > 0


def test_the_anchor_is_zero_at_the_start_only(tmp_path: Path) -> None:
    method = lopd(tmp_path, composer_lr=1e-2)
    own = stepper(method)
    assert own.step(episodes())["anchor"] == 0.0
    assert own.step(episodes())["anchor"] > 0.0


def test_a_frozen_composer_stays(tmp_path: Path) -> None:
    method = lopd(tmp_path, frozen_composer=True)
    before = {k: v.clone() for k, v in method._source.composer.state_dict().items()}
    metrics = stepper(method).step(episodes())
    after = method._source.composer.state_dict()
    assert all(torch.equal(after[k], v) for k, v in before.items())
    assert all(p.grad is None for p in method.teacher_model.parameters())
    assert "grad_norm_composer" not in metrics and method.parameter_groups() == []
    assert largest(gradients(method.resources.backbone.model)) > 1e-3
    assert metrics["anchor"] == 0.0


def test_the_dual_variable_rises_below_the_margin_and_falls_above_it(tmp_path: Path) -> None:
    method = lopd(tmp_path, beta_start=0.1, eta=0.5, margin=0.05)
    # beta + 0.5 * (0.05 - delta), at least 0
    for delta, before, after in (
        (-0.15, 0.1, 0.2),
        (0.05, 0.2, 0.2),
        (0.25, 0.2, 0.1),
        (9, 0.1, 0),
    ):
        assert method.after_step({"delta": delta})["beta"] == pytest.approx(before)
        assert method.beta == pytest.approx(after)
    assert method.after_step({})["beta"] == 0.0 and method.beta == 0.0
    by_token = lopd(tmp_path, dual_delta="token_mean")
    by_token.after_step({"delta": 5.0, "delta_token_mean": -0.95})
    assert by_token.beta == pytest.approx(0.5)


def test_metrics_of_a_step(tmp_path: Path) -> None:
    method = lopd(tmp_path, beta_start=0.4)
    own = episodes()
    metrics = stepper(method).step(own)
    # policy KL + beta * (margin - Delta) + lambda * anchor
    expected = metrics["kl"] + 0.4 * (0.05 - metrics["delta"]) + 0.2 * metrics["anchor"]
    assert metrics["loss"] == pytest.approx(expected, rel=1e-5)
    assert metrics["beta"] == 0.4
    assert 0 < metrics["frac_delta_ge_m"] < 1 and 0 < metrics["support_mass"] <= 1
    n = metrics["distilled_tokens"]
    assert metrics["frac_delta_ge_m"] * n == pytest.approx(round(metrics["frac_delta_ge_m"] * n))
    assert method.beta == pytest.approx(max(0.0, 0.4 + 0.5 * (0.05 - metrics["delta"])))


def test_a_task_without_experiences_is_not_distilled(tmp_path: Path) -> None:
    own = episodes()
    own[1].task_id = "t5"
    method = lopd(tmp_path)
    metrics = stepper(method).step(own)
    assert metrics["distilled_tokens"] == metrics["tokens"] - own[1].n_sampled
    alone = stepper(lopd(tmp_path)).step([own[0], *own[2:]])
    for key in ("kl", "delta", "delta_token_mean", "support_mass"):
        assert metrics[key] == pytest.approx(alone[key], rel=1e-5)


def test_a_step_with_nothing_to_distil_is_a_no_op(tmp_path: Path) -> None:
    method = lopd(tmp_path, beta_start=0.4)
    own = stepper(method)
    own.step(episodes())
    before, beta = snapshot(method.resources.backbone.model), method.beta
    lone = episodes()
    for one in lone:
        one.task_id = "t5"
    metrics = own.step(lone)
    assert metrics["empty_batches"] == 1.0 and metrics["tokens"] > 0
    changed = method.resources.backbone.model.state_dict()
    assert all(torch.equal(changed[k], v) for k, v in before.items()) and method.beta == beta


def test_state_is_saved_and_restored(tmp_path: Path) -> None:
    method = lopd(tmp_path, composer_lr=1e-2)
    stepper(method).step(episodes())
    torch.save(method.state_dict(), tmp_path / "state.pt")
    again = lopd(tmp_path)
    again.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    assert again.beta == method.beta
    left, right = method.state_dict()["composer"], again.state_dict()["composer"]
    assert all(torch.equal(left[k], right[k]) for k in left)


def test_a_bank_with_a_task_outside_the_training_split_is_refused(tmp_path: Path) -> None:
    policy = backbone()
    given = resources(policy)
    given.files = lopd_files(tmp_path, policy)
    write_bank(tmp_path / "bank.jsonl", [*bank(), experience("validation-1", "1. peek")])
    with pytest.raises(UserError, match="entry 4 is of task validation-1"):
        LOPD({}, given)


@pytest.mark.parametrize("pairing", ["shuffled", "unrelated"])
def test_controls_keep_the_number_of_latents(pairing: str, tmp_path: Path) -> None:
    policy = backbone()
    given = resources(policy)
    given.files = lopd_files(tmp_path, policy)
    full = {task: names for task, names in RETRIEVED.items() if len(names) == 2}
    write_json(tmp_path / "retrieved.json", {"train": full, "groups": GROUPS})
    plain = LOPD({"n_retrieved": 2}, given)
    control = LOPD({"n_retrieved": 2, "pairing": pairing}, given)
    for task in full:
        (own,), (other,) = plain._source.latents([task]), control._source.latents([task])
        assert own is not None and other is not None
        assert own.shape == other.shape and not torch.equal(own, other)


def test_random_latents_leave_the_composer_nothing_to_train(tmp_path: Path) -> None:
    method = lopd(tmp_path, latents="random", beta_start=0.3)
    before = {k: v.clone() for k, v in method._source.composer.state_dict().items()}
    assert not method.teacher.needs_grad and method.parameter_groups() == []
    own = stepper(method)
    for _ in range(2):
        metrics = own.step(episodes())
        assert metrics["anchor"] == 0.0 and "grad_norm_composer" not in metrics
        assert largest(gradients(method.resources.backbone.model)) > 1e-3
    after = method._source.composer.state_dict()
    assert all(torch.equal(after[k], v) for k, v in before.items())
    other = stepper(lopd(tmp_path)).step(episodes())
    assert metrics["distilled_tokens"] == other["distilled_tokens"]
    assert metrics["kl"] != pytest.approx(other["kl"], rel=1e-3)


@pytest.mark.parametrize("pairing", ["shuffled", "unrelated"])
def test_a_control_never_encodes_what_its_task_retrieved(pairing: str, tmp_path: Path) -> None:
    """Neither the teacher's latents nor the anchor's: both read the control's pairs alone."""
    policy = backbone()
    given = resources(policy)
    given.files = lopd_files(tmp_path, policy)
    retrieved = {"t0": ["t2#1"], "t1": ["t3#1"], "t2": ["t0#1"], "t3": ["t1#1"]}
    write_json(tmp_path / "retrieved.json", {"train": retrieved, "groups": GROUPS})
    method = LOPD({"n_retrieved": 1, "pairing": pairing}, given)
    seen: list[tuple[str, str]] = []
    for source in (method._start, method._source):
        encode = source.composer.encode
        source.composer.encode = (  # type: ignore[method-assign]
            lambda pairs, encode=encode: seen.extend(pairs) or encode(pairs)  # type: ignore[misc, func-returns-value]
        )
    own = episodes()
    for one, task in zip(own, retrieved, strict=True):
        one.task_id = task
    metrics = stepper(method).step(own)
    trace = {e.experience_id: e.trace for e in bank()}
    true = {(f"task {task}", trace[name]) for task, (name,) in retrieved.items()}
    solutions = {(f"task {e.task_id}", e.trace) for e in bank()}
    assert {task for task, _ in seen} == {f"task {t}" for t in retrieved} and len(seen) >= 8
    assert not set(seen) & true and not set(seen) & solutions
    assert metrics["pairing_overlap"] == 0.0


def test_what_the_settings_refuse(tmp_path: Path) -> None:
    for bad in (
        {"anchor_reduction": "max"},
        {"loss_averaging": "sum"},
        {"dual_delta": "sum"},
        {"pairing": "random"},
        {"latents": "shuffled"},
        {"frozen_composer": 1},
        {"k": 3},
    ):
        with pytest.raises(UserError, match=r"methods\.lopd"):
            lopd(tmp_path, **bad)


def test_anchors_do_not_depend_on_earlier_batches(tmp_path: Path) -> None:
    # Encoded beside other texts, latents differ in the last bits: kept ones would make a resumed
    # run end elsewhere than an uninterrupted one.
    def trajectories(*tasks: str) -> list[Trajectory]:
        return [trajectory(task, (5, 6), [("ab", True)]) for task in tasks]

    made = resources(folder=tmp_path)
    seasoned, fresh = LOPD({}, made), LOPD({}, made)
    seasoned.contexts(trajectories("t0", "t3"))
    seasoned.contexts(trajectories("t0", "t2"))
    fresh.contexts(trajectories("t0", "t2"))
    assert set(seasoned._anchors) == set(fresh._anchors) == {"t0", "t2"}
    for task, latents in fresh._anchors.items():
        assert torch.equal(seasoned._anchors[task], latents)
