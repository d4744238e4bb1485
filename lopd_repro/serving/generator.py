"""Generation for the server: requests join and leave a running batch one by one.

Differs from the rollout engine in that every request has limits, sampling and stop conditions of
its own, that new requests take the places of finished ones, and that the keys and values of a
known prompt beginning are reused.

A request's draws come from its own seed. In float64 rounding is some 1e9 times smaller than the
steps of the uniforms that tokens are drawn with, so the other requests of a batch do not change
its answer; in float32 they rarely do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from lopd_repro.errors import UserError
from lopd_repro.rollout.engine import SamplingParams
from lopd_repro.rollout.sampling import draw, uniforms_for
from lopd_repro.serving.prefixes import PrefixStore
from lopd_repro.serving.slot_cache import SlotCache

_PREFILL_TOKENS = 4096

Stopped = Callable[[Sequence[int]], bool]
"""Whether the sampled ids so far end the answer (a stop text, say)."""


@dataclass(frozen=True, eq=False)
class Generation:
    """What to generate: at most `max_tokens` ids after `ids`, drawn as `sampling` says.

    `stop_ids` end the answer beside the model's end tokens; so does `stopped`, where given, once
    it says so of the ids sampled so far.
    """

    ids: tuple[int, ...]
    max_tokens: int
    sampling: SamplingParams
    seed: int
    stop_ids: frozenset[int] = frozenset()
    stopped: Stopped | None = None


@dataclass(frozen=True)
class Answer:
    """Sampled ids, end token included; finish: `end` (an end token), `stop` or `length`."""

    ids: list[int]
    finish: str


@dataclass
class _Row:
    """A running request. `cached` positions of its slot hold keys and values."""

    job: Generation
    uniforms: list[float]
    cached: int
    out: list[int] = field(default_factory=list)

    def rest(self) -> tuple[int, ...]:
        return self.job.ids[self.cached :]


class Generator:
    """A batch of at most `max_batch` requests on one model; not for several threads."""

    def __init__(
        self, model: Any, eos_ids: Sequence[int], max_batch: int, prefix_bytes: int = 0
    ) -> None:
        attention = getattr(model.config, "_attn_implementation", "sdpa")
        if attention != "sdpa":
            raise UserError(f"server hf: found attention {attention!r}, allowed: sdpa")
        self.model = model.eval()
        self.eos_ids = frozenset(eos_ids)
        self.max_batch = max_batch
        self.reused_tokens = 0
        self._prefixes = PrefixStore(prefix_bytes)
        self._cache = SlotCache()
        self._rows: list[_Row | None] = []
        layers = getattr(model.config, "layer_types", None) or []
        self._window = int(model.config.sliding_window) if "sliding_attention" in layers else None

    @property
    def live(self) -> int:
        """Number of running requests."""
        return sum(row is not None for row in self._rows)

    @property
    def room(self) -> int:
        """How many more requests fit."""
        return self.max_batch - self.live

    @torch.inference_mode()
    def join(self, jobs: Sequence[Generation]) -> list[tuple[Generation, Answer]]:
        """Start requests and draw their first token; returns those that ended with it."""
        slots = self._free_slots(len(jobs))
        self._cache.reserve(len(self._rows), max(len(job.ids) for job in jobs) + 1)
        for slot, job in zip(slots, jobs, strict=True):
            uniforms = uniforms_for(job.seed, job.max_tokens).tolist()
            row = _Row(job, uniforms, self._reuse(slot, job.ids))
            self._rows[slot] = row
        slots.sort(key=lambda slot: len(self._row(slot).rest()))
        done = []
        while slots:
            # The longest of a chunk comes last; its length times the rows is what is computed.
            n = 1
            while n < len(slots) and (n + 1) * len(self._row(slots[n]).rest()) <= _PREFILL_TOKENS:
                n += 1
            done += self._prefill(slots[:n])
            slots = slots[n:]
        return done

    @torch.inference_mode()
    def step(self) -> list[tuple[Generation, Answer]]:
        """Draw one more token of every running request; returns those that ended."""
        self._compact()
        n = len(self._rows)
        # An idle slot computes along on its first place; nothing reads it.
        places = [0 if row is None else row.cached for row in self._rows]
        tokens = [0 if row is None else row.out[-1] for row in self._rows]
        width = max(places) + 1
        self._cache.reserve(n, width)
        at = torch.tensor(places)
        self._cache.aim(slice(n), width, torch.arange(n), at)
        logits = self._forward(torch.tensor(tokens)[:, None], at[:, None], width)
        slots = [slot for slot, row in enumerate(self._rows) if row is not None]
        for slot in slots:
            self._row(slot).cached += 1
        return self._draw(slots, logits if len(slots) == n else logits[torch.tensor(slots)])

    def _prefill(self, slots: list[int]) -> list[tuple[Generation, Answer]]:
        rests = [self._row(slot).rest() for slot in slots]
        starts = torch.tensor([self._row(slot).cached for slot in slots])
        lengths = torch.tensor([len(rest) for rest in rests])
        queries = int(lengths.max())
        ids = torch.zeros(len(slots), queries, dtype=torch.long)
        for i, rest in enumerate(rests):
            ids[i, queries - len(rest) :] = torch.tensor(rest)
        # Tokens stand at the right end, so that the last logits are those of the last token.
        offset = torch.arange(queries) - (queries - lengths)[:, None]
        fresh = (offset >= 0).flatten().nonzero()[:, 0]
        positions = starts[:, None] + offset.clamp(min=0)
        width = int((starts + lengths).max())
        rows = torch.tensor(slots)
        self._cache.aim(
            rows,
            width,
            rows[:, None].expand_as(positions).flatten()[fresh],
            positions.flatten()[fresh],
            fresh,
        )
        logits = self._forward(ids, positions, width)
        for slot in slots:
            self._row(slot).cached = len(self._row(slot).job.ids)
        return self._draw(slots, logits)

    def _forward(self, ids: torch.Tensor, positions: torch.Tensor, width: int) -> torch.Tensor:
        """Logits `[rows, vocabulary]` of the last token of each row of `ids` `[rows, queries]`."""
        device = self.model.device
        positions = positions.to(device)
        places = torch.arange(width, device=device)
        seen = places <= positions[:, None, :, None]
        mask: Any = seen
        if self._window is not None:
            near = places > positions[:, None, :, None] - self._window
            mask = {"full_attention": seen, "sliding_attention": seen & near}
        logits: torch.Tensor = self.model(
            input_ids=ids.to(device),
            attention_mask=mask,
            position_ids=positions,
            past_key_values=self._cache,
            use_cache=True,
            logits_to_keep=1,
        ).logits
        return logits[:, -1]

    def _draw(self, slots: list[int], logits: torch.Tensor) -> list[tuple[Generation, Answer]]:
        """Draw a token for each slot from its row of logits."""
        alike: dict[SamplingParams, list[int]] = {}
        for i, slot in enumerate(slots):
            alike.setdefault(self._row(slot).job.sampling, []).append(i)
        done = []
        for sampling, places in alike.items():
            rows = [self._row(slots[i]) for i in places]
            uniforms = torch.tensor([row.uniforms[len(row.out)] for row in rows])
            own = logits if len(alike) == 1 else logits[torch.tensor(places, device=logits.device)]
            ids = draw(own, sampling, uniforms.to(logits.device))[0].tolist()
            for i, row, token in zip(places, rows, ids, strict=True):
                row.out.append(token)
                finish = self._finish(row, token)
                if finish:
                    done.append((row.job, Answer(row.out, finish)))
                    self._leave(slots[i])
        return done

    def _finish(self, row: _Row, token: int) -> str:
        job = row.job
        if token in self.eos_ids:
            return "end"
        if token in job.stop_ids or (job.stopped is not None and job.stopped(row.out)):
            return "stop"
        return "length" if len(row.out) >= job.max_tokens else ""

    def _leave(self, slot: int) -> None:
        row = self._row(slot)
        self._rows[slot] = None
        if self._prefixes.limit:
            known = [*row.job.ids, *row.out][: row.cached]
            self._prefixes.put(known, self._cache.copy_out(slot, row.cached))

    def _reuse(self, slot: int, ids: tuple[int, ...]) -> int:
        found = self._prefixes.find(ids)
        if found is None:
            return 0
        length, span = found
        self._cache.copy_in(slot, span, length)
        self.reused_tokens += length
        return length

    def _free_slots(self, n: int) -> list[int]:
        if n > self.room:
            raise ValueError(f"{n} requests do not fit into {self.room} places")
        free = [slot for slot, row in enumerate(self._rows) if row is None][:n]
        while len(free) < n:
            free.append(len(self._rows))
            self._rows.append(None)
        return free

    def _compact(self) -> None:
        """Move rows to the front once half of the slots are idle."""
        if self.live * 2 > len(self._rows):
            return
        target = 0
        for slot, row in enumerate(self._rows):
            if row is not None:
                if slot != target:
                    self._cache.move(slot, target, row.cached)
                    self._rows[target], self._rows[slot] = row, None
                target += 1
        del self._rows[target:]

    def _row(self, slot: int) -> _Row:
        row = self._rows[slot]
        assert row is not None
        return row
