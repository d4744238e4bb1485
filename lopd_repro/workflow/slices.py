"""The slice of the configuration that one job depends on: a change elsewhere does not rerun it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lopd_repro.errors import UserError
from lopd_repro.settings import at_most
from lopd_repro.workflow import fetched

DOMAINS = ("tool_use", "coding")

_RUN = ("prompts", "environment", "engine", "chat", "sampling")
# Keys of a method's settings that are for jobs before its training, or for printing.
_BEFORE = ("composer", "cold_start", "retrieval", "label")
# Sections of a domain that take the place of the shared ones instead of being laid over them.
_WHOLE = ("backbones", "tasks", "base_model", "prompts", "environment", "benchmarks")


def domains(config: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The whole configuration of every domain that is asked for.

    Tool use is described by the configuration's own keys; the section `coding` holds what
    differs there.
    """
    shared = _without(config, "coding")
    found = {"tool_use": {**shared, "domain": "tool_use"}}
    if "coding" in config:
        found["coding"] = {**_over(shared, config["coding"], _WHOLE), "domain": "coding"}
    return found


def _over(below: Mapping[str, Any], above: Mapping[str, Any], whole: tuple[str, ...]) -> Any:
    merged = dict(below)
    for key, value in above.items():
        both = isinstance(value, Mapping) and isinstance(below.get(key), Mapping)
        merged[key] = _over(below[key], value, ()) if both and key not in whole else value
    return merged


def slice_for(
    config: Mapping[str, Any], job: str, name: str = "", backbone: str = ""
) -> dict[str, Any]:
    """Settings of a job; `name` is the backbone (base_model), or the method that `backbone` is
    trained by (train)."""
    domain = {"domain": config.get("domain", "tool_use")}
    shared = {**domain, **{key: config[key] for key in _RUN}}
    if job == "tasks":
        own = {**domain, **_without(fetched.task_settings(config), "data_label")}
        if config.get("domain") != "coding":
            own["variant"] = config["environment"].get("variant", "envscaler")
        return own
    if job == "base_model":
        own, base = config["backbones"][name], config["base_model"]
        return {
            **domain,
            **_without(base, "conversations"),
            "seed": own.get("seed", base["seed"]),
            "training": {**base["training"], **own.get("training", {})},
            "shape": own["shape"],
            **{key: config[key] for key in ("prompts", "environment", "sampling")},
        }
    if job == "base_rollouts":
        return _base_rollouts(config, "system", "user")
    if job == "bank":
        return {
            **_base_rollouts(config, "system", "user"),
            "environment": config["environment"],
            "bank": _without(config["bank"], "embedder"),
        }
    if job == "retrieve":
        return {
            **_without(shared, "sampling"),
            "retrieval": {**config["retrieval"], **overrides(config, name, "retrieval")},
            "embedder": fetched.embedder(config),
            "task_limit": config["base_rollouts"].get("task_limit", 0),
        }
    if job == "demonstrations":
        threshold = config["bank"]["threshold"]
        return {**shared, "demonstrations": {**config["demonstrations"], "threshold": threshold}}
    if job == "skills":
        own = config["skills"]
        # The command refuses it too, but only after the rollouts.
        at_most(
            own["groups"] * own["group_size"],
            config["base_rollouts"]["per_task"],
            "skills.groups * skills.group_size",
            "base_rollouts.per_task",
        )
        return {
            **_base_rollouts(config, "system", "user", "skill_request"),
            "environment": config["environment"],
            "skills": own,
        }
    if job == "cold_start":
        own = {**config["cold_start"], **overrides(config, name, "cold_start")}
        return {
            **shared,
            "seed": own["seed"],
            "n_retrieved": own["n_retrieved"],
            "cold_start": _without(own, "seed", "n_retrieved"),
            "composer": {**config["composer"], **overrides(config, name, "composer")},
        }
    if job == "train":
        return {**shared, **method_slice(config, name, backbone)}
    if job == "evaluate":
        label = config["tasks"]["data_label"]
        return {**shared, "evaluation": config["evaluation"], "data_label": label}
    if job == "evaluate_with_latents":
        lopd = _resolved(config["method_settings"], "lopd", ())
        return {
            **slice_for(config, "evaluate"),
            "retrieval": config["retrieval"],
            "embedder": fetched.embedder(config),
            "n_retrieved": lopd.get("n_retrieved", 3),
        }
    raise ValueError(f"no slice for job {job!r}")


def _base_rollouts(config: Mapping[str, Any], *texts: str) -> dict[str, Any]:
    """What base rollouts depend on. Prompts other than the named ones are left empty, so that a
    change of theirs reruns nothing."""
    return {
        "domain": config.get("domain", "tool_use"),
        "prompts": {name: t if name in texts else "" for name, t in config["prompts"].items()},
        "environment": _without(config["environment"], "trace_chars"),
        "engine": config["engine"],
        "chat": config["chat"],
        "sampling": {"rollout": config["sampling"]["rollout"]},
        "base_rollouts": config["base_rollouts"],
    }


def benchmark_slice(config: Mapping[str, Any], benchmark: str, backbone: str) -> dict[str, Any]:
    """Settings of one benchmark on one backbone; `by_backbone` overrides the shared ones."""
    own = config["benchmarks"][benchmark]
    return {
        "serve": config["serve"],
        "benchmark": {
            **_without(own, "by_backbone"),
            **own.get("by_backbone", {}).get(backbone, {}),
        },
    }


def conversations_slice(config: Mapping[str, Any], benchmark: str) -> dict[str, Any]:
    """Settings of the conversations that tiny base models are trained on; empty if none."""
    base = config.get("base_model")
    share = base and base["corpus"].get("conversations", {}).get(benchmark)
    if base is None or share is None:
        return {}
    count = round(share * base["corpus"]["documents"])
    return {"count": count, **base["conversations"][benchmark]}


def method_slice(config: Mapping[str, Any], name: str, backbone: str = "") -> dict[str, Any]:
    """A method's own settings over the shared ones, for its training on a backbone.

    `like` starts from another method's settings; `group_size`, `train` and `optimiser` override
    the run's; `composer`, `cold_start` and `retrieval` are for the jobs before it; every other key
    goes to the method.
    """
    own = _without(_resolved(config["method_settings"], name, ()), *_BEFORE)
    train = {**config["train"], **own.pop("train", {}), "group_size": own.pop("group_size", 1)}
    analyses = config.get("analyses", {})
    if name in analyses.get("curves", []):
        # Of the other backbones no curve is drawn, and a checkpoint weighs gigabytes.
        train["keep_candidates"] = backbone == analyses["backbone"]
    return {
        "train": train,
        "optimiser": {**config["optimiser"], **own.pop("optimiser", {})},
        "validation": config["validation"],
        "method": own,
    }


def overrides(config: Mapping[str, Any], method: str, section: str) -> dict[str, Any]:
    """What a method changes in a section that a job before its training reads.

    Empty if it uses the shared one, or is no method.
    """
    if method not in config["method_settings"]:
        return {}
    return dict(_resolved(config["method_settings"], method, ()).get(section, {}))


def refuse_overrides(config: Mapping[str, Any], method: str) -> None:
    """Only a variant has a composer, a cold start or a retrieval of its own."""
    for section in ("composer", "cold_start", "retrieval"):
        if overrides(config, method, section):
            raise UserError(
                f"method_settings.{method}.{section}: found in a method, allowed: in a control "
                "with `like`"
            )


def _resolved(all_settings: Mapping[str, Any], name: str, above: tuple[str, ...]) -> dict[str, Any]:
    own = dict(all_settings.get(name) or {})
    like = own.pop("like", None)
    if like is None:
        return own
    if like in above or like not in all_settings:
        known = ", ".join(sorted(all_settings))
        raise UserError(f"method_settings.{name}.like: found {like!r}, allowed: one of {known}")
    return {**_resolved(all_settings, like, (*above, name)), **own}


def _without(values: Mapping[str, Any], *keys: str) -> dict[str, Any]:
    return {key: value for key, value in values.items() if key not in keys}
