"""Trains a tiny backbone from scratch on noisy programs for the bundled programming tasks.

The counterpart of `tiny_base` for code. A document is a task and a program; part of them show a
reference program of another task (or of the same one) that follows a random convention, which the
program then follows too, so that the model has to read it. Without a reference the program is
right about its family's hidden convention only part of the time.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from lopd_repro.data.coding.schema import CodeTask, CodeTaskSet
from lopd_repro.data.tiny_coding import (
    FAMILIES,
    GOLD,
    CodeNoise,
    Convention,
    noisy_solution,
    program_lines,
    random_convention,
    sample_statement,
    solution,
)
from lopd_repro.errors import UserError
from lopd_repro.models.chat import ChatCodec
from lopd_repro.rollout.coding import CodePrompts, code_opening, fenced
from lopd_repro.rollout.domain import Domain
from lopd_repro.rollout.engine import RolloutEngine, SamplingParams
from lopd_repro.rollout.heads import Context, TextContext, build_head
from lopd_repro.training.evaluate import EvaluationPlan, evaluate, summary
from lopd_repro.training.tiny_base import Document, TinyShape, build_model, sizes

ARCHITECTURES = ("qwen3", "olmo3")
# Olmo3 normalises what its blocks add, not what they read: embeddings of the usual 0.02 drown
# beside the first block's output, and references came to be read some hundred steps later.
_OLMO3_EMBEDDING_STD = 0.2


@dataclass(frozen=True)
class CodeCorpusSettings:
    """Shares of the document kinds and the programs' mistakes.

    The shares of documents with a reference of the same task, of the same family, and of any
    family; the rest has none. follow: how often the program follows a same-task or same-family
    reference. as_skill: share of references framed as a skill, with lists of lines to use and to
    avoid before them.
    """

    documents: int = 8000
    same_task: float = 0.15
    same_family: float = 0.32
    any_family: float = 0.08
    follow: float = 0.95
    as_skill: float = 0.0
    noise: dict[str, float] = field(default_factory=dict)
    reference_before: str = ""
    reference_after: str = ""
    skill_works: str = ""
    skill_avoid: str = ""
    skill_workflow: str = ""
    skill_after: str = ""


def build_code_model(architecture: str, shape: TinyShape, tokenizer: Any, seed: int) -> Any:
    """An untrained model of an architecture (`qwen3` or `olmo3`), heads of 32."""
    if architecture == "qwen3":
        return build_model(shape, tokenizer, seed)
    if architecture != "olmo3":
        allowed = ", ".join(ARCHITECTURES)
        raise UserError(f"shape.architecture: found {architecture!r}, allowed: {allowed}")
    from transformers import GenerationConfig, Olmo3Config, Olmo3ForCausalLM

    torch.manual_seed(seed)
    # A window as long as the context: every layer attends to all of it.
    config = Olmo3Config(sliding_window=shape.max_length, **sizes(shape, tokenizer))
    model: Any = Olmo3ForCausalLM(config)
    with torch.no_grad():
        model.get_input_embeddings().weight.mul_(_OLMO3_EMBEDDING_STD / config.initializer_range)
    model.generation_config = GenerationConfig(
        eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id
    )
    return model


def build_code_corpus(
    codec: ChatCodec,
    prompts: CodePrompts,
    settings: CodeCorpusSettings,
    forbidden_texts: Collection[str],
    seed: int,
) -> list[Document]:
    """Documents of noisy programs; tasks whose text digest is forbidden never appear."""
    rng = random.Random(f"tiny-code-corpus-{seed}")
    return [
        _document(codec, prompts, settings, forbidden_texts, rng) for _ in range(settings.documents)
    ]


def reference_contexts(
    tasks: Sequence[CodeTask], before: str, after: str, seed: int
) -> list[Context]:
    """For each tiny task, the reference program of a fresh task of its family."""
    rng = random.Random(f"code-references-{seed}")
    shown = (solution(sample_statement(rng, task.family)) for task in tasks)
    return [TextContext(before + program + after) for program in shown]


def measure_code_base(
    engine: RolloutEngine,
    codec: ChatCodec,
    domain: Domain,
    tasks: CodeTaskSet,
    sampling: SamplingParams,
    settings: CodeCorpusSettings,
    seed: int,
    repeats: int = 1,
) -> dict[str, dict[str, float]]:
    """Scores on tiny tasks without and with a reference, as `evaluate.summary` gives them.

    `settings` has the texts around a reference.
    """
    plan = EvaluationPlan(tuple(tasks.tasks), repeats, seed, sampling)
    references = reference_contexts(
        list(tasks.tasks.values()), settings.reference_before, settings.reference_after, seed
    )
    return {
        "base": summary(evaluate(engine, codec, domain, plan)),
        "with_reference": summary(evaluate(engine, codec, domain, plan, references)),
    }


def _document(
    codec: ChatCodec,
    prompts: CodePrompts,
    settings: CodeCorpusSettings,
    forbidden: Collection[str],
    rng: random.Random,
) -> Document:
    family = rng.choice(list(FAMILIES))
    task = sample_statement(rng, family, forbidden_texts=forbidden)
    kind = rng.random()
    noise = CodeNoise(**settings.noise)
    convention: Convention | None = None
    context = None
    followed = settings.same_task + settings.same_family
    if kind < followed + settings.any_family:
        other = task
        if kind >= settings.same_task:
            name = family if kind < followed else rng.choice(list(FAMILIES))
            other = sample_statement(rng, name, forbidden_texts=forbidden)
        shown = random_convention(other.family, rng)
        if kind < followed and rng.random() < settings.follow:
            convention, noise = shown, GOLD
        program = solution(other, shown)
        text = settings.reference_before + program + settings.reference_after
        if settings.as_skill > 0 and rng.random() < settings.as_skill:
            text = _as_skill(other, program, settings, rng)
        context = TextContext(text)
    reply = fenced(noisy_solution(task, rng, noise, convention))
    head = build_head(codec, code_opening(task, prompts), context).head.ids
    sampled = [*codec.encode(reply), codec.eos_ids[0]]
    return Document((*head, *sampled), (False,) * len(head) + (True,) * len(sampled))


def _as_skill(
    task: CodeTask, program: str, settings: CodeCorpusSettings, rng: random.Random
) -> str:
    """A reference framed as Skill-SD's skills are; what to avoid is some of the other steps."""
    made = program_lines(program)
    others = {line for line in program_lines(_any_program(task, rng)) if line not in made}
    others |= {line for line in program_lines(_any_program(task, rng)) if line not in made}
    avoided = rng.sample(sorted(others), rng.randint(0, len(others)))
    return (
        settings.skill_works
        + ", ".join(made)
        + settings.skill_avoid
        + (", ".join(avoided) or "-")
        + settings.skill_workflow
        + program
        + settings.skill_after
    )


def _any_program(task: CodeTask, rng: random.Random) -> str:
    return solution(task, random_convention(task.family, rng))
