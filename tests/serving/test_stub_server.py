"""The scripted stub does what its actions say, so that tests of clients can rely on it."""

from __future__ import annotations

import http.client
import json
import threading
import time
from typing import Any

import pytest
from stub_server import Action, Asked, Drop, Fail, Overflow, Raw, Say, Slow, StubServer, stub


def ask(
    server: StubServer, body: dict[str, Any], path: str = "/v1/chat/completions"
) -> tuple[int, bytes]:
    host = server.url.split("/")[2]
    connection = http.client.HTTPConnection(host, timeout=5)
    connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
    answer = connection.getresponse()
    found = (answer.status, answer.read())
    connection.close()
    return found


def chat(text: str) -> dict[str, Any]:
    return {"model": "stub", "messages": [{"role": "user", "content": text}]}


def test_actions() -> None:
    actions: dict[str, Action] = {
        "say": Say("hello", usage=(3, 2)),
        "call": Say("", [("ls", {"a": True})]),
        "raw": Raw(b'{"choices": ['),
        "long": Overflow(1024, 1500),
        "fail": Fail(503, "busy"),
    }
    with stub(lambda asked: actions[asked.text]) as server:
        status, body = ask(server, chat("say"))
        answer = json.loads(body)
        assert status == 200 and answer["choices"][0]["message"]["content"] == "hello"
        assert answer["usage"]["total_tokens"] == 5
        status, body = ask(server, {"prompt": "say"}, "/v1/completions")
        assert json.loads(body)["choices"][0]["text"] == "hello"
        _, body = ask(server, chat("call"))
        choice = json.loads(body)["choices"][0]
        assert choice["finish_reason"] == "tool_calls"
        assert choice["message"]["content"] is None
        call = choice["message"]["tool_calls"][0]["function"]
        assert call == {"name": "ls", "arguments": '{"a": true}'}
        assert ask(server, chat("raw")) == (200, b'{"choices": [')
        status, body = ask(server, chat("long"))
        assert (
            status == 400
            and "maximum context length is 1024" in json.loads(body)["error"]["message"]
        )
        status, body = ask(server, chat("fail"))
        assert status == 503 and json.loads(body)["error"]["message"] == "busy"
    assert [a.text for a in server.asked] == ["say", "say", "call", "raw", "long", "fail"]


def test_dropped_connections_and_repeats() -> None:
    def script(asked: Asked) -> Action:
        return (Drop(), Drop(partial=True), Say("at last"))[asked.repeat]

    with stub(script) as server:
        with pytest.raises((http.client.RemoteDisconnected, ConnectionResetError)):
            ask(server, chat("x"))
        with pytest.raises(http.client.IncompleteRead):
            ask(server, chat("x"))
        assert ask(server, chat("x"))[0] == 200
    assert [a.repeat for a in server.asked] == [0, 1, 2]


def test_slow_answers_run_in_parallel_and_end_with_the_stub() -> None:
    with stub(lambda asked: Slow(0.2, Say(asked.text))) as server:
        began = time.perf_counter()
        threads = [threading.Thread(target=ask, args=(server, chat(str(i)))) for i in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert 0.2 <= time.perf_counter() - began < 0.9
        assert server.most_at_once >= 2


def test_an_error_of_the_script_comes_up_in_the_test() -> None:
    def script(asked: Asked) -> Action:
        raise KeyError(asked.text)

    with pytest.raises(KeyError, match="broken"), stub(script) as server:
        assert ask(server, chat("broken"))[0] == 500
