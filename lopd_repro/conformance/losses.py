"""Adapters of the loss and statistics entries, by prefix and by reference function."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from lopd_repro.conformance._distillation import opsd, sdft, sdpo, trl_sdft
from lopd_repro.conformance._flat import gather, log_softmax
from lopd_repro.conformance._policy import grpo, skillsd
from lopd_repro.conformance.golden import Comparison, Golden
from lopd_repro.conformance.outcome import Outcome
from lopd_repro.stats import mean_pass_at_k, pass_at_k, passed_all
from lopd_repro.training.losses import (
    aggregate,
    anchor_distance,
    composer_objective,
    reverse_kl_topk_tail,
    weighted_privilege,
    with_tail,
)


def lopd_topk_reverse_kl(entry: dict[str, Any], path: Path) -> Outcome:
    """Top-M + tail reverse KL on the teacher's support."""
    data = Golden(entry, path)
    logits = data.leaf("student_logits")
    teacher = log_softmax(data.tensor("teacher_logits"))
    teacher_top, ids = teacher.topk(entry["settings"]["M"], dim=-1)
    student_top = log_softmax(logits).gather(-1, ids)
    student_top.retain_grad()
    per_token = reverse_kl_topk_tail(student_top, teacher_top)
    row = torch.zeros(per_token.shape[0], dtype=torch.long)
    loss_sum = aggregate(per_token, row, 1, "seq_sum_token_sum_norm", norm=1.0)
    torch.autograd.backward(loss_sum)
    data.check("teacher_topk_indices", ids)
    data.check("teacher_topk_logp", teacher_top)
    data.check("student_topk_logp", student_top)
    data.check("student_with_tail", with_tail(student_top))
    data.check("teacher_with_tail", with_tail(teacher_top))
    data.check("per_token_kl", per_token)
    data.check("loss_sum", loss_sum)
    data.check("n_tokens", per_token.shape[0])
    data.check("loss_token_mean", aggregate(per_token, row, 1, "token_mean"))
    data.check_grad("grad_student_logits_of_sum", logits)
    data.check_grad("grad_student_topk_logp_of_sum", student_top)
    return data.outcome()


def lopd_composer_loss(entry: dict[str, Any], path: Path) -> Outcome:
    """The composer's objective on one trajectory, with the released code's mean anchor."""
    data = Golden(entry, path)
    teacher_logits, latents = data.leaf("teacher_logits"), data.leaf("c_phi")
    support, sampled = data.tensor("support_indices"), data.tensor("sampled_tokens")
    student_top = data.tensor("student_topk_logp")
    # the released code cuts both sides to the shorter one; this project refuses that, so here
    n = min(teacher_logits.shape[0], student_top.shape[0])
    if n < max(teacher_logits.shape[0], student_top.shape[0]):
        data.notes.append("cut to the shorter side, which the training loop refuses")
    row = torch.zeros(n, dtype=torch.long)
    teacher = log_softmax(teacher_logits[:n])
    student = log_softmax(data.tensor("student_logits"))[:n]
    data.value("student_topk_logp", student.gather(-1, support[:n]), student_top[:n])
    student_sampled = data.tensor("student_logp_at_token")[:n]
    data.value("student_logp_at_token", gather(student, sampled[:n]), student_sampled)
    per_token = reverse_kl_topk_tail(student_top[:n], teacher.gather(-1, support[:n]))
    kl = aggregate(per_token, row, 1, "token_mean")
    reward = data.tensor("reward").reshape(1)
    gain = weighted_privilege(gather(teacher, sampled[:n]), student_sampled, reward, row)
    delta = aggregate(gain, row, 1, "seq_mean_token_mean")
    start = data.tensor("c_phi0")
    anchor = anchor_distance(latents.unsqueeze(0), start.unsqueeze(0), "mean").mean()
    loss = composer_objective(
        kl,
        delta,
        anchor,
        beta=data.number("beta"),
        margin=data.number("margin_m"),
        anchor_weight=data.number("anchor_lambda"),
    )
    torch.autograd.backward(loss)
    for name, ours in (("kl", kl), ("delta", delta), ("anchor", anchor), ("loss", loss)):
        data.check(name, ours)
    data.check("n_tokens", n)
    data.check_grad("grad_teacher_logits", teacher_logits)
    data.check_grad("grad_c_phi", latents)
    return data.outcome()


def pass_at_k_cases(entry: dict[str, Any], path: Path) -> Outcome:
    """The estimator, means over problems, and verdicts from recorded codes."""
    check = Comparison(entry)
    beyond = 0
    for case in json.loads(path.read_text()):
        given, recorded = case["input"], case["output"]
        if given["kind"] == "estimator":
            n, c, k = given["n"], given["c"], given["k"]
            beyond += k > n or c > n
            for source in sorted(recorded):
                ours = pass_at_k(n, c, k, beyond="reference")
                check.value(f"{case['name']} {source}", ours, recorded[source])
            continue
        if given["kind"] == "recorded_results":
            problems = [[passed_all(codes) for codes in given["results"]]]
            check.value(case["name"], problems[0], recorded["livecodebench"]["graded_list"])
            counts = [(len(row), sum(row)) for row in problems]
        else:
            counts = [(n, c) for n, c in given["problems"]]
        means = {
            f"pass@{k}": mean_pass_at_k(counts, k)
            for k in given["k_list"]
            if min(n for n, _ in counts) >= k
        }
        for source in sorted(recorded):
            theirs = recorded[source]["pass_at_k"]
            if means.keys() != theirs.keys():
                check.fail(f"{case['name']} {source}: reports {sorted(means)}")
                continue
            check.value(f"{case['name']} {source}", list(means.values()), [*theirs.values()])
            _pass_details(check, case, recorded[source], counts)
    if beyond:
        check.notes.append(f"{beyond} cases with k > n or c > n: the reference's 1.0 is an option")
    return check.outcome()


def _pass_details(
    check: Comparison, case: dict[str, Any], recorded: dict[str, Any], counts: list[tuple[int, int]]
) -> None:
    for key, values in recorded.get("detail", {}).items():
        k = int(key.removeprefix("pass@"))
        ours = [pass_at_k(n, c, k) for n, c in counts]
        check.value(f"{case['name']} {key}", ours, [values[str(i)] for i in range(len(ours))])
    for key, value in recorded.get("raw_also_for_dropped_k", {}).items():
        k = int(key.removeprefix("pass@"))
        estimates = [pass_at_k(n, c, k, beyond="reference") for n, c in counts]
        check.value(f"{case['name']} raw {key}", sum(estimates) / len(estimates), value)


Adapter = Callable[[dict[str, Any], Path], Outcome]

ENTRIES: dict[str, Adapter] = {
    "lopd_topk_rkl": lopd_topk_reverse_kl,
    "lopd_composer_loss": lopd_composer_loss,
    "grpo": grpo,
    "sdpo": sdpo,
    "opsd": opsd,
    "sdft": sdft,
    "trl_sdft": trl_sdft,
    "skillsd": skillsd,
    "pass_at_k": pass_at_k_cases,
}

SOURCES: dict[str, Adapter] = {
    "lopd/loss.py:topk_reverse_kl": lopd_topk_reverse_kl,
    "lopd/worker.py:composer_loss": lopd_composer_loss,
    "core_algos.py:compute_self_distillation_loss": sdpo,
    "dp_actor.py:DataParallelPPOActor._update_teacher": sdpo,
    "opsd_trainer.py:OPSDTrainer": opsd,
    "distil_trainer.py": sdft,
    "sdft_trainer.py:SDFTTrainer": trl_sdft,
    "core_algos.py:compute_grpo_outcome_advantage": grpo,
    "core_algos.py:compute_policy_loss_vanilla": grpo,
    "core_algos.py:agg_loss": grpo,
    "grpo_trainer.py:GRPOTrainer": grpo,
    "skillsd_utils.py:compute_sdl_loss": skillsd,
    "textbook UCB1": skillsd,
    "pass_k_utils": pass_at_k_cases,
}
