"""Golden vectors of the compressor and of one composer phase with its dual update."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lopd_repro.conformance._flat import gather, log_softmax
from lopd_repro.conformance.golden import Golden
from lopd_repro.conformance.outcome import Outcome
from lopd_repro.lopd.compressor import Compressor
from lopd_repro.training.losses import (
    aggregate,
    anchor_distance,
    composer_objective,
    dual_update,
    reverse_kl_topk_tail,
    weighted_privilege,
)

_NAMES = {
    "latents": "latents",
    "proj_in": "proj_in",
    "proj_out": "proj_out",
    "norm_out": "norm_out",
    "layers.0.norm1": "attention.norm_states",
    "layers.0.norm2": "attention.norm_queries",
    "layers.0.to_q": "attention.to_q",
    "layers.0.to_kv": "attention.to_kv",
    "layers.0.to_out": "attention.to_out",
    "layers.1.0": "feed_forward.0",
    "layers.1.1": "feed_forward.1",
    "layers.1.3": "feed_forward.3",
}


def _our_name(recorded: str) -> str:
    """This project's name of a recorded parameter, such as `layers.0.to_q.weight`."""
    for stem in sorted(_NAMES, key=len, reverse=True):
        if recorded == stem or recorded.startswith(f"{stem}."):
            return _NAMES[stem] + recorded.removeprefix(stem)
    raise ValueError(f"parameter {recorded!r} is not known")


def lopd_qformer(entry: dict[str, Any], path: Path) -> Outcome:
    """The perceiver compressor: outputs, gradients of inputs and queries, gradient norms."""
    data = Golden(entry, path)
    settings = entry["settings"]
    if not settings["share_layers"]:
        raise ValueError("share_layers false: the compressor shares one set of weights")
    model = Compressor(
        settings["dim"],
        settings["heads"],
        settings["dim_head"],
        settings["num_queries"],
        settings["depth"],
        settings["ff_mult"],
    )
    order = [str(name) for name in settings["param_order"]]
    model.to(data.tensor("x").dtype)
    model.load_state_dict({_our_name(name): data.tensor(f"sd/{name}") for name in order})
    states = data.leaf("x")
    mask = data.tensor("mask").bool() if settings["masked"] else None
    out = model(states, mask)
    torch.autograd.backward(out, data.tensor("cotangent"))
    data.check("out", out)
    data.check_grad("grad_x", states)
    data.check_grad("grad_latents", model.latents)
    parameters = dict(model.named_parameters())
    norms = [_grad_norm(parameters[_our_name(name)]) for name in order]
    data.grad("param_grad_norms", norms, data.array("param_grad_norms"))
    return data.outcome()


def _grad_norm(parameter: Tensor) -> float:
    return 0.0 if parameter.grad is None else float(parameter.grad.double().norm())


def lopd_composer_phase(entry: dict[str, Any], path: Path) -> Outcome:
    """One step of the composer over several rollouts, clipped, and the dual update.

    With the released code's choices: mean anchor, Delta per trajectory in the gradient and per
    token in the dual update. The latents themselves are the trained parameter.
    """
    data = Golden(entry, path)
    settings = entry["settings"]
    counts = [int(n) for n in settings["token_counts"]]
    n_rows = len(counts)
    row = torch.repeat_interleave(torch.arange(n_rows), torch.tensor(counts))
    latents = data.leaf("phi_before")
    mixed = [
        data.tensor(f"r{i}_base_logits")
        + (data.tensor(f"r{i}_mix") * latents.flatten()) @ data.tensor("W")
        for i in range(n_rows)
    ]
    teacher = log_softmax(torch.cat(mixed))

    def joined(name: str) -> Tensor:
        return torch.cat([data.tensor(f"r{i}_{name}") for i in range(n_rows)])

    student, tokens, support = (
        log_softmax(joined("student_logits")),
        joined("tokens"),
        joined("support"),
    )
    divergence = reverse_kl_topk_tail(student.gather(-1, support), teacher.gather(-1, support))
    kl = aggregate(divergence, row, n_rows, "seq_mean_token_mean")
    gain = weighted_privilege(
        gather(teacher, tokens), gather(student, tokens), data.tensor("rewards"), row
    )
    start = data.tensor("phi0").expand(n_rows, -1, -1)
    anchor = anchor_distance(latents.expand(n_rows, -1, -1), start, "mean").mean()
    beta, margin = data.number("beta_before"), float(settings["margin_m"])
    loss = composer_objective(
        kl,
        aggregate(gain, row, n_rows, "seq_mean_token_mean"),
        anchor,
        beta=beta,
        margin=margin,
        anchor_weight=float(settings["anchor_lambda"]),
    )
    optimiser = torch.optim.AdamW([latents], lr=float(settings["lr_phi"]))
    torch.autograd.backward(loss)
    norm = torch.nn.utils.clip_grad_norm_([latents], float(settings["grad_clip"]))
    optimiser.step()
    delta = aggregate(gain, row, n_rows, "token_mean")
    eta = float(settings["eta_beta"])
    data.check("out_kl_phi", kl)
    data.check("out_delta", delta)
    data.check("out_anchor", anchor)
    data.check("out_beta", dual_update(beta, float(delta.detach()), margin=margin, eta=eta))
    data.check("phi_after", latents)
    data.grad("out_phi_grad_norm", norm, data.array("out_phi_grad_norm"))
    data.check_grad("clipped_grad_phi", latents)
    return data.outcome()


Adapter = Callable[[dict[str, Any], Path], Outcome]

ENTRIES: dict[str, Adapter] = {
    "lopd_qformer": lopd_qformer,
    "lopd_composer_phase": lopd_composer_phase,
}

SOURCES: dict[str, Adapter] = {
    "memory/qformer.py:QFormer": lopd_qformer,
    "lopd/worker.py:_composer_phase": lopd_composer_phase,
}
