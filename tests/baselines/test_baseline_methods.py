"""Each method's loss against a float64 recomputation from whole logits, and its bookkeeping."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from small import ScriptDomain, backbone, codec, full_logits, grouped
from small_lopd import PROMPTS, TRAIN

from lopd_repro.errors import UserError
from lopd_repro.experience.demonstrations import Demonstration, write_pool
from lopd_repro.experience.skills import Skill, write_skills
from lopd_repro.models.backbone import copy_model
from lopd_repro.rollout.engine import SamplingParams
from lopd_repro.rollout.episodes import Trajectory
from lopd_repro.rollout.heads import ContextOverflowError
from lopd_repro.rollout.hf_engine import HFEngine
from lopd_repro.training.evaluate import EvaluationPlan
from lopd_repro.training.loop import LoopSettings, RunSeeds, TrainingRun
from lopd_repro.training.method import Method, Resources, load_method
from lopd_repro.training.step import PhaseClock, Stepper, StepSettings
from lopd_repro.training.teacher_check import _clustered_error, check_teacher

BASELINES = Path(__file__).resolve().parents[2] / "baselines"
METHODS: dict[str, Any] = {
    name: load_method(BASELINES / f"{name}.py") for name in ("sdft", "opsd", "sdpo", "skill_sd")
}
TEXTS = {
    "reference_before": "\nPlan: ",
    "reference_after": ".",
    "demonstration_before": "\nShown: ",
    "demonstration_after": "!",
    "sibling_before": "\nSolved: ",
    "sibling_after": "?",
    "skill_works": "\nWorks: ",
    "skill_avoid": "\nAvoid: ",
    "skill_workflow": "\nReference:\n",
    "skill_after": "",
    "skill_request": "",
}
SKILL = Skill("find_order", "-", "1. look")
ENDS = 60


def surroundings(folder: Path, extra_ends: int = 0) -> Resources:
    """Demonstrations for t0 and t1, a skill for t0 and t3."""
    pool = [Demonstration(t, f"1. do {t}", 1.0, "base") for t in ("t0", "t1")]
    write_pool(folder / "pool.jsonl", pool)
    write_skills(folder / "skills.jsonl", [("t0", SKILL), ("t3", SKILL)])
    files = {
        "demonstrations": str(folder / "pool.jsonl"),
        "skills": str(folder / "skills.jsonl"),
    }
    policy = backbone(extra_ends=extra_ends)
    return Resources(
        policy, codec(extra_ends), ScriptDomain(), 7, "base", files, {**PROMPTS, **TEXTS}
    )


def method(name: str, folder: Path, **settings: Any) -> Method:
    made: Method = METHODS[name](settings, surroundings(folder))
    return made


def episodes(rewards: Sequence[float] = (1.0, 0.25, 1.0, 0.0)) -> list[Trajectory]:
    """A group of three on t0 and one rollout on t2."""
    return grouped(rewards, "t2")


def stepper(chosen: Method, **settings: Any) -> Stepper:
    model = chosen.resources.backbone.model
    return Stepper(model, chosen, StepSettings(**{"clip": 1e9, **settings}), PhaseClock())


def table(model: Any, head: Sequence[int], one: Trajectory) -> torch.Tensor:
    """Log-distributions `[n_sampled, vocabulary]` of the supervised tokens, float64."""
    logits = full_logits(model, [*head, *one.tail]).double().log_softmax(-1)
    at = [len(head) - 1 + j for j, kept in enumerate(one.supervised) if kept]
    return logits[at]


def head_with(messages_text: str, place: str, task: str = "t0") -> list[int]:
    """The head with a text appended at a place, spelled out."""
    system, user = "be brief", f"task {task}"
    if place == "end_of_system":
        system += messages_text
    else:
        user += messages_text
    text = (
        f"<|im_start|>system\n{system}<|im_end|>\n<|im_start|>user\n{user}<|im_end|>\n"
        "<|im_start|>assistant\n"
    )
    return codec().encode(text)


Divergence = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def forward(ours: torch.Tensor, theirs: torch.Tensor) -> torch.Tensor:
    """KL(teacher || student) per token."""
    return (theirs.exp() * (theirs - ours)).sum(-1)


def per_token(
    own: Sequence[tuple[Trajectory, list[int]]], measure: Divergence
) -> list[torch.Tensor]:
    model = backbone().model
    return [measure(table(model, t.head, t), table(model, head, t)) for t, head in own]


@pytest.mark.parametrize("micro_batch", [1, 3, 8])
@pytest.mark.parametrize("skip", [0, 2])
def test_sdft_loss(tmp_path: Path, skip: int, micro_batch: int) -> None:
    own = episodes()
    head = head_with("\nShown: 1. do t0!", "end_of_first_user")
    values = per_token([(t, head) for t in own[:3]], forward)
    kept = [v[skip:] for v in values if len(v) > skip]
    expected = sum(float(v.mean()) for v in kept) / len(kept)
    assert (len(kept) < 3) == (skip == 2), "the second trajectory has two tokens"
    chosen = method("sdft", tmp_path, skip_tokens=skip)
    metrics = stepper(chosen, micro_batch=micro_batch).step(own)
    assert metrics["loss"] == pytest.approx(expected, rel=1e-4)
    assert metrics["kept_tokens"] == sum(len(v) for v in kept)
    assert metrics["with_context"] == 0.75
    # Counting trajectories without tokens as zeros: three rows either way.
    counted = method("sdft", tmp_path, skip_tokens=skip, empty_rows="count")
    loss = stepper(counted, micro_batch=micro_batch).step(episodes())["loss"]
    assert loss == pytest.approx(expected * len(kept) / 3, rel=1e-4)


@pytest.mark.parametrize("micro_batch", [1, 8])
@pytest.mark.parametrize("place", ["end_of_system", "end_of_first_user"])
def test_opsd_loss(tmp_path: Path, place: str, micro_batch: int) -> None:
    own = episodes()
    head = head_with("\nPlan: 1. do t0.", place)
    expected = float(torch.cat(per_token([(t, head) for t in own[:3]], forward)).mean())
    metrics = stepper(method("opsd", tmp_path, place=place), micro_batch=micro_batch).step(own)
    assert metrics["loss"] == pytest.approx(expected, rel=1e-4)
    assert "support_mass" not in metrics


def test_opsd_with_the_scripts_settings(tmp_path: Path) -> None:
    """JSD 0.5 at temperature 1.1 on the teacher's top 7, renormalised."""
    own = episodes()
    head = head_with("\nPlan: 1. do t0.", "end_of_system")

    def measure(ours: torch.Tensor, theirs: torch.Tensor) -> torch.Tensor:
        top, ids = theirs.topk(7, dim=-1)
        q = (top / 1.1).softmax(-1)
        p = (ours.gather(-1, ids) / 1.1).softmax(-1)
        m = (p + q) / 2
        return ((p * (p / m).log() + q * (q / m).log()) / 2).sum(-1)

    expected = float(torch.cat(per_token([(t, head) for t in own[:3]], measure)).mean())
    mass = float(
        torch.cat(
            per_token(
                [(t, head) for t in own[:3]], lambda ours, theirs: theirs.exp().topk(7)[0].sum(-1)
            )
        ).mean()
    )
    metrics = stepper(method("opsd", tmp_path, beta=0.5, temperature=1.1, top_k=7)).step(own)
    assert metrics["loss"] == pytest.approx(expected, rel=1e-4)
    assert metrics["support_mass"] == pytest.approx(mass, rel=1e-4)
    with pytest.warns(UserWarning, match="near the ends"):
        stepper(method("opsd", tmp_path, beta=0.01)).step(episodes())


@pytest.mark.parametrize("support", ["student", "teacher"])
def test_sdpo_loss(tmp_path: Path, support: str) -> None:
    """Siblings by hand: 0 sees 2, 1 sees 0, 2 sees 0; the rollout of t2 has none."""
    own = episodes()
    seen = {0: 2, 1: 0, 2: 0}
    pairs = [
        (own[i], head_with(f"\nSolved: 1. step {j}?", "end_of_first_user")) for i, j in seen.items()
    ]

    def measure(ours: torch.Tensor, theirs: torch.Tensor) -> torch.Tensor:
        ids = (ours if support == "student" else theirs).topk(5, dim=-1).indices
        p, q = ours.gather(-1, ids).exp(), theirs.gather(-1, ids).exp()
        p_tail, q_tail = 1 - p.sum(-1), 1 - q.sum(-1)
        return (p * (p / q).log()).sum(-1) + p_tail * (p_tail / q_tail).log()

    expected = float(torch.cat(per_token(pairs, measure)).mean())
    chosen = method("sdpo", tmp_path, top_k=5, support=support, is_clip=0.0)
    metrics = stepper(chosen).step(own)
    assert metrics["loss"] == pytest.approx(expected, rel=1e-3)
    assert metrics["with_sibling"] == metrics["with_context"] == 0.75
    assert 0 < metrics["support_mass_student"] < 1
    assert 0 < metrics["support_mass_teacher"] < 1
    assert metrics["distilled_tokens"] == sum(t.n_sampled for t in own[:3])


def test_sdpo_weighs_tokens_of_an_older_policy(tmp_path: Path) -> None:
    """Sampled at log-probability p each, the weight is min(pS / p, 2)."""
    own = episodes()
    for t in own:
        t.raw_logp = [-2.5 if s else 0.0 for s in t.supervised]
    model, pairs = backbone().model, {0: 2, 1: 0, 2: 0}
    total, count = 0.0, 0
    for i, j in pairs.items():
        t = own[i]
        ours = table(model, t.head, t)
        theirs = table(model, head_with(f"\nSolved: 1. step {j}?", "end_of_first_user"), t)
        ids = torch.tensor([x for x, s in zip(t.tail, t.supervised, strict=True) if s])
        logp = ours.gather(-1, ids.unsqueeze(-1)).squeeze(-1)
        weight = (logp + 2.5).exp().clamp(max=2.0)
        kl = (ours.exp() * (ours - theirs)).sum(-1)
        total, count = total + float((weight * kl).sum()), count + len(ids)
    metrics = stepper(method("sdpo", tmp_path, top_k=0)).step(own)
    assert metrics["loss"] == pytest.approx(total / count, rel=1e-4)


def test_sdpo_without_a_success_changes_nothing(tmp_path: Path) -> None:
    chosen = method("sdpo", tmp_path)
    taught = stepper(chosen)
    model = chosen.resources.backbone.model
    taught.step(episodes())
    before = {k: v.clone() for k, v in model.state_dict().items()}
    average = {k: v.clone() for k, v in taught.teacher.state_dict().items()}
    # One success alone in its group is nobody's sibling but the others'; NaN is no success.
    for rewards in ((0.25, 0.5, math.nan, 1.0), (0.0, 0.0, 0.0, 0.0)):
        metrics = taught.step(episodes(rewards))
        assert metrics["empty_batches"] == 1.0 and metrics["with_sibling"] == 0.0
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    after = taught.teacher.state_dict()
    assert all(torch.equal(v, average[k]) for k, v in after.items())
    metrics = taught.step(episodes((0.25, 1.0, 0.0, 1.0)))
    assert metrics["empty_batches"] == 0.0 and metrics["with_sibling"] == 0.5


def test_the_ema_teachers_follow_at_their_rates(tmp_path: Path) -> None:
    for name, rate in (("sdft", 0.01), ("sdpo", 0.05)):
        chosen = method(name, tmp_path)
        taught = stepper(chosen)
        start = copy_model(chosen.resources.backbone.model).state_dict()
        taught.step(episodes())
        now = chosen.resources.backbone.model.state_dict()
        moved = 0.0
        for key, value in taught.teacher.state_dict().items():
            expected = start[key].double() * (1 - rate) + now[key].double() * rate
            assert torch.allclose(value.double(), expected, atol=1e-7)
            moved = max(moved, float((value - start[key]).abs().max()))
        assert moved > 0


@pytest.mark.parametrize("micro_batch", [1, 8])
def test_skill_sd_loss(tmp_path: Path, micro_batch: int) -> None:
    """At the update the ratio is 1: -A per token, plus weight * (exp(-ell) - 1 + ell)."""
    own, model = episodes(), backbone().model
    # Group of t0: rewards 1, 0.25, 1: mean 0.75, Bessel deviation sqrt(0.375 / 2) = 0.4330.
    advantages = [0.25 / 0.433013, -0.5 / 0.433013, 0.25 / 0.433013, 0.0]
    n = sum(t.n_sampled for t in own)
    policy = -sum(a * t.n_sampled for a, t in zip(advantages, own, strict=True)) / n
    head = head_with("\nWorks: find_order\nAvoid: -\nReference:\n1. look", "end_of_first_user")
    total, count = 0.0, 0
    for t in own[:3]:
        ids = torch.tensor([x for x, s in zip(t.tail, t.supervised, strict=True) if s])
        ours = table(model, t.head, t).gather(-1, ids.unsqueeze(-1))
        theirs = table(model, head, t).gather(-1, ids.unsqueeze(-1))
        ell = ours - theirs
        total, count = total + float(((-ell).exp() - 1 + ell).sum()), count + len(ids)
    metrics = stepper(method("skill_sd", tmp_path, weight=0.5), micro_batch=micro_batch).step(own)
    assert metrics["divergence"] == pytest.approx(total / count, rel=1e-4)
    assert metrics["loss"] == pytest.approx(policy + 0.5 * total / count, rel=1e-4)


def test_skill_sds_teacher_passes_no_gradient(tmp_path: Path) -> None:
    """With rho = 1 at the update the gradient is that of mean(ell * log pS), ell held fixed."""
    own = episodes((0.5, 0.5, 0.5, 0.5))[:3]
    head = head_with("\nWorks: find_order\nAvoid: -\nReference:\n1. look", "end_of_first_user")
    model = backbone().model
    terms = []
    for t in own:
        ids = torch.tensor([x for x, s in zip(t.tail, t.supervised, strict=True) if s])
        theirs = table(model, head, t).gather(-1, ids.unsqueeze(-1)).squeeze(-1)
        logits = model(input_ids=torch.tensor([[*t.head, *t.tail]])).logits[0].log_softmax(-1)
        at = [len(t.head) - 1 + j for j, kept in enumerate(t.supervised) if kept]
        ours = logits[at].gather(-1, ids.unsqueeze(-1)).squeeze(-1)
        terms.append((ours.detach() - theirs) * ours)
    torch.cat(terms).mean().backward()
    chosen = method("skill_sd", tmp_path, weight=1.0)
    metrics = stepper(chosen, lr=0.0, weight_decay=0.0).step(own)
    assert metrics["constant_groups"] == 1.0, "equal rewards: the policy loss has no gradient"
    pairs = zip(model.named_parameters(), chosen.resources.backbone.model.parameters(), strict=True)
    for (name, expected), found in pairs:
        assert torch.allclose(found.grad, expected.grad, rtol=1e-3, atol=1e-5), name


def test_skill_sds_bank_grows_after_the_step(tmp_path: Path) -> None:
    chosen: Any = method("skill_sd", tmp_path)
    metrics = stepper(chosen).step(episodes())
    # t0's skill was used by a group with rewards 1, 0.25, 1; t2 had none.
    used, new = chosen.bank.arms("t0")
    assert used.skill == SKILL and used.pulls == 1 and used.reward_sum == pytest.approx(0.75)
    # Best rollouts 0 and 2 have one turn each: the first is the workflow. It was not used yet.
    assert new.skill == Skill("-", "-", "1. step 0") and new.pulls == 0
    # A failure alone gives a skill too.
    assert [a.skill.workflow for a in chosen.bank.arms("t2")] == ["1. step 3"]
    assert metrics["skills"] == 4.0 and metrics["skills_added"] == 2.0
    assert metrics["with_context"] == 0.75
    metrics = stepper(chosen).step(episodes())
    assert metrics["with_context"] == 1.0 and metrics["skills_added"] == 0.0
    assert new.pulls == 1, "unused skills come first"
    empty: Any = method("skill_sd", tmp_path, start="empty")
    assert stepper(empty).step(episodes())["with_context"] == 0.0
    assert empty.teacher.kind == "current"
    assert method("skill_sd", tmp_path, teacher="frozen").teacher.kind == "frozen"


@pytest.mark.parametrize("name", ["sdft", "opsd", "sdpo", "skill_sd"])
def test_a_context_that_does_not_fit(tmp_path: Path, name: str) -> None:
    own = episodes()
    longest = max(len(t.head) + len(t.tail) for t in own)
    with pytest.raises(ContextOverflowError, match=rf"methods\.{name}: task t0"):
        stepper(method(name, tmp_path, context_limit=longest)).step(own)
    dropping = method(name, tmp_path, context_limit=longest, context_overflow="drop")
    metrics = stepper(dropping).step(episodes())
    room = {"sdft": 3, "opsd": 3, "sdpo": 3, "skill_sd": 3}[name]
    assert 1 <= metrics["dropped_contexts"] <= room
    assert metrics["with_context"] == pytest.approx(0.75 - metrics["dropped_contexts"] / 4)
    with pytest.raises(UserError, match=r"context_overflow: found 'cut'"):
        method(name, tmp_path, context_overflow="cut")


@pytest.mark.parametrize("name", ["sdft", "opsd", "skill_sd"])
def test_a_missing_input_is_named(tmp_path: Path, name: str) -> None:
    given = surroundings(tmp_path)
    given.files = {}
    with pytest.raises(UserError, match=r"needs the input file (demonstrations|skills)"):
        METHODS[name]({}, given)


SAMPLING = SamplingParams(1.2, max_turn_tokens=6, max_tail_tokens=60)


class Stop(Exception):  # noqa: N818
    pass


class Engine(HFEngine):
    """Stops at its n-th run."""

    left = -1

    def run(self, *args: Any) -> None:
        if self.left == 0:
            raise Stop
        self.left -= 1
        super().run(*args)


def build(name: str, folder: Path, stop_at: int = -1) -> TrainingRun:
    """Four steps with two tasks of four rollouts, state after two."""
    folder.mkdir(exist_ok=True)
    given = surroundings(folder, ENDS)
    policy = given.backbone
    engine = Engine(policy.model, policy.eos_ids, given.codec.pad_id, 64)
    engine.left = stop_at
    return TrainingRun(
        policy.model,
        METHODS[name]({"success": 0.5} if name == "sdpo" else {}, given),
        engine,
        TRAIN[:4],
        EvaluationPlan(("t0", "t5"), 1, 9, SAMPLING),
        LoopSettings(4, 8, 4, 2, 2, teacher_check_tasks=3),
        StepSettings(lr=1e-2),
        SAMPLING,
        RunSeeds(1, 2, 3),
        folder / "state",
        {"method": name},
    )


def outcome(run: TrainingRun) -> dict[str, Any]:
    weights = {k: v.tolist() for k, v in run.model.state_dict().items()}
    rows = [{k: v for k, v in row.items() if k != "seconds"} for row in run.metrics]
    return {"weights": weights, "rows": rows, "method": run.method.state_dict()}


@pytest.mark.parametrize("name", ["sdft", "sdpo", "skill_sd"])
def test_a_resumed_run_ends_as_an_uninterrupted_one(name: str, tmp_path: Path) -> None:
    whole = build(name, tmp_path / "whole")
    whole.run()
    expected = outcome(whole)
    teacher = expected["rows"][1]
    assert teacher["kind"] == "teacher" and teacher["rollouts_with_context"] > 0
    # Engine runs: validation, teacher check (2), steps 1 and 2, validation, step 3.
    with pytest.raises(Stop):
        build(name, tmp_path / "stopped", 6).run()
    assert (tmp_path / "stopped" / "state" / "state.pt").exists()
    again = build(name, tmp_path / "stopped")
    again.run()
    assert outcome(again) == expected
    if name == "skill_sd":
        arms = [arm for arms in expected["method"]["bank"].values() for arm in arms]
        assert sum(arm["pulls"] for arm in arms) > 2


def test_the_teacher_check_compares_equal_tasks(tmp_path: Path) -> None:
    given = surroundings(tmp_path, ENDS)
    policy = given.backbone
    engine = HFEngine(policy.model, policy.eos_ids, given.codec.pad_id, 64)
    chosen = METHODS["opsd"]({"place": "end_of_first_user"}, given)
    row = check_teacher(engine, chosen, TRAIN, 6, 2, SAMPLING, 1)
    # Of the six tasks t0 and t1 have a demonstration; two rollouts each.
    assert row["tasks"] == 6 and row["tasks_with_context"] == 2
    assert row["rollouts"] == 12 and row["rollouts_with_context"] == 4
    assert row["gain"] == pytest.approx(row["reward_on"] - row["reward_off"])
    # An empty text is no context: the same random draws give the same episodes.
    given.prompts = {**given.prompts, "reference_before": "", "reference_after": ""}
    pool = [Demonstration("t0", "", 1.0, "base"), Demonstration("t1", "", 1.0, "base")]
    write_pool(tmp_path / "pool.jsonl", pool)
    chosen = METHODS["opsd"]({"place": "end_of_first_user"}, given)
    row = check_teacher(engine, chosen, TRAIN, 6, 2, SAMPLING, 1)
    assert row["gain"] == 0.0 and row["gain_se"] == 0.0
    assert row["reward_off"] == row["reward_on"] > 0


def test_the_teacher_checks_standard_error() -> None:
    # Groups (1, 1) and (0, 0): mean 0.5, group sums of deviations 1 and -1, so
    # sqrt((1 + 1) * 2 / 1) / 4 = 0.5; ungrouped it would be sqrt(4 * 0.25 * 4 / 3) / 4 = 0.289.
    assert _clustered_error([[1.0, 1.0], [0.0, 0.0]]) == pytest.approx(0.5)
    assert _clustered_error([[1.0, 2.0]]) is None
