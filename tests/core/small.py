"""Small models, a word tokenizer, and a scripted domain for the tests of the training core."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch

from lopd_repro.data.tiny import tiny_vocabulary
from lopd_repro.models.backbone import Backbone
from lopd_repro.models.chat import ChatCodec
from lopd_repro.models.tiny_tokenizer import EOS, build_tokenizer
from lopd_repro.rollout.domain import Opening, TurnOutcome
from lopd_repro.rollout.engine import OnTurns, Prompt, SamplingParams, Turn
from lopd_repro.rollout.episodes import Trajectory
from lopd_repro.rollout.heads import build_head
from lopd_repro.training.method import load_method

GRPO: Any = load_method(Path(__file__).resolve().parents[2] / "baselines" / "grpo.py")
KINDS = ("qwen3", "olmo3", "llama")

torch.set_num_threads(1)


@cache
def tokenizer() -> Any:
    """The tiny backbones' tokenizer; never changed by a test."""
    return build_tokenizer(tiny_vocabulary(), 512)


def fresh_tokenizer(template: str | None = None) -> Any:
    """A tokenizer over a few words, with a template of the test's own."""
    made = build_tokenizer(["hello", "world", "tea", "cup"], 512)
    if template is not None:
        made.chat_template = template
    return made


def make_model(kind: str = "qwen3", seed: int = 0, dtype: torch.dtype = torch.float32) -> Any:
    """About 50,000 parameters; weights drawn wide, so that next tokens are far from uniform."""
    from transformers import (
        LlamaConfig,
        LlamaForCausalLM,
        Olmo3Config,
        Olmo3ForCausalLM,
        Qwen3Config,
        Qwen3ForCausalLM,
    )

    shape: dict[str, Any] = {
        "vocab_size": len(tokenizer()),
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 512,
        "initializer_range": 0.25,
        "tie_word_embeddings": kind == "qwen3",
        "bos_token_id": None,
        "eos_token_id": tokenizer().eos_token_id,
        "pad_token_id": tokenizer().pad_token_id,
    }
    torch.manual_seed(seed)
    if kind == "qwen3":
        model: Any = Qwen3ForCausalLM(Qwen3Config(**shape, head_dim=8))
    elif kind == "olmo3":
        model = Olmo3ForCausalLM(Olmo3Config(**shape, sliding_window=256))
    else:
        model = LlamaForCausalLM(LlamaConfig(**shape))
    return model.to(dtype).eval()


def end_ids(extra: int = 0) -> tuple[int, ...]:
    """The end token, and the first `extra` words as further ones so that turns end often."""
    end = int(tokenizer().eos_token_id)
    words = [i for i in range(len(tokenizer()) - 1, 0, -1) if i != end]
    return (end, *words[:extra])


def backbone(kind: str = "qwen3", seed: int = 0, extra_ends: int = 0) -> Backbone:
    """A small model with its tokenizer."""
    return Backbone(make_model(kind, seed), tokenizer(), end_ids(extra_ends))


def codec(extra_ends: int = 0) -> ChatCodec:
    """The codec of the tiny tokenizer."""
    return ChatCodec(tokenizer(), end_ids(extra_ends))


class ScriptDomain:
    """Two-turn episodes whose reward is a fixed function of what the policy wrote.

    Tasks named `nan...` end without a reward. `seen` collects what every turn said.
    """

    name = "script"

    def __init__(self, n_turns: int = 2, answer: str = "ok 3") -> None:
        self.n_turns = n_turns
        self.answer = answer
        self.seen: dict[int, list[str]] = {}
        self.tasks: dict[int, str] = {}
        self.was_cut: list[int] = []

    def opening(self, task_id: str) -> Opening:
        return Opening("be brief", f"task {task_id}")

    def task_text(self, task_id: str) -> str:
        return f"task {task_id}"

    def begin(self, requests: Sequence[tuple[str, int]]) -> list[int]:
        first = len(self.tasks)
        for offset, (task_id, _) in enumerate(requests):
            self.tasks[first + offset] = task_id
            self.seen[first + offset] = []
        return list(range(first, first + len(requests)))

    def turn(self, turns: Sequence[tuple[int, str]]) -> list[TurnOutcome]:
        outcomes = []
        for handle, text in turns:
            self.seen[handle].append(text)
            record = {"executed": True, "text": text}
            if len(self.seen[handle]) < self.n_turns:
                outcomes.append(TurnOutcome("tool", self.answer, False, record=record))
            else:
                reward = self.reward(self.tasks[handle], self.seen[handle])
                outcomes.append(TurnOutcome("user", "", True, reward, record=record))
        return outcomes

    def cut(self, handles: Sequence[int]) -> list[TurnOutcome]:
        self.was_cut += handles
        return [TurnOutcome("user", "", True, 0.0, "step_cap") for _ in handles]

    def trace(self, records: Sequence[dict[str, Any]]) -> str:
        return "\n".join(f"{i + 1}. {r['text']}" for i, r in enumerate(records) if "text" in r)

    @staticmethod
    def reward(task_id: str, texts: list[str]) -> float:
        if task_id.startswith("nan"):
            return math.nan
        return sum(ord(c) for text in texts for c in text) % 5 / 4


class ScriptedEngine:
    """Plays given ids instead of sampling; stands in for an engine to test the episode loop.

    `script(index, n)` gives prompt `index`'s n-th turn as (ids, finish).
    """

    def __init__(self, script: Callable[[int, int], tuple[list[int], str]]) -> None:
        self.script = script

    def run(self, prompts: Sequence[Prompt], sampling: SamplingParams, on_turns: OnTurns) -> None:
        live, n = list(range(len(prompts))), 0
        while live:
            turns = []
            for i in live:
                ids, finish = self.script(i, n)
                turns.append((i, Turn(ids, [-0.5] * len(ids), [-0.25] * len(ids), finish)))
            replies = on_turns(turns)
            live = [i for i, reply in zip(live, replies, strict=True) if reply is not None]
            n += 1

    def sync_weights(self, model: Any) -> None: ...

    def reset_cache(self) -> None: ...


@torch.no_grad()
def full_logits(model: Any, ids: Sequence[int]) -> torch.Tensor:
    """Logits `[len(ids), vocabulary]` of one fresh forward pass, without cache and padding."""
    out: torch.Tensor = model(input_ids=torch.tensor([list(ids)]), use_cache=False).logits[0]
    return out


def trajectory(
    task_id: str, head: Sequence[int], turns: Sequence[tuple[str, bool]], reward: float = 1.0
) -> Trajectory:
    """A trajectory from texts: (text, sampled) parts; sampled parts end with the end token."""
    made = Trajectory(task_id, 0, tuple(head), reward=reward, status="ok")
    for text, sampled in turns:
        ids = tokenizer().encode(text + (EOS if sampled else ""), add_special_tokens=False)
        made.tail += ids
        made.supervised += [sampled] * len(ids)
        made.logp += [0.0] * len(ids)
        made.raw_logp += [0.0] * len(ids)
    return made


def grouped(rewards: Sequence[float], other: str) -> list[Trajectory]:
    """A group of three on t0 and one rollout on `other`; sampled parts, glue between two."""
    domain, made = ScriptDomain(), []
    parts = [
        [("ab", True), ("\nok\n", False), ("Task Completed", True)],
        [("c", True)],
        [("de" * 5, True), ("\n", False), ("f", True)],
        [("gh", True)],
    ]
    for i, (texts, reward) in enumerate(zip(parts, rewards, strict=True)):
        task = other if i == 3 else "t0"
        head = build_head(codec(), domain.opening(task)).head.ids
        made.append(trajectory(task, head, texts, reward))
        made[-1].group = int(i == 3)
        made[-1].records = [{"executed": True, "text": f"step {i}"}]
    return made
