"""Adapters: group advantages, clipped policy losses, aggregation, Skill-SD."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lopd_repro.conformance._flat import flat, gather, log_softmax, verl_aggregate
from lopd_repro.conformance.golden import Comparison, Golden
from lopd_repro.conformance.outcome import Outcome
from lopd_repro.stats import ucb1_scores
from lopd_repro.training.advantages import StdMode, group_advantages
from lopd_repro.training.losses import (
    Totals,
    aggregate,
    clip_flags,
    k3_kl,
    log_ratio,
    ppo_clip,
    sampled_reverse_kl,
    sequence_log_ratio,
    token_totals,
)


def grpo(entry: dict[str, Any], path: Path) -> Outcome:
    """Every `grpo_*` file, told apart by what it holds."""
    data = Golden(entry, path)
    settings = entry["settings"]
    if "verl_rewards" in data:
        _advantages(data)
    elif "loss_mat" in data:
        _aggregation(data, settings)
    elif "loss_type" in settings:
        _trl_loss(data, settings)
    else:
        _verl_loss(data, settings)
    return data.outcome()


def _advantages(data: Golden) -> None:
    reward = data.tensor("verl_rewards")
    _, group = np.unique(data.array("verl_group_id"), return_inverse=True)
    ids, mask = torch.from_numpy(group), data.tensor("response_mask")
    # verl's vectorised variant computes in float32 whatever the input
    for name, rewards, floor in (("verl", reward, 0.0), ("verl_vectorized", reward.float(), 1e-6)):
        modes: tuple[tuple[str, StdMode], ...] = (("norm1", "group"), ("norm0", "none"))
        for norm, std in modes:
            ours = group_advantages(
                rewards, ids, std=std, eps=1e-6, singleton="raw", variance_floor=floor
            ).advantage
            scale = floor**0.5 + 1e-6 if std == "group" else 1.0
            ours = ours.unsqueeze(-1) * mask
            _check_advantages(data, f"{name}_adv_{norm}", ours, rewards, ids, scale)
    grouped = data.tensor("rewards_grouped")
    ids = torch.arange(grouped.numel()) // int(data.number("trl_group_size"))
    stds: tuple[StdMode, ...] = ("group", "batch", "none")
    for std in stds:
        ours = group_advantages(grouped, ids, std=std, eps=1e-4).advantage
        _check_advantages(data, f"trl_adv_{std}", ours, grouped, ids, 1e-4)


def _check_advantages(
    data: Golden, name: str, ours: Tensor, rewards: Tensor, ids: Tensor, scale: float
) -> None:
    """Groups without spread are exactly 0 here, in the references rounding noise over `scale`."""
    same = ids.unsqueeze(0) == ids.unsqueeze(1)
    flat_group = (same <= (rewards.unsqueeze(0) == rewards.unsqueeze(1))).all(1)
    constant = flat_group & (same.sum(1) > 1)
    theirs = data.tensor(name)
    data.value(name, ours[~constant], theirs[~constant])
    noise = torch.finfo(rewards.dtype).eps * float(rewards.abs().max()) / scale
    data.value(name, ours[constant], theirs[constant], atol=max(data.atol, noise))


def _aggregation(data: Golden, settings: dict[str, Any]) -> None:
    where = flat(data.tensor("loss_mask"))
    values = where.take(data.tensor("loss_mat"))
    given = {key: int(value) for key, value in re.findall(r"(\w+)=(\d+)", settings["global_args"])}
    for mode in ("token-mean", "seq-mean-token-sum", "seq-mean-token-mean"):
        data.check(mode, verl_aggregate(values, where, mode))
        ours = verl_aggregate(
            values,
            where,
            mode,
            world_size=given["dp_size"],
            tokens=given["batch_num_tokens"],
            rows=given["global_batch_size"],
        )
        data.check(f"{mode}__global", ours)
    mode = "seq-mean-token-sum-norm"
    data.check(mode, verl_aggregate(values, where, mode))
    scaled = verl_aggregate(values, where, mode, norm=given["loss_scale_factor"])
    data.check(f"{mode}__global", scaled)


def _verl_loss(data: Golden, settings: dict[str, Any]) -> None:
    logp = data.leaf("log_prob")
    where = flat(data.tensor("response_mask"))
    ratio = log_ratio(where.take(logp), where.take(data.tensor("old_log_prob")), clamp=20.0)
    advantage = where.take(data.tensor("advantages"))
    low, high, dual = settings["eps_low"], settings["eps_high"], settings["clip_ratio_c"]
    per_token = ppo_clip(ratio, advantage, low, high, dual_clip=dual)
    if "rollout_is_weights" in data:
        per_token = per_token * where.take(data.tensor("rollout_is_weights"))
    batch = settings.get("global_batch_info") or {}
    loss = verl_aggregate(
        per_token,
        where,
        settings["loss_agg_mode"],
        world_size=batch.get("dp_size", 1),
        tokens=batch.get("batch_num_tokens"),
        rows=batch.get("global_batch_size"),
    )
    torch.autograd.backward(loss)
    data.check("loss", loss)
    data.check_grad("grad_log_prob", logp)
    flags = clip_flags(ratio, advantage, low, high, dual_clip=dual)
    for name, values in (
        ("actor_pg_clipfrac", flags.clipped),
        ("actor_pg_clipfrac_lower", flags.dual_clipped),
        ("actor_ppo_kl", -ratio),
    ):
        data.check_if_recorded(name, _masked_mean(values.detach().to(ratio.dtype)))


def _masked_mean(values: Tensor) -> Tensor:
    return values.sum() / (values.numel() + 1e-8)


def _trl_loss(data: Golden, settings: dict[str, Any]) -> None:
    logp = data.leaf("per_token_logps")
    mask = data.tensor("completion_mask")
    if "tool_mask" in data:
        mask = mask * data.tensor("tool_mask")
    where = flat(mask)
    current = where.take(logp)
    ratio = log_ratio(current, where.take(data.tensor("old_per_token_logps")))
    if settings["importance_sampling_level"] == "sequence":
        ratio = sequence_log_ratio(ratio, where.row, where.n_rows)
    advantage = data.tensor("advantages")[where.row]
    per_token = ppo_clip(
        ratio,
        advantage,
        settings["epsilon_low"],
        settings["epsilon_high"],
        delta=settings["delta"],
    )
    if settings["beta"]:
        reference = where.take(data.tensor("ref_per_token_logps"))
        per_token = per_token + settings["beta"] * k3_kl(current, reference)
    loss = _trl_aggregate(per_token, where.row, where.n_rows, settings)
    torch.autograd.backward(loss)
    data.check("loss", loss)
    data.check_grad("grad_per_token_logps", logp)


def _trl_aggregate(per_token: Tensor, row: Tensor, n_rows: int, settings: dict[str, Any]) -> Tensor:
    kind = settings["loss_type"]
    own = token_totals(row, n_rows)
    # TRL averages micro-batches; DAPO alone knows the step's token count
    parts = 1 if kind == "dapo" else settings["grad_accum"]
    if kind == "grpo":
        loss = aggregate(per_token, row, n_rows, "seq_mean_token_mean", empty_rows="count")
    elif kind == "bnpo":
        loss = aggregate(per_token, row, n_rows, "token_mean")
    elif kind == "dapo":
        totals = Totals(settings["num_items_in_batch"], own.rows, n_rows)
        loss = aggregate(per_token, row, n_rows, "token_mean", totals=totals)
    elif kind == "dr_grpo":
        loss = aggregate(
            per_token,
            row,
            n_rows,
            "seq_mean_token_sum_norm",
            empty_rows="count",
            norm=settings["max_completion_length"],
        )
    else:
        raise ValueError(f"loss_type {kind!r} is not known")
    return loss / parts


def skillsd(entry: dict[str, Any], path: Path) -> Outcome:
    """Skill-SD's losses and its UCB1 scores."""
    if path.suffix == ".json":
        return _ucb1(entry, path)
    data = Golden(entry, path)
    settings = entry["settings"]
    logits = data.leaf("student_logits")
    tokens = data.tensor("sampled_tokens")
    where = flat(data.tensor("response_mask"))
    teacher = where.take(gather(log_softmax(data.tensor("teacher_logits")), tokens))
    old = where.take(data.tensor("old_log_probs"))
    advantage = where.take(data.tensor("advantages"))
    low, high = settings["eps"]

    def losses() -> tuple[Tensor, Tensor]:
        student = where.take(gather(log_softmax(logits), tokens))
        distil = sampled_reverse_kl(student, teacher, old)
        policy = ppo_clip(log_ratio(student, old, clamp=20.0), advantage, low, high)
        mode = settings["loss_agg_mode"]
        return verl_aggregate(distil, where, mode), verl_aggregate(policy, where, mode)

    sdl, _ = losses()
    torch.autograd.backward(sdl)
    data.check("sdl_loss", sdl)
    data.check_grad("grad_student_logits_sdl", logits)
    logits.grad = None
    sdl, ppo = losses()
    total = ppo + settings["lam"] * sdl
    torch.autograd.backward(total)
    data.check("ppo_loss", ppo)
    data.check("total_loss", total)
    data.check_grad("grad_student_logits_total", logits)
    return data.outcome()


def _ucb1(entry: dict[str, Any], path: Path) -> Outcome:
    check = Comparison(entry)
    for index, case in enumerate(json.loads(path.read_text())["cases"]):
        scores = ucb1_scores(case["sum"], case["n"], case["c"])
        recorded = [float("inf") if score is None else score for score in case["scores"]]
        check.value(f"case {index}", scores, recorded)
    return check.outcome()
