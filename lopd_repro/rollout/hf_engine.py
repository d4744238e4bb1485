"""In-process rollout engine on a transformers model.

A batch of episodes is prefilled left-padded; then all rows advance one token at a time in lock
step. A row either samples, or is fed the glue that its environment answered with, so turns of
different lengths need no re-batching and the key-value cache is kept across turns. Rows that
have ended are dropped from the batch once half of it has.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from lopd_repro.errors import UserError
from lopd_repro.models.backbone import fits_window
from lopd_repro.models.padding import distinct, left_pad
from lopd_repro.rollout.engine import OnTurns, Prompt, SamplingParams, Turn
from lopd_repro.rollout.kv_cache import GrowingCache
from lopd_repro.rollout.sampling import draw, uniforms_for


@dataclass
class _Row:
    index: int
    uniforms: list[float]
    limit: int
    forced: deque[int] = field(default_factory=deque)
    ids: list[int] = field(default_factory=list)
    logp: list[float] = field(default_factory=list)
    raw_logp: list[float] = field(default_factory=list)
    tail: int = 0
    turn_tokens: int = 0
    next_id: int = 0
    ended: bool = False

    def take_turn(self, finish: str) -> Turn:
        turn = Turn(self.ids, self.logp, self.raw_logp, finish)
        self.ids, self.logp, self.raw_logp = [], [], []
        return turn


class HFEngine:
    """Engine on a causal language model in this process.

    `max_batch` rows run at once. The model is used as it is, so weights are never stale:
    `sync_weights` only exchanges the model object.
    """

    def __init__(self, model: Any, eos_ids: tuple[int, ...], pad_id: int, max_batch: int = 64):
        self.eos_ids = frozenset(eos_ids)
        self.pad_id = pad_id
        self.max_batch = max_batch
        self.sync_weights(model)

    def sync_weights(self, model: Any) -> None:
        """Sample from this model from now on."""
        attention = getattr(model.config, "_attn_implementation", "sdpa")
        if attention != "sdpa":
            raise UserError(
                f"engine hf: found attention implementation {attention!r}, allowed: sdpa (the "
                "engine's boolean masks mean something else to others)"
            )
        self.model = model

    def reset_cache(self) -> None:
        """Nothing outlives a `run` here."""

    @torch.inference_mode()
    def run(self, prompts: Sequence[Prompt], sampling: SamplingParams, on_turns: OnTurns) -> None:
        """Sample every prompt's episode to its end."""
        was_training = self.model.training
        self.model.eval()
        for start in range(0, len(prompts), self.max_batch):
            chunk = range(start, min(start + self.max_batch, len(prompts)))
            self._run_chunk([(i, prompts[i]) for i in chunk], sampling, on_turns)
        self.model.train(was_training)

    def _run_chunk(
        self, chunk: list[tuple[int, Prompt]], sampling: SamplingParams, on_turns: OnTurns
    ) -> None:
        rows = [
            _Row(
                index,
                uniforms_for(prompt.seed, sampling.max_tail_tokens).tolist(),
                sampling.tail_limit(len(prompt.ids)),
            )
            for index, prompt in chunk
        ]
        self._check_window(
            max(len(p.ids) + row.limit for (_, p), row in zip(chunk, rows, strict=True))
        )
        device = self.model.device
        cache = GrowingCache()
        logits, mask = self._prefill([prompt for _, prompt in chunk], cache)
        positions = mask.sum(-1)
        while True:
            self._advance(rows, logits, sampling, on_turns)
            if all(row.ended for row in rows):
                return
            live = [i for i, row in enumerate(rows) if not row.ended]
            if len(live) * 2 <= len(rows):
                keep = torch.tensor(live, device=device)
                cache.keep_rows(keep)
                rows = [rows[i] for i in live]
                mask, positions = mask[keep], positions[keep]
            tokens = torch.tensor([[row.next_id] for row in rows], device=device)
            mask = torch.cat([mask, mask.new_ones(len(rows), 1)], dim=1)
            logits = self.model(
                input_ids=tokens,
                attention_mask=mask[:, None, None, :],
                position_ids=positions[:, None],
                past_key_values=cache,
                use_cache=True,
            ).logits[:, -1]
            positions = positions + 1

    def _prefill(
        self, prompts: list[Prompt], cache: GrowingCache
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Run each different prompt once; logits `[B, vocabulary]` and mask `[B, W]` of all."""
        places, index = distinct([_prompt_key(prompt) for prompt in prompts])
        different = [prompts[place] for place in places]
        padded = left_pad([prompt.ids for prompt in different], self.pad_id, self.model.device)
        embeddings = self.model.get_input_embeddings()(padded.ids)
        for i, prompt in enumerate(different):
            if prompt.embeddings is not None and prompt.span is not None:
                start, stop = (padded.offset(len(prompt.ids)) + place for place in prompt.span)
                embeddings[i, start:stop] = prompt.embeddings.to(embeddings)
        logits = self.model(
            inputs_embeds=embeddings,
            attention_mask=padded.attention,
            position_ids=padded.positions,
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=1,
        ).logits[:, -1]
        if len(different) == len(prompts):
            return logits, padded.mask
        rows = torch.tensor(index, device=self.model.device)
        cache.keep_rows(rows)
        return logits[rows], padded.mask[rows]

    def _advance(
        self, rows: list[_Row], logits: torch.Tensor, sampling: SamplingParams, on_turns: OnTurns
    ) -> None:
        """Choose each row's next id: a forced one, or a drawn one; report turns that ended."""
        drawing = [i for i, row in enumerate(rows) if not row.ended and not row.forced]
        finished: list[tuple[_Row, str]] = []
        if drawing:
            uniforms = torch.tensor([rows[i].uniforms[rows[i].tail] for i in drawing])
            if len(drawing) < len(rows):
                logits = logits[torch.tensor(drawing, device=logits.device)]
            drawn = draw(logits, sampling, uniforms.to(logits.device))
            ids, logp, raw = (part.tolist() for part in drawn)
            for k, i in enumerate(drawing):
                row = rows[i]
                row.ids.append(ids[k])
                row.logp.append(logp[k])
                row.raw_logp.append(raw[k])
                row.tail += 1
                row.turn_tokens += 1
                row.next_id = ids[k]
                if ids[k] in self.eos_ids:
                    finished.append((row, "eos"))
                elif row.tail >= row.limit:
                    finished.append((row, "budget"))
                elif row.turn_tokens >= sampling.max_turn_tokens:
                    finished.append((row, "length"))
                elif row.turn_tokens == sampling.max_thinking_tokens:
                    finished.append((row, "thinking"))
        drawn_rows = {id(rows[i]) for i in drawing}
        for row in rows:
            if not row.ended and id(row) not in drawn_rows:
                row.next_id = row.forced.popleft()
        if finished:
            self._answer(finished, on_turns)

    def _answer(self, finished: list[tuple[_Row, str]], on_turns: OnTurns) -> None:
        replies = on_turns([(row.index, row.take_turn(finish)) for row, finish in finished])
        for (row, finish), reply in zip(finished, replies, strict=True):
            room = row.limit - row.tail
            if reply is None:
                row.ended = True
            elif finish == "budget" or len(reply) >= room:
                raise UserError(
                    "episode loop: an episode went on although its token budget is spent"
                )
            else:
                row.forced.extend(reply)
                row.tail += len(reply)
                row.turn_tokens = row.turn_tokens + len(reply) if finish == "thinking" else 0

    def _check_window(self, length: int) -> None:
        if not fits_window(self.model, length):
            raise UserError(
                f"engine hf: episodes of up to {length} tokens do not fit the model's attention "
                f"window of {self.model.config.sliding_window}; shorten sampling.max_tail_tokens "
                "or use engine vllm"
            )


def _prompt_key(prompt: Prompt) -> Hashable:
    return prompt.ids, prompt.span, None if prompt.embeddings is None else id(prompt.embeddings)
