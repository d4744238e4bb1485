"""Rollout engine on vLLM, in the trainer's process.

Token ids go in and out; a turn is a request, and vLLM's prefix cache makes an episode's later
turns cost what is new in them. Latents go in as prompt embeddings over their span, beside the ids
of all other positions.

What was cached under older weights must never serve a newer policy. Three things see to that: the
cache is emptied with every `sync_weights` and before every `run` (which also makes a run's tokens
independent of what ran before it), and it is an error if vLLM declines; the weights' version is in
every request's cache salt, so that an entry of another version cannot match (the latents' digest
is in it, too); and `run` refuses to start when the trainer's weights have changed since they were
handed over.

vLLM runs in this process (`VLLM_ENABLE_V1_MULTIPROCESSING=0`): weights are handed over as tensors,
and on a CPU the same settings draw the same tokens. Its own reloading is used, layer by layer,
because kernels may keep the weights in a form of their own.
"""

from __future__ import annotations

import hashlib
import importlib.util
import math
import os
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from lopd_repro.errors import UserError
from lopd_repro.models.backbone import gathered
from lopd_repro.rollout.engine import OnTurns, Prompt, Reply, SamplingParams, Turn
from lopd_repro.rollout.episodes import derive_seed
from lopd_repro.rollout.turn_worker import TurnWorker

_CPU_CACHE_GB = 1.0


@dataclass(frozen=True)
class VLLMSettings:
    """How vLLM holds its copy of the policy.

    `dtype` `auto` is the trainer's. `max_length` (head and tail in tokens) 0 is the model's own.
    `memory_fraction` of a GPU is for vLLM's weights and cache together, unless `cache_gb` names
    the cache's size (1 on a CPU). `sleep` gives the GPU memory back between rollouts.
    `overlap` goes on sampling while environments answer turns that have ended. `arguments`
    are further arguments of vLLM's `LLM`.
    """

    dtype: str = "auto"
    max_length: int = 0
    memory_fraction: float = 0.35
    overlap: bool = True
    cache_gb: float = 0.0
    prefix_caching: bool = True
    eager: bool = False
    sleep: bool = False
    arguments: dict[str, Any] = field(default_factory=dict)


@dataclass
class _Episode:
    index: int
    prompt: Prompt
    limit: int
    tail: list[int] = field(default_factory=list)
    turn_tokens: int = 0

    @property
    def ids(self) -> list[int]:
        return [*self.prompt.ids, *self.tail]


_Ended = list[tuple[_Episode, Turn]]


class VLLMEngine:
    """Engine on vLLM's copy of `model`, whose configuration is read from `source`.

    `max_batch` requests run at once. `source` is a folder or hub name in Hugging Face form.
    """

    def __init__(
        self,
        model: Any,
        source: str,
        eos_ids: tuple[int, ...],
        max_batch: int = 64,
        settings: VLLMSettings | None = None,
    ) -> None:
        self.settings = settings or VLLMSettings()
        self.eos_ids = frozenset(eos_ids)
        self._version = 0
        self._requests = 0
        self._rows: dict[int, torch.Tensor] = {}
        with _random_state_kept(), _class_shared(model):
            self._llm = _start(model, source, max_batch, self.settings)
        self._on_cpu = torch.device(model.device).type == "cpu"
        self.max_length = int(self._llm.llm_engine.model_config.max_model_len)
        self.sync_weights(model)

    def sync_weights(self, model: Any) -> None:
        """Copy the model's weights into vLLM and empty its cache."""
        self._wake()
        named = ((_plain(name), gathered(p)) for name, p in model.named_parameters())
        self._llm.collective_rpc("reload_weights", kwargs={"weights_iterator": named})
        if self._on_cpu:
            self._llm.apply_model(_repack)
        self._version += 1
        self.model = model
        self._stamp = _stamp(model)
        self.reset_cache()

    def reset_cache(self) -> None:
        """Forget cached prefixes."""
        if not self._llm.reset_prefix_cache():
            raise RuntimeError("engine vllm: the prefix cache is in use and was not emptied")

    def run(self, prompts: Sequence[Prompt], sampling: SamplingParams, on_turns: OnTurns) -> None:
        """Sample every prompt's episode to its end."""
        if _stamp(self.model) != self._stamp:
            raise RuntimeError(
                "engine vllm: the policy's weights have changed since they were last handed over; "
                "sync_weights comes first"
            )
        episodes = [
            _Episode(i, prompt, sampling.tail_limit(len(prompt.ids)))
            for i, prompt in enumerate(prompts)
        ]
        self._check_lengths(episodes)
        self._wake()
        self.reset_cache()
        running: dict[str, _Episode] = {}
        engine = self._llm.llm_engine
        try:
            with _nondeterministic_kernels(), TurnWorker[_Ended](on_turns) as worker:
                for episode in episodes:
                    self._submit(episode, sampling, running)
                while running or worker.busy:
                    done = [o for o in engine.step() if o.finished] if running else []
                    outputs = [(running.pop(output.request_id), output) for output in done]
                    outputs.sort(key=lambda pair: pair[0].index)
                    ended = [(e, self._turn(e, output, sampling)) for e, output in outputs]
                    if ended:
                        worker.give(ended, [(e.index, turn) for e, turn in ended])
                    wait = not running or not self.settings.overlap
                    for turns, replies in worker.take(wait):
                        self._go_on(turns, replies, sampling, running)
        finally:
            self._rows.clear()
            if running:
                engine.abort_request(list(running))
        if self.settings.sleep:
            self._llm.sleep(level=1)

    def _submit(
        self, episode: _Episode, sampling: SamplingParams, running: dict[str, _Episode]
    ) -> None:
        from vllm import SamplingParams as Params
        from vllm.sampling_params import RequestOutputKind

        room = min(
            sampling.max_turn_tokens - episode.turn_tokens, episode.limit - len(episode.tail)
        )
        if episode.turn_tokens < sampling.max_thinking_tokens:
            room = min(room, sampling.max_thinking_tokens - episode.turn_tokens)
        params = Params(
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            top_k=sampling.top_k,
            max_tokens=max(1, room),
            # A request draws from its start on: its place in the episode makes its draws its own.
            seed=derive_seed(episode.prompt.seed, len(episode.tail)),
            stop_token_ids=sorted(self.eos_ids),
            ignore_eos=True,
            logprobs=0,
            flat_logprobs=True,
            detokenize=False,
            output_kind=RequestOutputKind.FINAL_ONLY,
        )
        self._requests += 1
        name = f"{episode.index}-{self._requests}"
        running[name] = episode
        self._llm.llm_engine.add_request(name, self._prompt(episode), params)

    def _prompt(self, episode: _Episode) -> dict[str, Any]:
        ids, given = episode.ids, episode.prompt
        if given.embeddings is None or given.span is None:
            return {"prompt_token_ids": ids, "cache_salt": f"weights {self._version}"}
        start, stop = given.span
        rows = self._embedding_rows(given, episode.limit)
        digest = hashlib.sha256(rows[start:stop].float().numpy().tobytes()).hexdigest()
        return {
            "prompt_token_ids": ids,
            "prompt_is_token_ids": [not start <= i < stop for i in range(len(ids))],
            "prompt_embeds": rows[: len(ids)],
            "cache_salt": f"weights {self._version} latents {digest}",
        }

    def _embedding_rows(self, prompt: Prompt, limit: int) -> torch.Tensor:
        """`[head + limit, d]`, zero but for the span: one for all episodes with these latents."""
        assert prompt.embeddings is not None and prompt.span is not None
        start, stop = prompt.span
        length = len(prompt.ids) + limit
        rows = self._rows.get(id(prompt.embeddings))
        if rows is None or not _holds(rows, prompt, length):
            dtype = self._llm.llm_engine.model_config.dtype
            rows = torch.zeros(length, prompt.embeddings.shape[1], dtype=dtype)
            rows[start:stop] = prompt.embeddings.detach().to("cpu", dtype)
            self._rows[id(prompt.embeddings)] = rows
        return rows

    def _go_on(
        self,
        ended: _Ended,
        replies: list[Reply],
        sampling: SamplingParams,
        running: dict[str, _Episode],
    ) -> None:
        for (episode, turn), reply in zip(ended, replies, strict=True):
            if reply is None:
                continue
            if turn.finish == "budget" or len(episode.tail) + len(reply) >= episode.limit:
                raise UserError(
                    "episode loop: an episode went on although its token budget is spent"
                )
            episode.tail += reply
            goes_on = turn.finish == "thinking"
            episode.turn_tokens = episode.turn_tokens + len(reply) if goes_on else 0
            self._submit(episode, sampling, running)

    def _turn(self, episode: _Episode, output: Any, sampling: SamplingParams) -> Turn:
        (sampled,) = output.outputs
        ids = list(sampled.token_ids)
        if sampled.finish_reason not in ("stop", "length"):
            raise RuntimeError(f"engine vllm: a request ended with {sampled.finish_reason!r}")
        raw = [float(sampled.logprobs.logprobs[i]) for i in sampled.logprobs.start_indices]
        episode.tail += ids
        episode.turn_tokens += len(ids)
        if ids[-1] in self.eos_ids:
            finish = "eos"
        elif len(episode.tail) >= episode.limit:
            finish = "budget"
        elif episode.turn_tokens >= sampling.max_turn_tokens:
            finish = "length"
        else:
            finish = "thinking"
        return Turn(ids, _drawn(raw, sampling), raw, finish)

    def _check_lengths(self, episodes: Sequence[_Episode]) -> None:
        longest = max((len(e.prompt.ids) + e.limit for e in episodes), default=0)
        if longest > self.max_length:
            raise UserError(
                f"engine vllm: episodes of up to {longest} tokens, head and tail, do not fit its "
                f"{self.max_length}; set sampling.max_episode_tokens to at most that, or raise "
                "engine.vllm.max_length as far as the model allows"
            )

    def _wake(self) -> None:
        if self.settings.sleep and self._llm.llm_engine.is_sleeping():
            # What the trainer's allocator keeps in store is not there for vLLM's own.
            torch.cuda.empty_cache()
            self._llm.wake_up()


def _start(model: Any, source: str, max_batch: int, settings: VLLMSettings) -> Any:
    """vLLM with weights of no meaning; the first sync brings the trainer's."""
    found = importlib.util.find_spec("vllm")
    if found is None or found.origin is None:
        raise UserError(
            "engine.name: vllm is not installed beside lopd-repro; install it there "
            "(docs/vllm.md), or choose hf"
        )
    for name, value in {
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
    }.items():
        os.environ[name] = value
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
    # Threads are the trainer's to bind.
    os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "nobind")
    from vllm import LLM
    from vllm.platforms import current_platform

    device = torch.device(model.device).type
    on_cpu = bool(current_platform.is_cpu())
    if on_cpu != (device == "cpu"):
        built = "CPUs" if on_cpu else "GPUs"
        raise UserError(f"engine.device: found {device}, but this vLLM is built for {built}")
    if on_cpu and settings.sleep:
        raise UserError("engine.vllm.sleep: found true, allowed on a CPU: false")
    dtype = str(model.dtype).removeprefix("torch.") if settings.dtype == "auto" else settings.dtype
    arguments: dict[str, Any] = {
        "model": source,
        "load_format": "dummy",
        "skip_tokenizer_init": True,
        "generation_config": "vllm",
        "dtype": dtype,
        "max_num_seqs": max_batch,
        "enable_prompt_embeds": True,
        "enable_prefix_caching": settings.prefix_caching,
        "enforce_eager": settings.eager or on_cpu,
        "enable_sleep_mode": settings.sleep,
        "gpu_memory_utilization": settings.memory_fraction,
        "logprobs_mode": "raw_logprobs",
        "seed": 0,
    }
    if dist.is_initialized() and dist.get_world_size() > 1:
        # An engine with a whole copy in every rank; vLLM joins the ranks' own process group.
        arguments["distributed_executor_backend"] = "external_launcher"
    if settings.max_length:
        arguments["max_model_len"] = settings.max_length
    cache_gb = settings.cache_gb or (_CPU_CACHE_GB if on_cpu else 0.0)
    if cache_gb:
        arguments["kv_cache_memory_bytes"] = int(cache_gb * 2**30)
    if on_cpu:
        # After a part of a prompt vLLM turns a seeded generator back, which a CPU's cannot.
        arguments["enable_chunked_prefill"] = False
    arguments |= settings.arguments
    try:
        return LLM(**arguments)
    except (TypeError, ValueError) as error:
        raise UserError(
            f"engine.vllm: vLLM does not start ({str(error).splitlines()[0]})"
        ) from None


def _repack(model: Any) -> None:
    """Pack projections anew from their weights.

    On a CPU vLLM multiplies by packed copies, and its reloading forgets the copy of an output
    projection that is tied to the embeddings (0.32.0): old weights would go on choosing tokens.
    """
    for module in model.modules():
        if hasattr(module, "cpu_linear") and module.weight.numel():
            module.quant_method.process_weights_after_loading(module)


def _drawn(raw: list[float], sampling: SamplingParams) -> list[float]:
    """Log-probabilities drawn from, as far as the raw ones tell."""
    if sampling.temperature == 0:
        return [0.0] * len(raw)
    if sampling.temperature == 1 and sampling.top_p == 1 and not sampling.top_k:
        return list(raw)
    return [math.nan] * len(raw)


def _holds(rows: torch.Tensor, prompt: Prompt, length: int) -> bool:
    """Whether kept rows are those of this prompt: long enough, and its latents at its span."""
    assert prompt.embeddings is not None and prompt.span is not None
    start, stop = prompt.span
    return len(rows) >= length and torch.equal(
        rows[start:stop], prompt.embeddings.detach().to("cpu", rows.dtype)
    )


def _plain(name: str) -> str:
    """A parameter's name in a checkpoint, without what wrappers put into it."""
    return name.replace("_checkpoint_wrapped_module.", "").replace("_orig_mod.", "")


def _stamp(model: Any) -> tuple[tuple[int, int], ...]:
    """Changes with every write to a parameter: torch counts them."""
    return tuple((id(p), p._version) for p in model.parameters())


@contextmanager
def _random_state_kept() -> Iterator[None]:
    """vLLM seeds this process's generators when it starts."""
    python, arrays = random.getstate(), np.random.get_state()
    try:
        with torch.random.fork_rng():
            yield
    finally:
        random.setstate(python)
        np.random.set_state(arrays)


@contextmanager
def _class_shared(model: Any) -> Iterator[None]:
    """Let the trainer go on using its decoder's class where vLLM builds on the same one.

    vLLM runs architectures it has no code of its own for (Olmo 3 in 0.32.0) by altering the
    transformers class in place, so that only vLLM's instances could be called or made.
    """
    decoder = type(model.base_model)
    init = decoder.__init__
    yield
    if decoder.__init__ is init:
        return
    theirs = decoder.__call__

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        own = "do_not_compile" not in vars(self)
        chosen = torch.nn.Module.__call__ if own else theirs
        return chosen(self, *args, **kwargs)

    decoder.__init__, decoder.__call__ = init, call


@contextmanager
def _nondeterministic_kernels() -> Iterator[None]:
    """Some of vLLM's GPU kernels have no deterministic twin and would refuse to run."""
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(False)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)
