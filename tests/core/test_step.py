from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from small import GRPO, backbone, codec, trajectory
from small_lopd import resources

from lopd_repro.errors import UserError
from lopd_repro.lopd.method import LOPD
from lopd_repro.rollout.domain import Opening
from lopd_repro.rollout.episodes import Trajectory
from lopd_repro.rollout.heads import Context, TextContext, build_head
from lopd_repro.training.losses import aggregate, reverse_kl, reverse_kl_topk_tail
from lopd_repro.training.method import (
    Batch,
    Loss,
    Method,
    Preparation,
    TeacherSpec,
    load_method,
)
from lopd_repro.training.step import PhaseClock, Stepper, StepSettings


class Distil(Method):
    """Reverse KL to a teacher that reads a text at the end of the first user message."""

    name = "distil"
    defaults: ClassVar[dict[str, Any]] = {"text": "", "support": 0, "teacher": "frozen"}

    @property
    def teacher(self) -> TeacherSpec:
        return TeacherSpec(
            self.settings["teacher"], 0.5 if self.settings["teacher"] == "ema" else 0
        )

    def prepare(self, trajectories: Sequence[Trajectory]) -> Preparation:
        return Preparation([t.task_id != "t5" for t in trajectories])

    def contexts(self, trajectories: Sequence[Trajectory]) -> list[Context]:
        text = TextContext(self.settings["text"])
        return [None if t.task_id == "t5" else text for t in trajectories]

    def loss(self, batch: Batch) -> Loss:
        assert batch.teacher is not None
        student, row = batch.student.select(batch.distilled), batch.row[batch.distilled]
        assert len(student) == len(batch.teacher)
        if self.settings["support"]:
            teacher, ids = batch.teacher.topk(self.settings["support"])
            per_token = reverse_kl_topk_tail(student.logp_at(ids), teacher)
        else:
            per_token = reverse_kl(student.log_probs(), batch.teacher.log_probs())
        n = len(batch.trajectories)
        value = aggregate(per_token, row, n, "token_mean", totals=batch.distilled_totals)
        return Loss(value, {"kl": float(value.detach())})


def episodes(rewards: Sequence[float] = (1.0, 0.25, 0.0, 0.75)) -> list[Trajectory]:
    """Two groups of two, different lengths, on tasks t0 and t1."""
    texts = [
        [("ab", True), ("\nok\n", False), ("Task Completed", True)],
        [("c", True)],
        [("de" * 5, True), ("\n", False), ("f", True)],
        [("gh", True)],
    ]
    made = []
    for i, (parts, reward) in enumerate(zip(texts, rewards, strict=True)):
        task = f"t{i // 2}"
        head = build_head(codec(), Opening("be brief", f"task {task}")).head.ids
        made.append(trajectory(task, head, parts, reward))
        made[-1].group = i // 2
    return made


def stepper(method: Method, **settings: Any) -> Stepper:
    model = method.resources.backbone.model
    return Stepper(model, method, StepSettings(**{"clip": 1e9, **settings}), PhaseClock())


def gradients(model: Any) -> dict[str, torch.Tensor]:
    return {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}


def largest(values: dict[str, torch.Tensor]) -> float:
    return max(float(v.abs().max()) for v in values.values())


def snapshot(model: Any) -> dict[str, torch.Tensor]:
    return {k: v.detach().clone() for k, v in model.state_dict().items()}


def equal(left: dict[str, torch.Tensor], right: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(left[k], right[k]) for k in left)


@pytest.mark.parametrize("kind", ["frozen", "ema", "current"])
@pytest.mark.parametrize("support", [0, 20])
def test_equal_contexts_and_weights_give_no_loss_and_no_gradient(kind: str, support: int) -> None:
    same = Distil({"text": "", "support": support, "teacher": kind}, resources())
    metrics = stepper(same).step(episodes())
    assert abs(metrics["loss"]) < 1e-6
    assert largest(gradients(same.resources.backbone.model)) < 1e-5
    other = Distil({"text": " tea", "support": support, "teacher": kind}, resources())
    assert stepper(other).step(episodes())["loss"] > 1e-3
    assert largest(gradients(other.resources.backbone.model)) > 1e-3


def test_only_trajectories_with_a_context_are_distilled() -> None:
    both = episodes()
    both[1].task_id = "t5"
    method = Distil({"text": " tea"}, resources())
    metrics = stepper(method).step(both)
    assert metrics["tokens"] == sum(t.n_sampled for t in both)
    assert metrics["distilled_tokens"] == metrics["tokens"] - both[1].n_sampled
    without = Distil({"text": " tea"}, resources())
    alone = stepper(without).step([both[0], *both[2:]])
    assert metrics["kl"] == pytest.approx(alone["kl"], rel=1e-5)


def test_a_context_that_was_not_promised_is_an_error() -> None:
    method = Distil({}, resources())
    method.prepare = lambda trajectories: Preparation([False] * len(trajectories))  # type: ignore[method-assign]
    with pytest.raises(RuntimeError, match="differ from prepare's promise"):
        stepper(method).step(episodes())


def test_grpo_gradient_is_the_policy_gradient_of_the_advantages() -> None:
    method = GRPO({"std": "none"}, resources())
    own = episodes()
    metrics = stepper(method).step(own)
    model = backbone().model
    # Advantages by hand: group means 0.625 and 0.375.
    advantages, n = [0.375, -0.375, -0.375, 0.375], sum(t.n_sampled for t in own)
    total = torch.zeros(())
    for one, advantage in zip(own, advantages, strict=True):
        ids = torch.tensor([[*one.head, *one.tail]])
        table = model(input_ids=ids).logits[0].log_softmax(-1)
        start = len(one.head)
        for j, kept in enumerate(one.supervised):
            if kept:
                total = total - advantage * table[start + j - 1, one.tail[j]] / n
    torch.autograd.backward(total)
    expected = gradients(model)
    for name, value in gradients(method.resources.backbone.model).items():
        torch.testing.assert_close(value, expected[name], atol=1e-5, rtol=1e-3)
    norm = math.sqrt(sum(float(g.square().sum()) for g in expected.values()))
    assert metrics["grad_norm"] == pytest.approx(norm, rel=1e-4)
    assert metrics["clip_fraction"] == 0.0 and metrics["constant_groups"] == 0


def method_of(name: str, folder: Path, settings: dict[str, Any] | None = None) -> Method:
    given = settings or {}
    if name == "grpo":
        grpo: Method = GRPO(given, resources())
        return grpo
    if name == "distil":
        return Distil({"text": " tea", **given}, resources())
    lopd = LOPD({"beta_start": 0.7, "composer_clip": 1e9, **given}, resources(folder=folder))
    # Away from the cold start, so that the anchor counts.
    with torch.no_grad():
        for parameter in lopd.parameter_groups()[0].parameters:
            parameter.add_(torch.linspace(-0.05, 0.05, parameter.numel()).view(parameter.shape))
    return lopd


@pytest.mark.parametrize("name", ["grpo", "distil", "lopd"])
@pytest.mark.parametrize("averaging", ["token", "trajectory"])
def test_micro_batches_do_not_change_the_update(name: str, averaging: str, tmp_path: Path) -> None:
    given = {
        "grpo": {"aggregation": {"token": "token_mean", "trajectory": "seq_mean_token_mean"}},
        "lopd": {"loss_averaging": {"token": "token_mean", "trajectory": "trajectory_mean"}},
        "distil": {},
    }[name]
    settings = {key: value[averaging] for key, value in given.items()}
    results = []
    for size in (4, 3, 1):
        method = method_of(name, tmp_path, settings)
        metrics = stepper(method, micro_batch=size).step(episodes())
        found = gradients(method.resources.backbone.model)
        for group in method.parameter_groups():
            found |= {f"{group.name}{i}": p.grad.clone() for i, p in enumerate(group.parameters)}  # type: ignore[union-attr]
        results.append((metrics, found))
    whole, found = results[0]
    assert largest(found) > 1e-3
    for metrics, other in results[1:]:
        assert metrics.keys() == whole.keys()
        for key, number in whole.items():
            if key.startswith("forwarded_"):  # heads are shared within a micro-batch only
                assert metrics[key] >= number
            else:
                assert metrics[key] == pytest.approx(number, rel=1e-4, abs=1e-6), key
        for key, value in found.items():
            torch.testing.assert_close(other[key], value, rtol=1e-3, atol=1e-5 * largest(found))


@pytest.mark.parametrize("name", ["grpo", "distil", "lopd"])
def test_a_step_without_a_supervised_token_is_a_counted_no_op(name: str, tmp_path: Path) -> None:
    method = method_of(name, tmp_path, {"teacher": "ema"} if name == "distil" else None)
    own = stepper(method)
    own.step(episodes())
    before = snapshot(method.resources.backbone.model)
    optimisers = str(own.optimisers.state_dict())
    average = {k: v.clone() for k, v in own.teacher.state_dict().items()}
    state = {k: v for k, v in method.state_dict().items() if k == "beta"}
    empty = [trajectory("t0", (1, 2), [("ab", False)], math.nan) for _ in range(3)]
    for batch in (empty, []):
        metrics = own.step(batch)
        assert metrics["empty_batches"] == 1.0 and metrics["loss"] == 0.0 and metrics["tokens"] == 0
    assert equal(before, method.resources.backbone.model.state_dict())
    assert str(own.optimisers.state_dict()) == optimisers
    assert equal(average, own.teacher.state_dict())
    assert {k: v for k, v in method.state_dict().items() if k == "beta"} == state
    assert own.step(episodes())["empty_batches"] == 0.0


@pytest.mark.parametrize("name", ["grpo", "lopd"])
def test_missing_rewards_are_masked_and_counted(name: str, tmp_path: Path) -> None:
    nan = math.nan
    method = method_of(name, tmp_path)
    metrics = stepper(method).step(episodes([nan] * 4))
    assert metrics["missing_rewards"] == 4 and math.isfinite(metrics["loss"])
    found = gradients(method.resources.backbone.model)
    if name == "grpo":
        assert metrics["loss"] == 0.0 and largest(found) == 0.0
    else:
        # No Delta, so no word on the margin; the policy is still distilled.
        assert "delta" not in metrics and method.state_dict()["beta"] == 0.7
        assert largest(found) > 1e-3
    some = stepper(method_of(name, tmp_path)).step(episodes([1.0, nan, 0.0, 1.0]))
    assert some["missing_rewards"] == 1 and math.isfinite(some["loss"])


def test_delta_is_the_mean_over_scored_trajectories(tmp_path: Path) -> None:
    scored = [episodes()[0], episodes()[2]]
    unscored = episodes()[1]
    unscored.reward = math.nan
    alone = stepper(method_of("lopd", tmp_path)).step(scored)
    for size in (3, 1):
        mixed = stepper(method_of("lopd", tmp_path), micro_batch=size).step(
            [scored[0], unscored, scored[1]]
        )
        assert mixed["delta"] == pytest.approx(alone["delta"], rel=1e-5)
        assert mixed["delta_token_mean"] == pytest.approx(alone["delta_token_mean"], rel=1e-5)


def test_a_loss_that_is_not_finite_stops_the_run() -> None:
    method = Distil({}, resources())
    own = stepper(method)
    with torch.no_grad():
        method.resources.backbone.model.model.norm.weight.fill_(math.nan)
    with pytest.raises(FloatingPointError, match="the loss is nan"):
        own.step(episodes())


def test_clip_and_warm_up() -> None:
    method = GRPO({}, resources())
    own = stepper(method, clip=1e-3, lr=0.1, warmup_steps=4)
    rates = []
    for _ in range(5):
        metrics = own.step(episodes())
        rates.append(own.optimisers.policy.param_groups[0]["lr"])
        found = gradients(method.resources.backbone.model)
        norm = math.sqrt(sum(float(g.square().sum()) for g in found.values()))
        assert norm == pytest.approx(1e-3, rel=1e-3) and metrics["grad_norm"] > 1e-3
    assert rates == pytest.approx([0.025, 0.05, 0.075, 0.1, 0.1])


def test_rollout_log_probs_enter_the_ratio_when_asked(tmp_path: Path) -> None:
    own = episodes()
    for one in own:
        one.raw_logp = [-50.0 if kept else 0.0 for kept in one.supervised]
    metrics = stepper(GRPO({"old_logp": "rollout"}, resources())).step(own)
    # Every ratio is far above 1.2: clipped where the advantage is positive.
    positive = sum(t.n_sampled for t in (own[0], own[3]))
    assert metrics["clip_fraction"] == pytest.approx(positive / metrics["tokens"])
    assert metrics["logp_gap_mean"] > 10
    assert stepper(GRPO({}, resources())).step(own)["clip_fraction"] == 0.0


def test_method_settings_and_files_are_checked(tmp_path: Path) -> None:
    for bad, match in (
        ({"epsilon": 0.2}, r"methods\.grpo\.epsilon: unknown setting"),
        ({"eps_low": "0.2"}, "allowed: a number"),
        ({"eps_low": True}, "allowed: a number"),
        ({"std": 1}, "allowed: a text"),
        ({"std": "both"}, "allowed: group, batch, none"),
    ):
        with pytest.raises(UserError, match=match):
            GRPO(bad, resources())
    with pytest.raises(UserError, match="needs the input file bank"):
        LOPD({}, resources())
    root = Path(__file__).resolve().parents[2]
    assert load_method(root / "baselines" / "grpo.py").name == "grpo"
    with pytest.raises(UserError, match="no such file"):
        load_method(tmp_path / "none.py")
    (tmp_path / "odd.py").write_text("METHOD = 3\n")
    with pytest.raises(UserError, match="METHOD must be"):
        load_method(tmp_path / "odd.py")
