"""Trains a tiny backbone from scratch on noisy demonstrations of the bundled tasks.

The corpus makes a base model that the methods can improve: it knows the tools, is right about
the hidden procedure only part of the time, and follows a reference when one stands in its
prompt. References show random procedures that the demonstrator then follows, so that the model
has to read them. Copy drills (random segments, repeated) come first: without them in-context
copying did not appear at this size.
"""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from lopd_repro.data.conversations import Conversations, supervised_ids
from lopd_repro.data.tiny import (
    DOMAINS,
    Episode,
    Noise,
    Procedure,
    demonstration,
    environment,
    lite_trace,
    random_procedure,
    sample_task,
)
from lopd_repro.errors import UserError
from lopd_repro.models.chat import ChatCodec
from lopd_repro.rollout.heads import TextContext, build_head
from lopd_repro.rollout.tool_use import ToolPrompts, tool_opening


@dataclass(frozen=True)
class TinyShape:
    """Sizes of a tiny backbone, heads of 32; `architecture` is `qwen3`, or `olmo3` for code."""

    hidden: int = 128
    layers: int = 2
    feed_forward: int = 384
    max_length: int = 1024
    architecture: str = "qwen3"


@dataclass(frozen=True)
class CorpusSettings:
    """Shares of the document kinds and the demonstrator's mistakes.

    The shares of documents with a reference of the same task, of the same family, and of any
    family; the rest has none. follow: how often the demonstrator follows a same-task or
    same-family reference. in_system: share of references at the end of the system message instead
    of the first user message; a mixture makes reading them come much later in training. as_skill:
    share of references framed as a skill, with lists of calls to make and to avoid before them.
    """

    documents: int = 8000
    same_task: float = 0.15
    same_family: float = 0.32
    any_family: float = 0.08
    follow: float = 0.95
    in_system: float = 0.0
    as_skill: float = 0.0
    noise: dict[str, float] = field(default_factory=dict)
    reference_before: str = ""
    reference_after: str = ""
    skill_works: str = ""
    skill_avoid: str = ""
    skill_workflow: str = ""
    skill_after: str = ""


@dataclass(frozen=True)
class BaseTraining:
    """Optimiser and drills of one stage. Shares are of the steps or of the batch."""

    steps: int = 1400
    batch: int = 32
    lr: float = 3e-3
    weight_decay: float = 0.01
    drill_share: float = 0.25
    drill_until: float = 0.3
    all_tokens_until: float = 0.25


@dataclass(frozen=True)
class Document:
    """Token ids with the assistant's marked."""

    ids: tuple[int, ...]
    assistant: tuple[bool, ...]


def sizes(shape: TinyShape, tokenizer: Any) -> dict[str, Any]:
    """What the configuration of every architecture says of a shape."""
    return {
        "vocab_size": len(tokenizer),
        "hidden_size": shape.hidden,
        "intermediate_size": shape.feed_forward,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.hidden // 32,
        "num_key_value_heads": shape.hidden // 32,
        "tie_word_embeddings": True,
        "max_position_embeddings": shape.max_length,
        "bos_token_id": None,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
    }


def build_model(shape: TinyShape, tokenizer: Any, seed: int) -> Any:
    """An untrained model with its end and pad tokens configured."""
    from transformers import GenerationConfig, Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(seed)
    config = Qwen3Config(head_dim=32, **sizes(shape, tokenizer))
    model = Qwen3ForCausalLM(config)
    model.generation_config = GenerationConfig(
        eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id
    )
    return model


def build_corpus(
    codec: ChatCodec,
    prompts: ToolPrompts,
    settings: CorpusSettings,
    forbidden_texts: Collection[str],
    seed: int,
) -> list[Document]:
    """Documents of noisy demonstrations; tasks whose text digest is forbidden never appear."""
    rng = random.Random(f"tiny-corpus-{seed}")
    return [
        _document(codec, prompts, settings, forbidden_texts, rng) for _ in range(settings.documents)
    ]


def conversation_documents(
    codec: ChatCodec, conversations: Conversations, count: int
) -> list[Document]:
    """The first `count` recorded conversations; `UserError` if the file holds fewer."""
    found = conversations.segments
    if len(found) < count:
        raise UserError(f"conversations: found {len(found)}, the corpus asks for {count}")
    end_id = codec.eos_ids[0]
    end_token = codec.tokenizer.convert_ids_to_tokens(end_id)
    documents = []
    for segments in found[:count]:
        ids, own = supervised_ids(segments, codec.encode, end_token, end_id)
        documents.append(Document(tuple(ids), tuple(own)))
    return documents


def train(
    model: Any,
    corpus: list[Document],
    settings: BaseTraining,
    pad_id: int,
    special_ids: Collection[int],
    seed: int,
    log: Callable[[dict[str, float]], None],
) -> None:
    """Train in place; one thread gives the same weights every time."""
    rng = random.Random(f"tiny-base-{seed}")
    generator = torch.Generator().manual_seed(seed)
    words = torch.tensor([i for i in range(model.config.vocab_size) if i not in set(special_ids)])
    optimiser = torch.optim.AdamW(
        model.parameters(), lr=settings.lr, weight_decay=settings.weight_decay, betas=(0.9, 0.95)
    )
    batches = _batches(corpus, settings.batch, rng)
    model.train()
    for step in range(settings.steps):
        progress = step / settings.steps
        drills = (
            int(settings.batch * settings.drill_share) if progress < settings.drill_until else 0
        )
        chosen = next(batches)[drills:]
        chosen += [_drill(words, generator, rng) for _ in range(drills)]
        loss = _loss(model, chosen, pad_id, progress < settings.all_tokens_until)
        for group in optimiser.param_groups:
            group["lr"] = settings.lr * _rate(step, settings.steps)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        log({"step": step + 1, "loss": float(loss.detach())})
        if (step + 1) % 100 == 0:
            print(
                f"base model step {step + 1}/{settings.steps}: loss {float(loss.detach()):.4f}",
                file=sys.stderr,
                flush=True,
            )
    model.eval()


def _batches(corpus: list[Document], size: int, rng: random.Random) -> Iterator[list[Document]]:
    """Endless batches of documents of like length, each batch in a random order."""
    while True:
        pool = sorted(
            (corpus[rng.randrange(len(corpus))] for _ in range(16 * size)),
            key=lambda document: len(document.ids),
        )
        batches = [pool[start : start + size] for start in range(0, len(pool), size)]
        rng.shuffle(batches)
        for batch in batches:
            rng.shuffle(batch)
            yield batch


def _rate(step: int, steps: int) -> float:
    warm = min(1.0, (step + 1) / 50)
    return warm * (0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * step / steps)))


def _loss(model: Any, documents: list[Document], pad_id: int, all_tokens: bool) -> torch.Tensor:
    width = max(len(d.ids) for d in documents)
    ids = torch.full((len(documents), width), pad_id)
    keep = torch.zeros(len(documents), width, dtype=torch.bool)
    for i, document in enumerate(documents):
        ids[i, : len(document.ids)] = torch.tensor(document.ids)
        marked = torch.ones(len(document.ids), dtype=torch.bool)
        if not all_tokens:
            marked = torch.tensor(document.assistant)
        keep[i, : len(document.ids)] = marked
    keep[:, 0] = False
    hidden = model.base_model(input_ids=ids, use_cache=False).last_hidden_state
    logits = model.get_output_embeddings()(hidden[:, :-1][keep[:, 1:]])
    return torch.nn.functional.cross_entropy(logits, ids[:, 1:][keep[:, 1:]])


def _drill(words: torch.Tensor, generator: torch.Generator, rng: random.Random) -> Document:
    """A random segment, repeated two to four times."""
    length = rng.randint(8, 32)
    picks = torch.randint(len(words), (length,), generator=generator)
    segment = words[picks].tolist()
    times = rng.randint(2, 4)
    marked = [False] * length + [True] * (length * (times - 1))
    return Document(tuple(segment * times), tuple(marked))


def _document(
    codec: ChatCodec,
    prompts: ToolPrompts,
    settings: CorpusSettings,
    forbidden: Collection[str],
    rng: random.Random,
) -> Document:
    domain = rng.choice(list(DOMAINS.values()))
    family = rng.choice(domain.families)
    task = sample_task(rng, domain.name, family.name, forbidden_texts=forbidden)
    noise = Noise(**settings.noise)
    kind = rng.random()
    shown: Episode | None = None
    procedure: Procedure | None = None
    if kind < settings.same_task + settings.same_family + settings.any_family:
        if kind < settings.same_task:
            other = task
        elif kind < settings.same_task + settings.same_family:
            other = sample_task(rng, domain.name, family.name, forbidden_texts=forbidden)
        else:
            odd = rng.choice(list(DOMAINS.values()))
            other = sample_task(
                rng, odd.name, rng.choice(odd.families).name, forbidden_texts=forbidden
            )
        shown = demonstration(
            other, rng=rng, procedure=random_procedure(_domain_of(other.env_id), rng)
        )
        followed = kind < settings.same_task + settings.same_family
        if followed and rng.random() < settings.follow:
            calls = [call.tool for call in shown.calls]
            procedure = _procedure_of(calls, domain.name)
            noise = Noise()
    episode = demonstration(task, rng=rng, noise=noise, procedure=procedure)
    context = None
    if shown is not None:
        text = settings.reference_before + lite_trace(shown.calls) + settings.reference_after
        if settings.as_skill > 0 and rng.random() < settings.as_skill:
            text = _as_skill(shown, settings, rng)
        in_system = settings.in_system > 0 and rng.random() < settings.in_system
        context = TextContext(text, "end_of_system" if in_system else "end_of_first_user")
    head = build_head(codec, tool_opening(task, environment(domain.name), prompts), context)
    ids = list(head.head.ids)
    assistant = [False] * len(ids)
    for place, turn in enumerate(episode.turns):
        if turn.role == "assistant":
            sampled = [*codec.encode(turn.text), codec.eos_ids[0]]
            ids += sampled
            assistant += [True] * len(sampled)
        elif place + 1 < len(episode.turns):
            glue = codec.glue("tool", turn.text, after_eos=True)
            ids += glue
            assistant += [False] * len(glue)
    return Document(tuple(ids), tuple(assistant))


def _as_skill(shown: Episode, settings: CorpusSettings, rng: random.Random) -> str:
    """A reference framed as Skill-SD's skills are; what to avoid is some of the other steps."""
    made = [call.tool for call in shown.calls]
    domain = DOMAINS[_domain_of(shown.task.env_id)]
    others = [tool for tool in (*domain.pre_steps, *domain.post_steps) if tool not in made]
    avoided = rng.sample(others, rng.randint(0, min(3, len(others))))
    return (
        settings.skill_works
        + ", ".join(made)
        + settings.skill_avoid
        + (", ".join(avoided) or "-")
        + settings.skill_workflow
        + lite_trace(shown.calls)
        + settings.skill_after
    )


def _domain_of(env_id: str) -> str:
    return next(name for name in DOMAINS if environment(name).env_id == env_id)


def _procedure_of(calls: list[str], domain_name: str) -> Procedure:
    domain = DOMAINS[domain_name]
    pre = next((c for c in calls if c in domain.pre_steps), None)
    post = next((c for c in calls if c in domain.post_steps), None)
    return Procedure(pre, post)
