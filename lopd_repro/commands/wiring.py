"""Builds the parts a run needs from its settings: threads, tasks, environments, engine."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol, TypeVar

import torch

from lopd_repro.data.coding.schema import CodeTaskSet
from lopd_repro.data.coding.splits import open_code_split
from lopd_repro.data.schema import TaskSet
from lopd_repro.data.splits import open_split
from lopd_repro.envs import EnvPool, Limits, ToolEpisodes
from lopd_repro.errors import UserError
from lopd_repro.models.backbone import Backbone, load_backbone
from lopd_repro.models.chat import ChatCodec
from lopd_repro.rollout.coding import CodePrompts, CodeTexts, CodingDomain
from lopd_repro.rollout.domain import Domain, EpisodeTexts
from lopd_repro.rollout.engine import RolloutEngine, SamplingParams
from lopd_repro.rollout.hf_engine import HFEngine
from lopd_repro.rollout.tool_use import ToolPrompts, ToolTexts, ToolUseDomain
from lopd_repro.rollout.vllm_engine import VLLMEngine, VLLMSettings
from lopd_repro.sandbox.executor import Executor, ProgramLimits
from lopd_repro.settings import build, read_settings

DOMAINS = ("tool_use", "coding")
ENGINES = ("hf", "vllm")
AnyTaskSet = TaskSet | CodeTaskSet
T = TypeVar("T")


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
class ExecutionSettings:
    """How programs are taken out of replies and run, the `environment` of the coding domain.

    extraction: a rule of `data.coding.extract`. The limits are of one test case.
    """

    extraction: str = "last_fence"
    workers: int = 1
    cpu_seconds: float = 4.0
    wall_seconds: float = 40.0
    memory_mb: int = 512
    output_kb: int = 1024
    packages: bool = False


@dataclass(frozen=True)
class EngineSettings:
    """Rollout engine and how the model is held; `vllm` holds the settings of that engine."""

    name: str = "hf"
    max_batch: int = 64
    dtype: str = "float32"
    device: str = "cpu"
    vllm: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ChatSettings:
    """Chat template handling."""

    append_policy: str = "refuse"
    enable_thinking: bool | None = None


class World(Protocol):
    """Where the episodes of a domain run."""

    isolation: Any

    def domain(self, tasks: AnyTaskSet) -> Domain:
        """Episodes of these tasks."""

    def endpoint_domain(self, tasks: AnyTaskSet, protocol: str) -> Domain:
        """Episodes that a model behind an endpoint acts in, writing calls by `protocol`."""


class ToolWorld:
    """Environment workers."""

    def __init__(self, pool: EnvPool, settings: EnvironmentSettings, prompts: Prompts) -> None:
        self._pool = pool
        self._settings = settings
        self._prompts = tool_prompts(prompts)
        self.isolation: Any = pool.isolation

    def domain(self, tasks: AnyTaskSet) -> ToolUseDomain:
        """Episodes of these tasks on the shared pool."""
        return self.endpoint_domain(tasks, self._settings.protocol)

    def endpoint_domain(self, tasks: AnyTaskSet, protocol: str) -> ToolUseDomain:
        """The same under another protocol."""
        assert isinstance(tasks, TaskSet)
        s = self._settings
        episodes = ToolEpisodes(
            self._pool,
            protocol=protocol,  # type: ignore[arg-type]
            variant=s.variant,  # type: ignore[arg-type]
            max_steps=s.max_steps,
            step_cap=s.step_cap,  # type: ignore[arg-type]
        )
        return ToolUseDomain(tasks, episodes, self._prompts, s.trace_chars)


class CodeWorld:
    """A sandboxed executor of programs."""

    def __init__(self, executor: Executor, extraction: str, prompts: Prompts) -> None:
        self._executor = executor
        self._extraction = extraction
        self._prompts = code_prompts(prompts)
        self.isolation: Any = {"layers": list(executor.layers)}

    def domain(self, tasks: AnyTaskSet) -> CodingDomain:
        """Episodes of these tasks on the shared executor."""
        assert isinstance(tasks, CodeTaskSet)
        return CodingDomain(tasks, self._executor, self._prompts, self._extraction)

    def endpoint_domain(self, tasks: AnyTaskSet, protocol: str) -> CodingDomain:
        """The same: a reply is a reply, there are no calls."""
        return self.domain(tasks)


@dataclass
class Parts:
    """What the commands share, built once; the engine when it is first asked for.

    `make_engine` makes one on a model that is the backbone's or like it.
    """

    settings: dict[str, Any]
    prompts: Prompts
    backbone: Backbone
    codec: ChatCodec
    make_engine: Callable[[Any], RolloutEngine]
    world: World

    @cached_property
    def engine(self) -> RolloutEngine:
        """The rollout engine on the backbone."""
        return self.make_engine(self.backbone.model)

    def domain(self, tasks: AnyTaskSet) -> Domain:
        """Episodes of these tasks."""
        return self.world.domain(tasks)

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


def code_prompts(prompts: Prompts) -> CodePrompts:
    """The texts of a programming task's first messages."""
    return CodePrompts(prompts.system, prompts.user)


def domain_of(settings: dict[str, Any]) -> str:
    """The settings' domain, `tool_use` where they name none."""
    domain: str = settings.get("domain", "tool_use")
    if domain not in DOMAINS:
        raise UserError(f"domain: found {domain!r}, allowed: {', '.join(DOMAINS)}")
    return domain


@contextmanager
def world(settings: dict[str, Any], prompts: Prompts) -> Iterator[World]:
    """Environment workers or program executor, by the settings' domain; ended at the end."""
    if domain_of(settings) == "coding":
        execution = build(ExecutionSettings, settings["environment"], "environment")
        with executor(execution) as running:
            yield CodeWorld(running, execution.extraction, prompts)
        return
    environment = build(EnvironmentSettings, settings["environment"], "environment")
    seconds = environment.call_seconds
    limits = Limits(
        reset_seconds=seconds,
        step_seconds=seconds,
        score_seconds=seconds,
        memory_mb=environment.memory_mb,
    )
    with EnvPool(environment.workers, limits) as pool:
        yield ToolWorld(pool, environment, prompts)


def episode_texts(settings: dict[str, Any], tasks: AnyTaskSet) -> EpisodeTexts:
    """Tasks and finished episodes as texts, by the settings' domain; starts no process."""
    if isinstance(tasks, CodeTaskSet):
        return CodeTexts(tasks)
    environment = build(EnvironmentSettings, settings["environment"], "environment")
    return ToolTexts(tasks, environment.trace_chars)


def executor(settings: ExecutionSettings) -> Executor:
    """The executor of the settings; use it as a context manager."""
    limits = ProgramLimits(
        cpu_seconds=settings.cpu_seconds,
        wall_seconds=settings.wall_seconds,
        memory_mb=settings.memory_mb,
        output_kb=settings.output_kb,
    )
    return Executor(limits, workers=settings.workers, packages=settings.packages)


@contextmanager
def parts(settings: dict[str, Any], backbone: Path | str) -> Iterator[Parts]:
    """Backbone, codec, engine and world; the world's processes are stopped at the end."""
    chat = build(ChatSettings, settings.get("chat", {}), "chat")
    engine = build(EngineSettings, settings.get("engine", {}), "engine")
    if engine.name not in ENGINES:
        raise UserError(f"engine.name: found {engine.name!r}, allowed: {', '.join(ENGINES)}")
    own = build(VLLMSettings, engine.vllm, "engine.vllm")
    loaded = load_backbone(backbone, engine.dtype, engine.device)
    options = {} if chat.enable_thinking is None else {"enable_thinking": chat.enable_thinking}
    codec = ChatCodec(loaded.tokenizer, loaded.eos_ids, chat.append_policy, options)
    prompts = read_prompts(settings["prompts"])

    def make_engine(model: Any) -> RolloutEngine:
        if engine.name == "hf":
            return HFEngine(model, loaded.eos_ids, codec.pad_id, engine.max_batch)
        return VLLMEngine(model, str(backbone), loaded.eos_ids, engine.max_batch, own)

    with world(settings, prompts) as running:
        yield Parts(settings, prompts, loaded, codec, make_engine, running)


def open_tasks(
    settings: dict[str, Any], splits: str, name: str, purpose: str, limit: int = 0
) -> AnyTaskSet:
    """Tasks of one split in the settings' domain; a positive `limit` keeps its first ones."""
    if domain_of(settings) == "coding":
        code = open_code_split(splits, name, purpose)
        return CodeTaskSet(_first(code.tasks, limit))
    tasks = open_split(splits, name, purpose)
    return TaskSet(tasks.environments, _first(tasks.tasks, limit))


def training_tasks(settings: dict[str, Any], splits: str, limit: int = 0) -> AnyTaskSet:
    """The training split; a positive `limit` keeps its first tasks."""
    return open_tasks(settings, splits, "train", "training", limit)


def validation_tasks(settings: dict[str, Any], splits: str, limit: int = 0) -> AnyTaskSet:
    """The validation split; a positive `limit` keeps its first tasks."""
    return open_tasks(settings, splits, "validation", "selection", limit)


def merged(*sets: AnyTaskSet) -> AnyTaskSet:
    """Several splits of one domain as one task set."""
    if all(isinstance(s, CodeTaskSet) for s in sets):
        return CodeTaskSet(
            {k: v for s in sets if isinstance(s, CodeTaskSet) for k, v in s.tasks.items()}
        )
    tools = [s for s in sets if isinstance(s, TaskSet)]
    return TaskSet(
        {k: v for s in tools for k, v in s.environments.items()},
        {k: v for s in tools for k, v in s.tasks.items()},
    )


def groups_of(tasks: AnyTaskSet) -> dict[str, str]:
    """Each task's group, for the control with unrelated experiences: environment, or topic."""
    if isinstance(tasks, CodeTaskSet):
        return {task_id: task.topic for task_id, task in tasks.tasks.items()}
    return {task_id: task.env_id for task_id, task in tasks.tasks.items()}


def families_of(tasks: AnyTaskSet) -> dict[str, str]:
    """Each task's family, as reports on retrieval count it."""
    groups = groups_of(tasks)
    return {task_id: f"{groups[task_id]}/{task.family}" for task_id, task in tasks.tasks.items()}


def _first(tasks: dict[str, T], limit: int) -> dict[str, T]:
    return dict(list(tasks.items())[:limit]) if limit > 0 else tasks
