"""Adapters: SDPO, OPSD, SDFT and TRL's SDFT, their losses and their EMA teachers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lopd_repro.conformance._flat import Flat, flat, gather, log_softmax, verl_aggregate
from lopd_repro.conformance.golden import Golden
from lopd_repro.conformance.outcome import Outcome
from lopd_repro.training.losses import (
    aggregate,
    divergence,
    divergence_terms,
    ema_update,
    entropy,
    importance_weight,
    k3_kl,
    renormalise,
    row_mean,
    score_function_reverse_kl,
    temper,
    with_tail,
)


def sdpo(entry: dict[str, Any], path: Path) -> Outcome:
    """SDPO's self-distillation loss, or its EMA teacher."""
    data = Golden(entry, path)
    settings = entry["settings"]
    if "rate" in settings:
        for part in ("w", "b"):
            _ema(data, f"teacher_{part}0", f"student_{part}", f"teacher_{part}", settings["rate"])
        return data.outcome()
    logits = data.leaf("student_logits")
    tokens = data.tensor("sampled_tokens")
    teacher_logits = data.tensor("teacher_logits")
    if settings["full_logit"]:
        per_token = _student_support(data, logits, teacher_logits, settings)
    else:
        student, teacher = log_softmax(logits), log_softmax(teacher_logits)
        per_token = score_function_reverse_kl(gather(student, tokens), gather(teacher, tokens))
    if settings["is_clip"] is not None:
        old = data.tensor("old_log_probs")
        weight = importance_weight(gather(log_softmax(logits), tokens), old, settings["is_clip"])
        per_token = per_token * weight
    if "rollout_is_weights" in data:
        per_token = per_token * data.tensor("rollout_is_weights")
    data.check("per_token_loss", per_token)
    keep = data.tensor("self_distillation_mask").unsqueeze(-1)
    where = flat(data.tensor("response_mask") * keep)
    count = max(where.row.numel(), 1)
    mode = settings["loss_agg_mode"]
    loss = verl_aggregate(where.take(per_token), where, mode, tokens=count)
    _backward(loss)
    data.check("loss", loss)
    data.check_grad("grad_student_logits", logits)
    return data.outcome()


def _student_support(
    data: Golden, logits: Tensor, teacher_logits: Tensor, settings: dict[str, Any]
) -> Tensor:
    """Divergence over the vocabulary or on the student's top-k, per position."""
    student, teacher = log_softmax(logits), log_softmax(teacher_logits)
    if settings["topk"] is not None:
        ids = student.detach().topk(settings["topk"], dim=-1).indices
        if "student_topk_indices" in data:
            data.check("student_topk_indices", ids)
        finish = with_tail if settings["add_tail"] else renormalise
        student, teacher = finish(student.gather(-1, ids)), finish(teacher.gather(-1, ids))
    return divergence(student, teacher, settings["alpha"])


def opsd(entry: dict[str, Any], path: Path) -> Outcome:
    """OPSD's divergence, its whole loss on a logits table, or its EMA."""
    data = Golden(entry, path)
    settings = entry["settings"]
    if "decay" in settings:
        _opsd_ema(data, settings["decay"])
    elif "thinking_machines" in settings:
        _opsd_compute_loss(data, settings)
    else:
        _opsd_divergence(data, settings)
    return data.outcome()


def _opsd_ema(data: Golden, decay: float) -> None:
    student, recorded = data.tensor("student_w"), data.tensor("ema_w")
    average = student[0]
    steps = [average]
    for weights in student[1:]:
        average = ema_update(average, weights, 1.0 - decay)
        steps.append(average)
    data.value("ema_w", torch.stack(steps), recorded)


def _opsd_pair(
    data: Golden, student: Tensor, teacher: Tensor, settings: dict[str, Any]
) -> tuple[Tensor, Tensor]:
    if settings.get("logits_are_probs"):
        return student.clamp_min(1e-8).log(), teacher.clamp_min(1e-8).log()
    temperature = settings["temperature"]
    if settings["top_k"] is None:
        return temper(student, temperature), temper(teacher, temperature)
    ids = teacher.topk(settings["top_k"], dim=-1).indices
    if "teacher_topk_indices" in data:
        data.check("teacher_topk_indices", ids)
    return (
        renormalise(student.gather(-1, ids), temperature),
        renormalise(teacher.gather(-1, ids), temperature),
    )


def _opsd_divergence(data: Golden, settings: dict[str, Any]) -> None:
    leaf = data.leaf("student")
    student, teacher = _opsd_pair(data, leaf, data.tensor("teacher"), settings)
    labelled = "labels" in data
    where = flat(
        data.tensor("labels") != -100 if labelled else torch.ones(leaf.shape[:2], dtype=torch.bool)
    )
    terms = divergence_terms(where.take(student), where.take(teacher), settings["beta"])
    per_token, reduction = terms.sum(-1), settings["reduction"]
    if reduction == "none":
        loss = terms
    elif reduction == "sum":
        loss = aggregate(per_token, where.row, where.n_rows, "seq_sum_token_sum_norm", norm=1.0)
    elif reduction == "mean":
        loss = _token_mean(per_token, where) / terms.shape[-1]
    elif labelled:
        loss = _token_mean(per_token, where)
    else:
        loss = aggregate(per_token, where.row, where.n_rows, "seq_mean_token_sum")
    _backward(loss.sum())
    data.check("loss", loss)
    data.check_grad("grad_student", leaf)


def _token_mean(per_token: Tensor, where: Flat) -> Tensor:
    return aggregate(per_token, where.row, where.n_rows, "token_mean", empty="nan")


def _opsd_compute_loss(data: Golden, settings: dict[str, Any]) -> None:
    leaf = data.leaf("student_full_logits")
    start, teacher_start = settings["student_prompt_len"], settings["teacher_prompt_len"]
    tail = data.tensor("student_input_ids")[:, start:]
    if not torch.equal(tail, data.tensor("teacher_input_ids")[:, teacher_start:]):
        data.fail("student and teacher completions differ")
    where = flat(data.tensor("labels")[:, start:] != -100)
    student = leaf[:, start - 1 : -1]
    teacher = data.tensor("teacher_full_logits")[:, teacher_start - 1 : -1]
    if settings["thinking_machines"]:
        temperature = settings["temperature"]
        ours = gather(temper(student, temperature), tail)
        theirs = gather(temper(teacher, temperature), tail)
        per_token = score_function_reverse_kl(where.take(ours), where.take(theirs))
    else:
        ours, theirs = _opsd_pair(data, student, teacher, settings)
        per_token = divergence(where.take(ours), where.take(theirs), settings["beta"])
    loss = _token_mean(per_token, where)
    _backward(loss)
    data.check("loss", loss)
    data.check_grad("grad_student_full_logits", leaf)


def sdft(entry: dict[str, Any], path: Path) -> Outcome:
    """SDFT's loss on a logits table, or its EMA teacher."""
    data = Golden(entry, path)
    settings = entry["settings"]
    if "student_full_logits" not in data:
        _ema(data, "ref0", "student", "ref", settings["alpha"])
        return data.outcome()
    leaf = data.leaf("student_full_logits")
    ids, mask = data.tensor("completion_ids"), data.tensor("completion_mask")
    start, teacher_start = settings["student_prompt_len"], settings["teacher_prompt_len"]
    # the option counts completion positions; masked ones among them use it up as well
    mask[:, : settings["num_loss_tokens_to_skip"]] = 0
    where = flat(mask)
    rows = slice(start - 1, start - 1 + ids.shape[1])
    teacher_rows = slice(teacher_start - 1, teacher_start - 1 + ids.shape[1])
    temperature = settings["temperature"]
    student = where.take(temper(leaf[:, rows], temperature))
    teacher = where.take(temper(data.tensor("teacher_full_logits")[:, teacher_rows], temperature))
    per_token = divergence(student, teacher, settings["alpha"])
    if settings["is_ratio"]:
        ratio = where.take(data.tensor("importance_sampling_ratio"))
        per_token = per_token * row_mean(ratio, where.row, where.n_rows)[where.row]
    loss = _sequence_mean(per_token, where) / settings["grad_accum"]
    _backward(loss)
    data.check("loss", loss)
    data.check_grad("grad_student_full_logits", leaf)
    sampled = where.take(ids)
    approximate = k3_kl(gather(student, sampled), gather(teacher, sampled))
    data.check_if_recorded("metric_kl_approx", approximate.mean())
    data.check_if_recorded("metric_entropy", entropy(student).mean())
    return data.outcome()


def trl_sdft(entry: dict[str, Any], path: Path) -> Outcome:
    """TRL's SDFT loss: full vocabulary, student's top-k, or the sampled token."""
    data = Golden(entry, path)
    settings = entry["settings"]
    leaf = data.leaf("student_logits")
    ids, teacher = data.tensor("completion_ids"), data.tensor("teacher_logits")
    sampled = gather(log_softmax(leaf), ids)
    if settings["mode"] == "sampled_token":
        per_token = score_function_reverse_kl(sampled, gather(log_softmax(teacher), ids))
    else:
        per_token = _student_support(data, leaf, teacher, settings)
    data.check("per_token_loss_before_is", per_token)
    old = data.tensor("old_per_token_logps")
    if settings["is_clip"] is not None:
        per_token = per_token * importance_weight(sampled, old, settings["is_clip"])
    where = flat(data.tensor("loss_mask"))
    loss = _sequence_mean(where.take(per_token), where)
    _backward(loss)
    data.check("loss", loss)
    data.check_grad("grad_student_logits", leaf)
    return data.outcome()


def _sequence_mean(per_token: Tensor, where: Flat) -> Tensor:
    return aggregate(per_token, where.row, where.n_rows, "seq_mean_token_mean", empty_rows="count")


def _ema(data: Golden, start: str, student: str, result: str, rate: float) -> None:
    """Compare the average after every recorded step, or after the last."""
    average, recorded = data.tensor(start), data.tensor(result)
    steps = []
    for weights in data.tensor(student):
        average = ema_update(average, weights, rate)
        steps.append(average)
    every = recorded.shape == (len(steps), *average.shape)
    data.value(result, torch.stack(steps) if every else average, recorded)


def _backward(loss: Tensor) -> None:
    torch.autograd.backward(loss)
