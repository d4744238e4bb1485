"""vLLM and the `hf` server answer alike. Needs vLLM's environment: see `eval/serving/`."""

from __future__ import annotations

import http.client
import importlib.util
import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from small import tokenizer

from lopd_repro.serving import Endpoint, ServerSettings, serve
from lopd_repro.serving.vllm import PYTHON_VARIABLE
from lopd_repro.training.checkpoint import save_model

pytestmark = pytest.mark.skipif(
    not os.environ.get(PYTHON_VARIABLE) and importlib.util.find_spec("vllm") is None,
    reason=f"needs vLLM: neither importable nor named by {PYTHON_VARIABLE}",
)

LIMIT = 256
TOOLS = [
    {"type": "function", "function": {"name": name, "description": "", "parameters": {}}}
    for name in ("find_order", "refund_order")
]
CALL = {"id": "call_1", "type": "function", "function": {"name": "ls", "arguments": '{"a": 1}'}}
CONVERSATION: list[dict[str, Any]] = [
    {"role": "system", "content": "be brief"},
    {"role": "user", "content": "list the names"},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "call_1", "content": "done"},
]


def small_model(kind: str, positions: int = 512) -> Any:
    """Random weights; heads of 32, since vLLM's CPU kernels have no smaller ones."""
    from transformers import Olmo3Config, Olmo3ForCausalLM, Qwen3Config, Qwen3ForCausalLM

    shape: dict[str, Any] = {
        "vocab_size": len(tokenizer()),
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "max_position_embeddings": positions,
        "initializer_range": 0.2,
        "bos_token_id": None,
        "eos_token_id": tokenizer().eos_token_id,
        "pad_token_id": tokenizer().pad_token_id,
    }
    torch.manual_seed(1)
    if kind == "qwen3":
        return Qwen3ForCausalLM(Qwen3Config(**shape, head_dim=32, tie_word_embeddings=True))
    return Olmo3ForCausalLM(Olmo3Config(**shape, sliding_window=64))


def ask(endpoint: Endpoint, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    host = endpoint.url.split("/")[2]
    connection = http.client.HTTPConnection(host, timeout=120)
    head = {"Content-Type": "application/json"}
    connection.request("POST", f"/v1/{path}", json.dumps(body), head)
    answer = connection.getresponse()
    found = answer.status, json.loads(answer.read())
    connection.close()
    return found


def asked() -> list[tuple[str, dict[str, Any]]]:
    """Temperature is left to the server's defaults, which are greedy here."""
    long = "list the names of every order " * 10
    return [
        ("completions", {"prompt": "mail the list", "max_tokens": 30}),
        ("completions", {"prompt": long, "max_tokens": 40}),
        ("completions", {"prompt": [20, 30, 40], "max_tokens": 30}),
        ("completions", {"prompt": "mail the list"}),
        ("completions", {"prompt": "mail", "max_tokens": LIMIT - 1}),
        ("completions", {"prompt": "mail the list", "max_tokens": 30, "stop": ["e"]}),
        ("completions", {"prompt": "mail", "max_tokens": 30, "stop_token_ids": list(range(200))}),
        ("chat/completions", {"messages": CONVERSATION, "max_tokens": 30}),
        ("chat/completions", {"messages": CONVERSATION, "tools": TOOLS, "max_tokens": 30}),
        ("chat/completions", {"messages": CONVERSATION[:2], "tools": TOOLS, "tool_choice": "none"}),
    ]


def refused() -> list[tuple[str, dict[str, Any]]]:
    return [
        ("completions", {"prompt": [20] * (LIMIT + 1)}),
        ("completions", {"prompt": "mail", "max_tokens": LIMIT + 1}),
        ("completions", {"prompt": "mail", "model": "nobody"}),
        ("completions", {"prompt": "mail", "temperature": -1}),
        ("chat/completions", {"messages": CONVERSATION, "max_tokens": 0}),
    ]


def told(status: int, answer: dict[str, Any]) -> Any:
    """What both servers must agree on."""
    if status != 200:
        error = answer["error"]
        limit = f"maximum context length is {LIMIT} tokens" in error["message"]
        return status, error["code"], error["type"], limit
    (choice,) = answer["choices"]
    message = choice.get("message", {})
    calls = [call["function"] for call in message.get("tool_calls") or []]
    usage = {k: v for k, v in answer["usage"].items() if k.endswith("_tokens")}
    text = choice.get("text", message.get("content"))
    return text, calls, choice["finish_reason"], usage, answer["model"]


@pytest.mark.parametrize("kind", ["qwen3", "olmo3"])
def test_both_engines_answer_alike(kind: str, tmp_path: Path) -> None:
    save_model(tmp_path / "model", small_model(kind), tokenizer())
    shared: dict[str, Any] = {"temperature": 0.0, "max_length": LIMIT, "startup_seconds": 300.0}
    engines = [
        ServerSettings(engine="vllm", arguments=("--enforce-eager",), **shared),
        ServerSettings(engine="hf", **shared),
    ]
    answers, manifests = [], []
    for settings in engines:
        log = tmp_path / f"{settings.engine}.log"
        with serve(tmp_path / "model", settings, "policy", log) as endpoint:
            manifests.append(endpoint.manifest)
            answers.append(
                [
                    told(*ask(endpoint, path, {"model": "policy", **body}))
                    for path, body in asked() + refused()
                ]
            )
    print(f"{kind}: vllm up in {manifests[0]['startup_seconds']} s, {manifests[0]['versions']}")
    for request, theirs, ours in zip(asked() + refused(), *answers, strict=True):
        assert ours == theirs, request
    finished = answers[1][: len(asked())]
    assert len({str(one[0]) for one in finished}) >= len(finished) - 2
    assert {one[2] for one in finished} >= {"length", "stop"}
    assert [one[0] for one in answers[1][len(asked()) :]] == [400, 400, 404, 400, 400]


def test_a_long_prompt_with_a_seed_is_answered_twice_alike(tmp_path: Path) -> None:
    save_model(tmp_path / "model", small_model("qwen3", 8192), tokenizer())
    settings = ServerSettings(
        engine="vllm", temperature=1.0, startup_seconds=300.0, arguments=("--enforce-eager",)
    )
    body = {"model": "policy", "prompt": [20, 30, 40] * 2000, "max_tokens": 20, "seed": 5}
    with serve(tmp_path / "model", settings, "policy", tmp_path / "log") as endpoint:
        first, same = (ask(endpoint, "completions", body) for _ in range(2))
        other = ask(endpoint, "completions", {**body, "seed": 6})
    assert first[0] == same[0] == other[0] == 200
    texts = [answer["choices"][0]["text"] for _, answer in (first, same, other)]
    assert texts[0] == texts[1] != texts[2]
