"""What a served checkpoint is asked to do, and where it answers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from lopd_repro.errors import UserError

ENGINES = ("hf", "vllm")
DTYPES = ("float64", "float32", "bfloat16", "float16")


@dataclass(frozen=True)
class ServerSettings:
    """The configuration's `serve` section.

    engine: `hf` (our own server on a transformers model) or `vllm` (in the environment whose
    interpreter is `python`).
    dtype: `float64` needs `hf`; it keeps rounding too small for batching to change a sample.
    seed: of every draw; `hf` derives a request's draws from it, the request's own seed and the
    request's prompt ids.
    temperature, top_p, top_k: used where a request names none.
    max_batch: requests that run at once. max_length: bound on prompt and answer together in
    tokens, 0 for the model's own. prefix_cache_mb: memory in which `hf` remembers prompts to reuse
    their beginnings, 0 for none. startup_seconds: until the server must answer.
    tool_call_parser: how tool calls are read from a reply; `hf` knows `hermes` alone.
    template_options: go to the chat template (`enable_thinking` and the like).
    arguments: further options of vLLM's command line.
    """

    engine: str = "hf"
    dtype: str = "float32"
    seed: int = 0
    temperature: float = 0.7
    top_p: float = 1.0
    top_k: int = 0
    max_batch: int = 64
    max_length: int = 0
    prefix_cache_mb: int = 256
    startup_seconds: float = 600.0
    python: str = ""
    tool_call_parser: str = "hermes"
    template_options: dict[str, Any] = field(default_factory=dict)
    arguments: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self._one_of("engine", self.engine, ENGINES)
        self._one_of("dtype", self.dtype, DTYPES if self.engine == "hf" else DTYPES[1:])
        self._at_least("temperature", self.temperature, 0)
        self._at_least("top_k", self.top_k, 0)
        self._at_least("max_batch", self.max_batch, 1)
        self._at_least("max_length", self.max_length, 0)
        self._at_least("prefix_cache_mb", self.prefix_cache_mb, 0)
        if not 0 < self.top_p <= 1:
            raise UserError(f"serve.top_p: found {self.top_p}, allowed: above 0 and up to 1")
        if self.startup_seconds <= 0:
            raise UserError(
                f"serve.startup_seconds: found {self.startup_seconds}, allowed: above 0"
            )
        if self.engine == "hf":
            self._one_of("tool_call_parser", self.tool_call_parser, ("hermes",))
            if self.arguments:
                raise UserError("serve.arguments: engine hf takes none")

    def _one_of(self, name: str, value: str, allowed: tuple[str, ...]) -> None:
        if value not in allowed:
            raise UserError(
                f"serve.{name}: found {value!r}, allowed with engine {self.engine}: "
                f"{', '.join(allowed)}"
            )

    def _at_least(self, name: str, value: float, lowest: int) -> None:
        if value < lowest:
            raise UserError(f"serve.{name}: found {value}, allowed: {lowest} or more")


@dataclass(frozen=True)
class Endpoint:
    """A running OpenAI-compatible server.

    url: up to and with `/v1`; model: the name to ask for; manifest: engine, versions, settings
    and command line, ready for JSON.
    """

    url: str
    model: str
    manifest: dict[str, Any] = field(default_factory=dict)
