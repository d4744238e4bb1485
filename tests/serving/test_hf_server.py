"""The `hf` server over HTTP, in this process, on small random models in float64."""

from __future__ import annotations

import http.client
import json
import random
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from small import make_model, tokenizer

from lopd_repro.models.chat import ChatCodec
from lopd_repro.models.tiny_tokenizer import EOS
from lopd_repro.serving import ServerSettings
from lopd_repro.serving.generator import Generator
from lopd_repro.serving.hf_server import ChatModel, Server, make_handler
from lopd_repro.training.checkpoint import save_model

LIMIT = 512
TOOLS = [{"type": "function", "function": {"name": "probe_tool", "parameters": {}}}]


class Client:
    """One kept-alive connection."""

    def __init__(self, port: int) -> None:
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)

    def ask(self, path: str, body: Any = None) -> tuple[int, Any]:
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        if body is None:
            self.connection.request("GET", path)
        else:
            self.connection.request("POST", f"/v1/{path}", raw)
        answer = self.connection.getresponse()
        return answer.status, json.loads(answer.read())

    def text(self, path: str, **body: Any) -> str:
        status, answer = self.ask(path, body)
        assert status == 200, answer
        choice = answer["choices"][0]
        return str(choice["text"] if path == "completions" else choice["message"]["content"])


class Running:
    """A server on a thread of this process."""

    def __init__(self, checkpoint: Path, **settings: Any) -> None:
        made = ServerSettings(dtype="float64", temperature=1.0, **settings)
        self.model = ChatModel(checkpoint, made, "policy")
        self.http = Server(("127.0.0.1", 0), make_handler(self.model))
        self.port = int(self.http.server_address[1])
        self.thread = threading.Thread(target=self.http.serve_forever, args=(0.01,))
        self.thread.start()

    def stop(self) -> None:
        self.http.shutdown()
        self.thread.join()
        self.http.server_close()


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folders = {}
    for kind in ("qwen3", "olmo3"):
        folders[kind] = tmp_path_factory.mktemp("checkpoints") / kind
        save_model(folders[kind], make_model(kind), tokenizer())
    return folders


@pytest.fixture(scope="module")
def running(checkpoints: dict[str, Path]) -> Iterator[Running]:
    server = Running(checkpoints["qwen3"], max_batch=16)
    yield server
    server.stop()


@pytest.fixture
def client(running: Running) -> Client:
    return Client(running.port)


def some_words(rng: random.Random, n: int) -> str:
    return tokenizer().decode([rng.randrange(5, 300) for _ in range(n)])


def requests(n: int) -> list[tuple[str, dict[str, Any]]]:
    """Chats and completions with shared beginnings, of different lengths and settings."""
    rng, made = random.Random(4), []
    heads = [some_words(rng, 30) for _ in range(4)]
    for i in range(n):
        body: dict[str, Any] = {"max_tokens": rng.randint(1, 24), "temperature": i % 3 * 0.6}
        if i % 5 == 0:
            body["top_p"] = 0.9
        if i % 7 == 0:
            body["seed"] = i
        text = rng.choice(heads) + some_words(rng, rng.randint(1, 60))
        if i % 2:
            made.append(("completions", {**body, "prompt": text}))
        else:
            chat = {**body, "messages": [{"role": "user", "content": text}]}
            made.append(("chat/completions", {**chat, "tools": TOOLS} if i % 4 else chat))
    return made


@pytest.mark.parametrize("kind", ["qwen3", "olmo3"])
def test_concurrent_answers_are_byte_equal_to_single_ones(
    checkpoints: dict[str, Path], kind: str
) -> None:
    asked = requests(40)
    single, busy = Running(checkpoints[kind], prefix_cache_mb=0), Running(checkpoints[kind])
    try:
        client = Client(single.port)
        alone = [client.ask(*one) for one in asked]
        assert all(status == 200 for status, _ in alone)
        order = random.Random(1).sample(range(40), 40)
        with ThreadPoolExecutor(40) as pool:
            found = pool.map(lambda i: Client(busy.port).ask(*asked[i]), order)
        answers = dict(zip(order, found, strict=True))
        for i, (_, expected) in enumerate(alone):
            status, answer = answers[i]
            answer["created"] = expected["created"]
            assert status == 200 and json.dumps(answer) == json.dumps(expected)
        texts = {json.dumps(answer["choices"]) for _, answer in alone}
        assert len(texts) > 35
    finally:
        single.stop()
        busy.stop()


def test_seeds(client: Client) -> None:
    prompt = {"prompt": "mail the list of every name", "max_tokens": 30}
    first = client.text("completions", **prompt)
    assert client.text("completions", **prompt) == first
    others = {client.text("completions", **prompt, seed=seed) for seed in range(4)}
    assert len(others) == 4 and first not in others


def test_the_servers_seed_and_defaults(checkpoints: dict[str, Path], client: Client) -> None:
    prompt = {"prompt": "mail the list of every name", "max_tokens": 30}
    other = Running(checkpoints["qwen3"], seed=1, top_k=1)
    try:
        theirs = Client(other.port)
        greedy = client.text("completions", **prompt, temperature=0)
        assert theirs.text("completions", **prompt) == greedy  # top_k 1 leaves one token
        assert client.text("completions", **prompt, top_k=1) == greedy
        one = client.text("completions", **prompt)
        assert theirs.text("completions", **prompt, top_k=0) not in (one, greedy)
    finally:
        other.stop()


def test_a_chat_is_the_completion_of_its_rendered_text(client: Client) -> None:
    messages = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "list"}]
    codec = ChatCodec(tokenizer(), (tokenizer().eos_token_id,))
    body = {"max_tokens": 12, "temperature": 0}
    for tools in ([], TOOLS):
        rendered = codec.render(messages, tools)
        chat = {"messages": messages, "tools": tools, "tool_choice": "none"}
        expected = client.text("chat/completions", **chat, **body)
        assert client.text("completions", prompt=rendered, **body) == expected
        ids = codec.encode(rendered)
        status, answer = client.ask("completions", {"prompt": ids, **body})
        assert status == 200 and answer["choices"][0]["text"] == expected
        used = answer["usage"]
        assert used["prompt_tokens"] == len(ids)
        assert used["total_tokens"] == len(ids) + used["completion_tokens"]


def test_stops(client: Client) -> None:
    body = {"prompt": "every name of the list", "max_tokens": 40, "seed": 3}
    free = client.text("completions", **body)
    stop = free[len(free) // 2 : len(free) // 2 + 3]
    status, answer = client.ask("completions", {**body, "stop": [stop, "\0"]})
    choice = answer["choices"][0]
    assert choice["text"] == free[: free.index(stop)] and choice["finish_reason"] == "stop"
    assert answer["usage"]["completion_tokens"] < 40
    ids = tokenizer().encode(free, add_special_tokens=False)
    status, answer = client.ask("completions", {**body, "stop_token_ids": [ids[5]]})
    cut = tokenizer().decode(ids[: ids.index(ids[5])])
    assert status == 200 and answer["choices"][0]["text"] == cut
    assert answer["choices"][0]["finish_reason"] == "stop"
    status, answer = client.ask("completions", {**body, "max_tokens": 2})
    assert answer["choices"][0]["finish_reason"] == "length"
    assert answer["usage"]["completion_tokens"] == 2


def scripted(model: ChatModel, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the model say `text` whatever it is asked."""
    ids = tokenizer().encode(text + EOS, add_special_tokens=False)

    def forward(self: Generator, tokens: torch.Tensor, *_: Any) -> torch.Tensor:
        places = [0 if row is None else len(row.out) for row in self._rows]
        logits = torch.full((len(tokens), model.vocabulary), -100.0)
        logits[0, ids[places[0]]] = 100.0
        return logits

    monkeypatch.setattr(Generator, "_forward", forward)


def test_tool_calls_and_their_finish_reason(
    checkpoints: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    call = '<tool_call>\n{"name": "probe_tool", "arguments": {"a": 1}}\n</tool_call>'
    server = Running(checkpoints["qwen3"], prefix_cache_mb=0)
    body = {"messages": [{"role": "user", "content": "x"}], "temperature": 0}
    try:
        client = Client(server.port)
        scripted(server.model, f"Look: {call}", monkeypatch)
        _, answer = client.ask("chat/completions", {**body, "tools": TOOLS})
        (choice,) = answer["choices"]
        assert choice["finish_reason"] == "tool_calls"
        assert choice["message"]["content"] == "Look: "
        function = choice["message"]["tool_calls"][0]["function"]
        assert function == {"name": "probe_tool", "arguments": '{"a": 1}'}
        for more in ({}, {"tools": TOOLS, "tool_choice": "none"}):
            _, answer = client.ask("chat/completions", {**body, **more})
            (choice,) = answer["choices"]
            assert choice["finish_reason"] == "stop"
            assert choice["message"] == {"role": "assistant", "content": f"Look: {call}"}
    finally:
        server.stop()


def test_errors_have_statuses_and_the_connection_goes_on(client: Client) -> None:
    user = [{"role": "user", "content": "x"}]
    cases = [
        ("completions", {"prompt": "x", "model": "nobody"}, 404, "does not exist"),
        ("completions", {"prompt": "x", "n": 2}, 400, "n: found 2"),
        ("completions", {"prompt": "a " * LIMIT}, 400, f"maximum context length is {LIMIT} tokens"),
        ("completions", {"prompt": [10_000]}, 400, "vocabulary"),
        ("completions", {"prompt": ""}, 400, "no tokens"),
        ("completions", b"{", 400, "not JSON"),
        ("chat/completions", {"messages": user, "stream": True}, 400, "stream"),
        ("embeddings", {"input": "x"}, 404, "no such path"),
    ]
    for path, body, status, message in cases:
        found, answer = client.ask(path, body)
        assert found == status and message in answer["error"]["message"]
        assert answer["error"]["code"] == status
    assert client.ask("/health")[0] == 200
    status, models = client.ask("/v1/models")
    assert [m["id"] for m in models["data"]] == ["policy"]
    assert models["data"][0]["max_model_len"] == LIMIT
    assert client.ask("/v1/nothing")[0] == 404
    assert client.ask("completions", {"prompt": "x", "max_tokens": 1})[0] == 200


def test_a_prompt_that_fills_the_context_but_for_one_token(client: Client) -> None:
    ids = [10] * (LIMIT - 1)
    status, answer = client.ask("completions", {"prompt": ids, "max_tokens": 9})
    assert status == 200 and answer["usage"]["completion_tokens"] == 1
    assert client.ask("completions", {"prompt": [*ids, 10]})[0] == 400


def test_a_model_that_fails_fails_every_request_and_the_health_check(
    checkpoints: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Running(checkpoints["qwen3"])

    def broken(*_: Any) -> torch.Tensor:
        raise RuntimeError("out of everything")

    monkeypatch.setattr(Generator, "_forward", broken)
    try:
        client = Client(server.port)
        for _ in range(2):
            status, answer = client.ask("completions", {"prompt": "x"})
            assert status == 500 and "out of everything" in answer["error"]["message"]
        assert client.ask("/health")[0] == 503
    finally:
        server.stop()


def test_late_requests_do_not_wait_for_the_long_ones(running: Running) -> None:
    """A short request asked beside a long one that runs is answered first."""
    long = {"prompt": "mail", "max_tokens": 400, "temperature": 0, "stop_token_ids": []}
    finished: list[str] = []

    def ask(name: str, body: dict[str, Any]) -> None:
        Client(running.port).ask("completions", body)
        finished.append(name)

    first = threading.Thread(target=ask, args=("long", long))
    first.start()
    while not running.model._generator.live and first.is_alive():
        time.sleep(0.001)
    ask("short", {"prompt": "list", "max_tokens": 2})
    first.join()
    assert finished == ["short", "long"]
