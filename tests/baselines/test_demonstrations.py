from __future__ import annotations

import json
import random
import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from chat_server import serve

from lopd_repro.data.schema import TaskSet
from lopd_repro.data.tiny import Noise, demonstration, environment, sample_task
from lopd_repro.data.tiny import lite_trace as trace_of
from lopd_repro.envs import EnvPool, ToolEpisodes
from lopd_repro.errors import UserError
from lopd_repro.experience.bank import Experience
from lopd_repro.experience.demonstrations import (
    Demonstration,
    from_bank,
    read_pool,
    write_pool,
)
from lopd_repro.experience.demonstrations_endpoint import ask
from lopd_repro.experience.endpoint import ChatEndpoint, EndpointSettings
from lopd_repro.files import read_jsonl_with_footer, write_jsonl
from lopd_repro.rollout.tool_use import ToolPrompts, ToolUseDomain


def experience(task_id: str, number: int) -> Experience:
    return Experience(f"{task_id}#{number}", task_id, "task", f"trace {number}", 1.0, (), ())


def test_a_task_shows_its_first_verified_trajectory() -> None:
    pool = from_bank([experience("a", 1), experience("a", 2), experience("b", 1)])
    assert {task: entry.text for task, entry in pool.items()} == {"a": "trace 1", "b": "trace 1"}
    assert {entry.source for entry in pool.values()} == {"base"}


def test_the_pools_file(tmp_path: Path) -> None:
    pool = [Demonstration("a", "1. x\n2. y", 1.0, "base"), Demonstration("b", "z", 0.9, "strong")]
    write_pool(tmp_path / "pool.jsonl", pool, missing=3)
    assert list(read_pool(tmp_path / "pool.jsonl").values()) == pool
    assert read_jsonl_with_footer(tmp_path / "pool.jsonl")[1]["missing"] == 3
    rows = [vars(pool[0]), vars(pool[0])]
    write_jsonl(tmp_path / "double.jsonl", rows)
    with pytest.raises(UserError, match="task a has two demonstrations"):
        read_pool(tmp_path / "double.jsonl")


def test_a_call_that_fails_for_now_is_tried_again() -> None:
    answers: list[Any] = [503, 429, {"content": "hello"}]
    requests: list[dict[str, Any]] = []
    with serve(lambda body: answers.pop(0), requests) as settings:
        message = ChatEndpoint(settings).reply([{"role": "user", "content": "x"}], seed=5)
    assert message == {"content": "hello"}
    assert len(requests) == 3
    assert requests[0]["path"] == "/v1/chat/completions"
    assert requests[0]["model"] == "strong" and requests[0]["seed"] == 5
    assert requests[0]["key"] is None and "tools" not in requests[0]


def test_a_call_that_fails_for_good_is_one_clear_error() -> None:
    requests: list[dict[str, Any]] = []
    with serve(lambda body: 401, requests) as settings:
        with pytest.raises(UserError, match="HTTP 401"):
            ChatEndpoint(settings).reply([])
        assert len(requests) == 1
    with serve(lambda body: 500, requests) as settings:
        with pytest.raises(UserError, match="HTTP 500"):
            ChatEndpoint(replace(settings, tries=2)).reply([])
        assert len(requests) == 3
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        nobody = f"http://127.0.0.1:{unused.getsockname()[1]}"
    with pytest.raises(UserError, match="refused"):
        ChatEndpoint(EndpointSettings(nobody, "m", tries=2, pause_seconds=0.0)).reply([])


def test_the_key_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    requests: list[dict[str, Any]] = []
    with serve(lambda body: {"content": ""}, requests) as settings:
        named = replace(settings, api_key_env="LOPD_TEST_KEY")
        with pytest.raises(UserError, match="LOPD_TEST_KEY is not set"):
            ChatEndpoint(named)
        monkeypatch.setenv("LOPD_TEST_KEY", "k")
        ChatEndpoint(named).reply([])
    assert requests[0]["key"] == "Bearer k"
    with pytest.raises(UserError, match=r"endpoint\.url"):
        EndpointSettings("ftp://x", "m")


def _message(text: str, native: bool) -> dict[str, Any]:
    """An assistant text of the scripted policy, as text or as a call in the API's form."""
    if not native or "<tool_call>" not in text:
        return {"content": text}
    call = json.loads(text.removeprefix("<tool_call>\n").removesuffix("\n</tool_call>"))
    function = {"name": call["name"], "arguments": json.dumps(call["arguments"])}
    extra = {"id": "c1", "type": "function", "function": {"name": "nothing", "arguments": "{"}}
    return {
        "content": None,
        "tool_calls": [{"id": "c0", "type": "function", "function": function}, extra],
    }


@pytest.mark.parametrize("native", [False, True])
def test_a_stronger_model_is_verified_in_the_tasks_own_environment(native: bool) -> None:
    """One task is solved at the second try, the other never: only the first gets in."""
    rng = random.Random(0)
    solved, failed = (
        replace(sample_task(rng, "shop", family), task_id=family) for family in ("refund", "ship")
    )
    tasks = TaskSet({solved.env_id: environment("shop")}, {t.task_id: t for t in (solved, failed)})
    good, bad = demonstration(solved), demonstration(failed, noise=Noise(post_omit=1.0))
    attempts = {solved.task: 0, failed.task: 0}

    def answer(body: dict[str, Any]) -> dict[str, Any]:
        messages = body["messages"]
        task = messages[1]["content"]
        said = sum(m["role"] == "assistant" for m in messages)
        if said == 0:
            attempts[task] += 1
        if task == solved.task and attempts[task] == 1:
            return {"content": "Task Completed"}
        turns = (good if task == solved.task else bad).turns
        return _message(turns[2 * said].text, native)

    requests: list[dict[str, Any]] = []
    with serve(answer, requests) as settings, EnvPool(1) as pool:
        domain = ToolUseDomain(tasks, ToolEpisodes(pool, max_steps=7), ToolPrompts("s", "{task}"))
        found = ask(ChatEndpoint(settings), domain, list(tasks.tasks), 2, 1.0, 0)
    expected = Demonstration(solved.task_id, trace_of(good.calls), 1.0, "strong")
    assert found == [expected]
    assert attempts == {solved.task: 2, failed.task: 2}
    assert requests[0]["tools"] == [
        {"type": "function", "function": tool} for tool in environment("shop").tools
    ]
    # The model is shown what its tools answered.
    shown = [m for m in requests[-1]["messages"] if m["role"] in ("tool", "user")][1:]
    assert [m["content"] for m in shown] == [c.observation for c in bad.calls]
    if native:
        assert all(len(m.get("tool_calls", "x")) == 1 for m in requests[-1]["messages"])
