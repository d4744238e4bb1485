"""What a tiny base model of each domain is made of: words, corpus, architecture, measurement."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Protocol

from lopd_repro.commands.wiring import (
    Prompts,
    code_prompts,
    tool_prompts,
    validation_tasks,
    world,
)
from lopd_repro.data.coding.schema import CodeTaskSet
from lopd_repro.data.schema import TaskSet
from lopd_repro.data.splits import text_digests
from lopd_repro.data.tiny import demonstration, lite_trace, sample_task, tiny_vocabulary
from lopd_repro.data.tiny_coding import vocabulary as code_vocabulary
from lopd_repro.errors import UserError
from lopd_repro.models.chat import ChatCodec
from lopd_repro.rollout.engine import RolloutEngine, SamplingParams
from lopd_repro.rollout.heads import TextContext
from lopd_repro.settings import build
from lopd_repro.training.evaluate import EvaluationPlan, evaluate, summary
from lopd_repro.training.tiny_base import (
    CorpusSettings,
    Document,
    TinyShape,
    build_corpus,
    build_model,
)
from lopd_repro.training.tiny_code_base import (
    CodeCorpusSettings,
    build_code_corpus,
    build_code_model,
    measure_code_base,
)

CORPUS_PROMPTS = (
    "reference_before",
    "reference_after",
    "skill_works",
    "skill_avoid",
    "skill_workflow",
    "skill_after",
)

Measured = dict[str, dict[str, float]]


class Recipe(Protocol):
    """One domain's recipe."""

    def words(self) -> list[str]:
        """Words of the tokenizer."""

    def corpus(self, codec: ChatCodec, seed: int) -> list[Document]:
        """Training documents, clear of validation and test tasks."""

    def model(self, shape: TinyShape, tokenizer: Any, seed: int) -> Any:
        """An untrained model."""

    def measure(self, engine: RolloutEngine, codec: ChatCodec) -> Measured:
        """Validation scores without and with a reference of another task of the same family."""


class ToolUseRecipe:
    """Noisy demonstrations of the bundled tool-use tasks."""

    def __init__(self, settings: dict[str, Any], prompts: Prompts, splits: str) -> None:
        self._settings, self._prompts, self._splits = settings, prompts, splits
        self._corpus = build(CorpusSettings, _corpus(settings, prompts), "base_model.corpus")

    def words(self) -> list[str]:
        """Words of the tokenizer."""
        return tiny_vocabulary(vars(self._prompts).values())

    def corpus(self, codec: ChatCodec, seed: int) -> list[Document]:
        """Training documents."""
        forbidden = text_digests(self._splits, ("validation", "test"))
        return build_corpus(codec, tool_prompts(self._prompts), self._corpus, forbidden, seed)

    def model(self, shape: TinyShape, tokenizer: Any, seed: int) -> Any:
        """An untrained model."""
        if shape.architecture != "qwen3":
            raise UserError(f"shape.architecture: found {shape.architecture!r}, allowed: qwen3")
        return build_model(shape, tokenizer, seed)

    def measure(self, engine: RolloutEngine, codec: ChatCodec) -> Measured:
        """Validation scores."""
        seed = int(self._settings["seed"])
        tasks = validation_tasks(self._settings, self._splits)
        assert isinstance(tasks, TaskSet)
        plan = EvaluationPlan(tuple(tasks.tasks), 1, seed, _sampling(self._settings))
        rng = random.Random(f"references-{seed}")
        references = [
            TextContext(
                self._prompts.reference_before
                + lite_trace(demonstration(sample_task(rng, t.domain, t.family)).calls)
                + self._prompts.reference_after
            )
            for t in tasks.tasks.values()
        ]
        with world(self._settings, self._prompts) as running:
            domain = running.domain(tasks)
            return {
                "base": summary(evaluate(engine, codec, domain, plan)),
                "with_reference": summary(evaluate(engine, codec, domain, plan, references)),
            }


class CodingRecipe:
    """Noisy programs for the bundled programming tasks."""

    def __init__(self, settings: dict[str, Any], prompts: Prompts, splits: str) -> None:
        self._settings, self._prompts, self._splits = settings, prompts, splits
        self._corpus = build(CodeCorpusSettings, _corpus(settings, prompts), "base_model.corpus")

    def words(self) -> list[str]:
        """Words of the tokenizer."""
        return code_vocabulary(vars(self._prompts).values())

    def corpus(self, codec: ChatCodec, seed: int) -> list[Document]:
        """Training documents."""
        forbidden = text_digests(self._splits, ("validation", "test"))
        prompts = code_prompts(self._prompts)
        return build_code_corpus(codec, prompts, self._corpus, forbidden, seed)

    def model(self, shape: TinyShape, tokenizer: Any, seed: int) -> Any:
        """An untrained model."""
        return build_code_model(shape.architecture, shape, tokenizer, seed)

    def measure(self, engine: RolloutEngine, codec: ChatCodec) -> Measured:
        """Validation scores."""
        tasks = validation_tasks(self._settings, self._splits)
        assert isinstance(tasks, CodeTaskSet)
        seed, sampling = int(self._settings["seed"]), _sampling(self._settings)
        with world(self._settings, self._prompts) as running:
            domain = running.domain(tasks)
            return measure_code_base(engine, codec, domain, tasks, sampling, self._corpus, seed)


RECIPES: dict[str, Callable[[dict[str, Any], Prompts, str], Recipe]] = {
    "tool_use": ToolUseRecipe,
    "coding": CodingRecipe,
}


def _corpus(settings: dict[str, Any], prompts: Prompts) -> dict[str, Any]:
    own = {k: v for k, v in settings["corpus"].items() if k != "conversations"}
    return {**own, **{name: getattr(prompts, name) for name in CORPUS_PROMPTS}}


def _sampling(settings: dict[str, Any]) -> SamplingParams:
    return build(SamplingParams, settings["sampling"]["evaluation"], "sampling.evaluation")
