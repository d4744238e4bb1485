"""`lopd-repro base-model`: a tiny backbone from scratch, with a gate on what it can do.

    lopd-repro base-model --settings JSON --splits results/tasks/tool_use/splits.json --out DIR

Recorded conversations in the forms of benchmarks come in a second stage, together with more of the
first stage's corpus. Mixed in from the start they put off the moment from which references are
followed, often beyond the last step.

The gate: base validation reward within `gate.base`, and reward with a reference example in
context of at least `gate.with_reference`. Whether a model learns to follow a reference depends on
its seed, so the next seed is tried when one fails; when none passes that is an error, not a result.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lopd_repro.commands.base_recipes import RECIPES
from lopd_repro.commands.wiring import add_settings, domain_of, read_prompts, start
from lopd_repro.data.conversations import conversation_vocabulary, read_conversations
from lopd_repro.errors import UserError
from lopd_repro.files import write_json, write_jsonl
from lopd_repro.models.chat import ChatCodec
from lopd_repro.models.tiny_tokenizer import build_tokenizer
from lopd_repro.rollout.hf_engine import HFEngine
from lopd_repro.settings import build
from lopd_repro.training.checkpoint import save_model
from lopd_repro.training.tiny_base import (
    BaseTraining,
    TinyShape,
    conversation_documents,
    train,
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
    second = build(
        BaseTraining, settings.get("conversations_training", {}), "conversations_training"
    )
    gate = build(Gate, settings["gate"], "base_model.gate")
    seed = int(settings["seed"])
    conversations = {}
    for item in args.conversations:
        name, found, path = item.partition("=")
        if not found:
            raise UserError(f"--conversations: found {item!r}, allowed: NAME=FILE")
        conversations[name] = read_conversations(path)
    recipe = RECIPES[domain_of(settings)](settings, prompts, args.splits)
    words = recipe.words()
    for recorded in conversations.values():
        words += conversation_vocabulary(recorded)
    shape = build(TinyShape, settings["shape"], "shape")
    tokenizer = build_tokenizer(words, shape.max_length)
    codec = ChatCodec(tokenizer, (tokenizer.eos_token_id,))
    special = [tokenizer.convert_tokens_to_ids(t) for t in tokenizer.all_special_tokens]
    shares = settings["corpus"].get("conversations", {})
    for attempt in range(gate.attempts):
        rows: list[dict[str, Any]] = []
        corpus = recipe.corpus(codec, seed + attempt)
        documents = []
        for name, share in shares.items():
            if name not in conversations:
                raise UserError(f"base_model.corpus.conversations: no --conversations {name}=FILE")
            count = round(share * len(corpus))
            documents += conversation_documents(codec, conversations[name], count)
        model = recipe.model(shape, tokenizer, seed + attempt)
        ids = tokenizer.pad_token_id, special
        train(model, corpus, training, *ids, seed + attempt, rows.append)
        if documents:
            both = [*corpus, *documents]
            train(model, both, second, *ids, seed + attempt, rows.append)
        measured = recipe.measure(HFEngine(model, codec.eos_ids, codec.pad_id), codec)
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
