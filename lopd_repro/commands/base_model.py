"""`lopd-repro base-model`: a tiny backbone from scratch, with a gate on what it can do.

    lopd-repro base-model --settings JSON --splits results/tasks/tool_use/splits.json --out DIR

The gate: base validation reward within `gate.base`, and reward with a reference example in
context of at least `gate.with_reference`. Whether a model learns to follow a reference depends on
its seed, so the next seed is tried when one fails; when none passes that is an error, not a result.
"""

from __future__ import annotations

import argparse
import random
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lopd_repro.commands.wiring import (
    EnvironmentSettings,
    Prompts,
    add_settings,
    read_prompts,
    selection_tasks,
    start,
    tool_prompts,
)
from lopd_repro.data.conversations import conversation_vocabulary, read_conversations
from lopd_repro.data.schema import TaskSet
from lopd_repro.data.splits import text_digests
from lopd_repro.data.tiny import demonstration, lite_trace, sample_task, tiny_vocabulary
from lopd_repro.envs import EnvPool, ToolEpisodes
from lopd_repro.errors import UserError
from lopd_repro.files import write_json, write_jsonl
from lopd_repro.models.chat import ChatCodec
from lopd_repro.models.tiny_tokenizer import build_tokenizer
from lopd_repro.rollout.engine import SamplingParams
from lopd_repro.rollout.heads import TextContext
from lopd_repro.rollout.hf_engine import HFEngine
from lopd_repro.rollout.tool_use import ToolUseDomain
from lopd_repro.settings import build
from lopd_repro.training.checkpoint import save_model
from lopd_repro.training.evaluate import EvaluationPlan, evaluate, summary
from lopd_repro.training.tiny_base import (
    BaseTraining,
    CorpusSettings,
    TinyShape,
    build_corpus,
    build_model,
    conversation_documents,
    train,
)

CORPUS_PROMPTS = (
    "reference_before",
    "reference_after",
    "skill_works",
    "skill_avoid",
    "skill_workflow",
    "skill_after",
)


@dataclass(frozen=True)
class Gate:
    """What the finished base model must show on validation tasks, and how many seeds to try."""

    base_low: float
    base_high: float
    with_reference: float
    attempts: int = 3

    def passed(self, measured: dict[str, dict[str, float]]) -> bool:
        """Whether base reward and reward with a reference are where they should be."""
        base = measured["base"]["reward_mean"]
        reference = measured["with_reference"]["reward_mean"]
        return self.base_low <= base <= self.base_high and reference >= self.with_reference


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of this command."""
    add_settings(parser)
    parser.add_argument("--splits", required=True)
    parser.add_argument(
        "--conversations", action="append", default=[], metavar="NAME=FILE", help="recorded ones"
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--report", type=Path, required=True)


def run(args: argparse.Namespace) -> int:
    """Train, measure, save."""
    settings = start(args)
    prompts = read_prompts(settings["prompts"])
    training = build(BaseTraining, settings["training"], "base_model.training")
    gate = build(Gate, settings["gate"], "base_model.gate")
    seed = int(settings["seed"])
    conversations = {
        name: read_conversations(path)
        for name, path in (item.split("=", 1) for item in args.conversations)
    }
    words = tiny_vocabulary(vars(prompts).values())
    for recorded in conversations.values():
        words += conversation_vocabulary(recorded)
    tokenizer = build_tokenizer(words, settings["shape"].get("max_length", 1024))
    codec = ChatCodec(tokenizer, (tokenizer.eos_token_id,))
    corpus_settings = build(
        CorpusSettings,
        {
            **settings["corpus"],
            **{name: getattr(prompts, name) for name in CORPUS_PROMPTS},
        },
        "base_model.corpus",
    )
    forbidden = text_digests(args.splits, ("validation", "test"))
    texts = tool_prompts(prompts)
    shape = build(TinyShape, settings["shape"], "shape")
    special = [tokenizer.convert_tokens_to_ids(t) for t in tokenizer.all_special_tokens]
    for attempt in range(gate.attempts):
        rows: list[dict[str, Any]] = []
        corpus = build_corpus(codec, texts, corpus_settings, forbidden, seed + attempt)
        recorded_documents = []
        for name, share in corpus_settings.conversations.items():
            if name not in conversations:
                raise UserError(f"base_model.corpus.conversations: no --conversations {name}=FILE")
            count = round(share * corpus_settings.documents)
            recorded_documents += conversation_documents(codec, conversations[name], count)
        model = build_model(shape, tokenizer, seed + attempt)
        ids = tokenizer.pad_token_id, special
        train(model, corpus, training, *ids, seed + attempt, rows.append, recorded_documents)
        measured = _measure(model, codec, prompts, settings, args.splits)
        print(f"base model, attempt {attempt + 1}: {measured}", file=sys.stderr, flush=True)
        if gate.passed(measured):
            break
    else:
        raise UserError(
            f"base_model.gate: none of {gate.attempts} seeds from {seed} on passed; the last had "
            f"{measured['base']['reward_mean']:.3f} without and "
            f"{measured['with_reference']['reward_mean']:.3f} with a reference, allowed: "
            f"{gate.base_low} to {gate.base_high}, and {gate.with_reference} or more"
        )
    write_jsonl(args.report.with_suffix(".jsonl"), rows)
    write_json(args.report, {"seed": seed + attempt, "validation": measured, "gate": vars(gate)})
    save_model(args.out, model, tokenizer)
    return 0


def _measure(
    model: Any, codec: ChatCodec, prompts: Prompts, settings: dict[str, Any], splits: str
) -> dict[str, dict[str, float]]:
    """Validation scores without and with a reference of another task of the same procedure."""
    tasks: TaskSet = selection_tasks(splits)
    sampling = build(SamplingParams, settings["sampling"]["evaluation"], "sampling.evaluation")
    environment = build(EnvironmentSettings, settings["environment"], "environment")
    plan = EvaluationPlan(tuple(tasks.tasks), 1, int(settings["seed"]), sampling)
    rng = random.Random(f"references-{settings['seed']}")
    references = [
        TextContext(
            prompts.reference_before
            + lite_trace(demonstration(sample_task(rng, t.domain, t.family)).calls)
            + prompts.reference_after
        )
        for t in tasks.tasks.values()
    ]
    engine = HFEngine(model, codec.eos_ids, codec.pad_id)
    with EnvPool(environment.workers) as pool:
        episodes = ToolEpisodes(pool, max_steps=environment.max_steps)
        domain = ToolUseDomain(tasks, episodes, tool_prompts(prompts))
        return {
            "base": summary(evaluate(engine, codec, domain, plan)),
            "with_reference": summary(evaluate(engine, codec, domain, plan, references)),
        }
