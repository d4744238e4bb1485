"""The whole path through the installed official package, in the sandbox, against scripted models.

Every launch imports the package (seconds), so each test does several things in one.
"""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from replay import truthful, where, write_model
from stub_server import Action, Asked, Drop, Overflow, Raw, Say, Slow, stub

from lopd_repro.benchmarks import checked_rows, load_benchmark
from lopd_repro.benchmarks.bfcl import Bfcl, Settings
from lopd_repro.benchmarks.bfcl_data import CATEGORIES, RELEASES, default_python, find_environment
from lopd_repro.benchmarks.bfcl_replay import Truth, answers, truths
from lopd_repro.errors import UserError

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "eval" / "bfcl"
MODEL = "Qwen/Qwen3-8B-FC"


def installed(release: str) -> str:
    """Why the release cannot be tested here, or ""."""
    try:
        find_environment(default_python(ROOT, RELEASES[release]), RELEASES[release])
    except UserError as error:
        return str(error)
    return ""


needs_v3 = pytest.mark.skipif(bool(installed("v3")), reason=installed("v3"))


def truths_of(bench: Bfcl) -> dict[str, Truth]:
    found = {k: v for c in CATEGORIES for k, v in truths(bench.source, c).items()}
    return {task: found[task] for task in bench.ids}


def told_apart(bench: Bfcl, per_category: int) -> list[str]:
    """Ids whose first user texts differ, the same number of each category."""
    chosen: dict[str, str] = {}
    tasks = truths_of(bench)
    for category in CATEGORIES:
        fresh = {
            truth.texts[0]: task
            for task, truth in tasks.items()
            if task.startswith(f"{category}_") and truth.texts[0] not in chosen
        }
        chosen |= dict(list(fresh.items())[:per_category])
    return list(chosen.values())


def is_last_call(truth: Truth, turn: int, step: int) -> bool:
    end = max(n for n, calls in enumerate(truth.calls) if calls)
    return turn == end and step == len(truth.calls[end]) - 1


@pytest.fixture
def interruptible() -> Iterator[None]:
    """SIGINT raises, also where the tests were started in the background, which ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@needs_v3
def test_every_kind_of_trouble_and_two_resumed_attempts(
    tmp_path: Path, interruptible: None
) -> None:
    """A crash with a task in flight, then failing requests, then the rest: nothing asked twice."""
    checkpoint = write_model(tmp_path / "model")
    settings = Settings(
        MODEL, suite="mini", tasks_per_category=2, max_new_tokens=7, history="with_calls"
    )
    bench = Bfcl(settings, FOLDER)
    tasks = truths_of(bench)
    wrong, malformed, hanging, dropped, garbled, long = (*bench.ids[:3], *bench.ids[4:7])
    attempt = 1
    in_trouble = {hanging, dropped, garbled, long}

    def change(task: str, turn: int, step: int, answer: Action) -> Action:
        if task == wrong and is_last_call(tasks[task], turn, step):
            return Say('<tool_call>\n{"name": "no_such_tool", "arguments": {}}\n</tool_call>')
        if task == malformed and turn == 0:
            return Say("<tool_call>\n{'name': \n</tool_call>")
        if task in in_trouble and attempt == 1:
            return Slow(600)
        if attempt == 2:
            what = {dropped: Drop(), garbled: Raw(b'{"choices": ['), long: Overflow()}
            return what.get(task, Slow(0.3, answer))
        return answer

    def interrupt_when_the_others_are_done() -> None:
        path = tmp_path / "state" / "project" / "finished.jsonl"
        others, deadline = len(tasks) - len(in_trouble), time.monotonic() + 60
        while time.monotonic() < deadline:
            if path.is_file() and path.read_text().count("\n") == others:
                break
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    state = tmp_path / "state"
    state.mkdir()
    with stub(truthful(tasks, change), model=str(checkpoint)) as server:
        threading.Thread(target=interrupt_when_the_others_are_done, daemon=True).start()
        with pytest.raises(KeyboardInterrupt):
            bench.run(server.endpoint, checkpoint, state)
        assert all(asked.body["max_tokens"] == 7 for asked in server.asked)
        assert {asked.body["temperature"] for asked in server.asked} == {0.7}
        # with_calls: the model's own call stands in the next step's prompt
        second_steps = [a.text for a in server.asked if where(a.text)[1] == 1]
        assert second_steps
        assert all("</tool_call><|im_end|>\n<|im_start|>user\n" in t for t in second_steps)

        attempt = 2
        with pytest.raises(UserError) as caught:
            bench.run(server.endpoint, checkpoint, state)
        failing = [task for task in bench.ids if task in (dropped, garbled, long)]
        assert f"3 of 8 tasks ({', '.join(failing)})" in str(caught.value)
        assert "5 finished tasks are kept" in str(caught.value)

        attempt = 3
        server_asked = len(server.asked)
        zero = Bfcl(replace(settings, overflow="zero"), FOLDER)
        rows = checked_rows(zero.run(server.endpoint, checkpoint, state), zero.expected(), "bfcl")
        last = server.asked[server_asked:]

    # Each user text of the third attempt belongs to a task that had failed; `long` stays refused.
    texts = {where(asked.text)[0][0] for asked in last}
    assert texts <= {tasks[dropped].texts[0], tasks[garbled].texts[0]}
    by_task = {row["task_id"]: row for row in rows}
    assert {task for task, row in by_task.items() if row["score"] == 0} == {wrong, malformed, long}
    assert by_task[malformed]["error_type"] == "multi_turn:empty_turn_model_response"
    assert by_task[long]["status"] == "refused"
    # a call of an unknown function is run too, and answered with an error
    assert by_task[wrong]["calls"] == sum(map(len, tasks[wrong].calls))
    assert bench.data == "partial: 8 tasks of mini-suite (BFCL v3 form)"
    assert json.loads((state / "sandbox.json").read_text())["isolation"]["network"] != "none"


@needs_v3
@pytest.mark.parametrize("release", list(RELEASES))
def test_ground_truth_passes_and_fails_without_its_last_call(tmp_path: Path, release: str) -> None:
    """Official tasks, asked through the stub; every second task's last call is left out."""
    if installed(release):
        pytest.skip(installed(release))
    everything = Bfcl(Settings(MODEL, release=release), FOLDER)
    assert len(everything.expected()) == 800
    chosen = told_apart(everything, 4)
    bench = Bfcl(Settings(MODEL, release=release, tasks=tuple(chosen)), FOLDER)
    tasks = truths_of(bench)
    shortened = set(bench.ids[::2])

    def change(task: str, turn: int, step: int, answer: Action) -> Action:
        cut = task in shortened and is_last_call(tasks[task], turn, step)
        return Say("Done.") if cut else answer

    checkpoint = write_model(tmp_path / "model")
    with stub(truthful(tasks, change), model="policy") as server:
        rows = bench.run(server.endpoint, checkpoint, tmp_path)
    expected = {task: float(task not in shortened) for task in bench.ids}
    assert {row["task_id"]: row["score"] for row in rows} == expected
    assert Counter(row["category"] for row in rows) == dict.fromkeys(CATEGORIES, 4)


@needs_v3
def test_every_mini_task_passes_with_its_ground_truth(tmp_path: Path) -> None:
    bench = Bfcl(Settings(MODEL, suite="mini"), FOLDER)
    rows = bench.judge({task: answers(t) for task, t in truths_of(bench).items()}, tmp_path)
    assert [row["task_id"] for row in rows if row["score"] != 1] == []
    assert len(checked_rows(rows, bench.expected(), "bfcl")) == 4 * 24


@needs_v3
def test_olmo3_speaks_to_the_chat_endpoint(tmp_path: Path) -> None:
    """Tools, calls and results as chat messages; reasoning is left out of what the model sees."""
    settings = {
        "model": "allenai/Olmo-3-7B-Think-FC",
        "handler": "olmo3",
        "suite": "mini",
        "tasks_per_category": 1,
        "threads": 4,
    }
    bench = load_benchmark(FOLDER / "adapter.py", settings)
    assert isinstance(bench, Bfcl)
    tasks = truths_of(bench)
    in_text = bench.ids[0]

    def script(asked: Asked) -> Action:
        messages = asked.body["messages"]
        users = [m["content"] for m in messages if m["role"] == "user"]
        task = next(t for t, truth in tasks.items() if truth.begins(users))
        calls = tasks[task].calls[len(users) - 1]
        last = max(n for n, m in enumerate(messages) if m["role"] == "user")
        step = sum(m["role"] == "assistant" for m in messages[last:])
        if step >= len(calls):
            return Say("<think>enough</think>Done.")
        name, arguments = calls[step]
        if task != in_text:
            return Say(tool_calls=[(name, arguments)])
        named = ", ".join(f"{k}={json.dumps(v)}" for k, v in arguments.items())
        block = f"<function_calls>\n{name}({named})\n</function_calls>"
        return Say(f"<think>I think\n</think>\n{block}")

    checkpoint = write_model(tmp_path / "model")
    with stub(script, model="policy") as server:
        rows = bench.run(server.endpoint, checkpoint, tmp_path)
        bodies = [asked.body for asked in server.asked]
    assert [row["score"] for row in rows] == [1.0] * 4
    assert {body["model"] for body in bodies} == {"policy"}
    assert all(body["tools"] and body["max_tokens"] == 4096 for body in bodies)
    messages = [message for body in bodies for message in body["messages"]]
    assert not any("think" in str(message.get("content")) for message in messages)
    by_role = Counter(m["role"] for m in messages if m.get("tool_calls") or m["role"] == "tool")
    assert by_role["assistant"] == by_role["tool"] > 0


@needs_v3
def test_a_dead_endpoint_is_noticed_at_once(tmp_path: Path) -> None:
    bench = Bfcl(Settings(MODEL, suite="mini", tasks_per_category=1), FOLDER)
    with stub(lambda asked: Say(), model="policy") as server:
        endpoint = server.endpoint
    with pytest.raises(UserError, match="does not answer"):
        bench.run(endpoint, tmp_path, tmp_path / "state")


def test_replayed_answers_leave_out_the_last_call_of_the_last_turn_with_calls() -> None:
    truth = truths(FOLDER / "data" / "mini", "multi_turn_base")["multi_turn_base_0"]
    whole, short = answers(truth), answers(truth, drop_last=True)
    assert [len(turn) for turn in whole] == [len(calls) + 1 for calls in truth.calls]
    assert short[:-1] == whole[:-1]
    assert short[-1] == [*whole[-1][:-2], "Done."]
