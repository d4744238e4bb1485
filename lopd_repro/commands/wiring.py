"""Builds the parts a run needs from its settings: threads, tasks, environments, engine."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from lopd_repro.data.schema import TaskSet
from lopd_repro.data.splits import open_split
from lopd_repro.envs import EnvPool, Limits, ToolEpisodes
from lopd_repro.errors import UserError
from lopd_repro.models.backbone import Backbone, load_backbone
from lopd_repro.models.chat import ChatCodec
from lopd_repro.rollout.engine import SamplingParams
from lopd_repro.rollout.hf_engine import HFEngine
from lopd_repro.rollout.tool_use import ToolPrompts, ToolUseDomain
from lopd_repro.settings import build, read_settings


@dataclass(frozen=True)
class Prompts:
    """Every text of ours that a model reads. Values `@FILE` are read from that file."""

    system: str
    user: str
    latent_before: str
    latent_after: str
    reference_before: str
    reference_after: str
    demonstration_before: str
    demonstration_after: str
    sibling_before: str
    sibling_after: str
    skill_works: str
    skill_avoid: str
    skill_workflow: str
    skill_after: str
    skill_request: str
    composer_task: str
    composer_trace: str


@dataclass(frozen=True)
class EnvironmentSettings:
    """Tool-use environments: protocol, reference variant, step cap and worker limits."""

    protocol: str = "qwen3"
    variant: str = "envscaler"
    max_steps: int = 30
    step_cap: str = "unscored"
    workers: int = 1
    call_seconds: float = 10.0
    memory_mb: int = 1024
    trace_chars: int = 120


@dataclass(frozen=True)
class EngineSettings:
    """Rollout engine and how the model is held."""

    name: str = "hf"
    max_batch: int = 64
    dtype: str = "float32"
    device: str = "cpu"


@dataclass(frozen=True)
class ChatSettings:
    """Chat template handling."""

    append_policy: str = "refuse"
    enable_thinking: bool | None = None


@dataclass
class Parts:
    """What the commands share, built once."""

    settings: dict[str, Any]
    prompts: Prompts
    backbone: Backbone
    codec: ChatCodec
    engine: HFEngine
    pool: EnvPool
    environment: EnvironmentSettings

    def domain(self, tasks: TaskSet) -> ToolUseDomain:
        """Episodes of these tasks on the shared pool."""
        e = self.environment
        episodes = ToolEpisodes(
            self.pool,
            protocol=e.protocol,  # type: ignore[arg-type]
            variant=e.variant,  # type: ignore[arg-type]
            max_steps=e.max_steps,
            step_cap=e.step_cap,  # type: ignore[arg-type]
        )
        return ToolUseDomain(tasks, episodes, tool_prompts(self.prompts), e.trace_chars)

    def sampling(self, which: str) -> SamplingParams:
        """Sampling settings of `rollout` or `evaluation`."""
        return build(SamplingParams, self.settings["sampling"][which], f"sampling.{which}")


def add_settings(parser: argparse.ArgumentParser) -> None:
    """The option every command of the workflow takes."""
    parser.add_argument(
        "--settings", required=True, help="this job's slice of the configuration: JSON or @FILE"
    )
    parser.add_argument("--threads", type=int, default=1, help="torch threads of this process")


def start(args: argparse.Namespace) -> dict[str, Any]:
    """Fix threads and determinism; parse the settings."""
    torch.set_num_threads(args.threads)
    torch.use_deterministic_algorithms(True)
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    return read_settings(args.settings)


def read_prompts(values: Any) -> Prompts:
    """Prompt texts; `@FILE` loads a text of the user's own."""
    prompts = build(Prompts, values, "prompts")
    loaded = {}
    for name, text in vars(prompts).items():
        if text.startswith("@"):
            try:
                loaded[name] = Path(text[1:]).read_text()
            except OSError as error:
                raise UserError(f"prompts.{name}: {text[1:]}: {error.strerror}") from None
    return replace(prompts, **loaded)


def tool_prompts(prompts: Prompts) -> ToolPrompts:
    """The texts of a task's first messages."""
    return ToolPrompts(prompts.system, prompts.user)


@contextmanager
def parts(settings: dict[str, Any], backbone: Path | str) -> Iterator[Parts]:
    """Backbone, codec, engine and environment workers; the workers are stopped at the end."""
    chat = build(ChatSettings, settings.get("chat", {}), "chat")
    engine = build(EngineSettings, settings.get("engine", {}), "engine")
    environment = build(EnvironmentSettings, settings["environment"], "environment")
    if engine.name != "hf":
        raise UserError(f"engine.name: found {engine.name!r}, allowed: hf")
    loaded = load_backbone(backbone, engine.dtype, engine.device)
    options = {} if chat.enable_thinking is None else {"enable_thinking": chat.enable_thinking}
    codec = ChatCodec(loaded.tokenizer, loaded.eos_ids, chat.append_policy, options)
    seconds = environment.call_seconds
    limits = Limits(
        reset_seconds=seconds,
        step_seconds=seconds,
        score_seconds=seconds,
        memory_mb=environment.memory_mb,
    )
    with EnvPool(environment.workers, limits) as pool:
        yield Parts(
            settings,
            read_prompts(settings["prompts"]),
            loaded,
            codec,
            HFEngine(loaded.model, loaded.eos_ids, codec.pad_id, engine.max_batch),
            pool,
            environment,
        )


def merged(*sets: TaskSet) -> TaskSet:
    """Several splits as one task set."""
    return TaskSet(
        {k: v for s in sets for k, v in s.environments.items()},
        {k: v for s in sets for k, v in s.tasks.items()},
    )


def training_tasks(splits: str, limit: int = 0) -> TaskSet:
    """The training split; a positive `limit` keeps its first tasks."""
    tasks = open_split(splits, "train", "training")
    return _first(tasks, limit)


def selection_tasks(splits: str, limit: int = 0) -> TaskSet:
    """The validation split; a positive `limit` keeps its first tasks."""
    return _first(open_split(splits, "validation", "selection"), limit)


def _first(tasks: TaskSet, limit: int) -> TaskSet:
    if limit <= 0:
        return tasks
    kept = dict(list(tasks.tasks.items())[:limit])
    return TaskSet(tasks.environments, kept)
