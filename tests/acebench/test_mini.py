"""The mini-suite's client against a scripted endpoint, through the adapter."""

from __future__ import annotations

import json
import random
import threading
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from stub_server import Action, Asked, Drop, Fail, Overflow, Raw, Say, Slow, stub

from lopd_repro.benchmarks import Benchmark, checked_rows, load_benchmark
from lopd_repro.benchmarks.ace.demonstrate import Demonstrator
from lopd_repro.benchmarks.ace.dialogue import Dialogue, DialogueSettings
from lopd_repro.benchmarks.ace.suite import SEED, TASKS_PER_CATEGORY, _drawn
from lopd_repro.benchmarks.ace.user import SCRIPTED, ScriptedUser
from lopd_repro.errors import UserError

ADAPTER = Path(__file__).resolve().parents[2] / "eval" / "acebench" / "adapter.py"
QUICK = {"sampling": {"pause_seconds": 0.0, "tries": 2}}


def make(**settings: Any) -> Benchmark:
    return load_benchmark(ADAPTER, {**QUICK, **settings})


@cache
def right_answers() -> dict[str, str]:
    """What the demonstrator says after each conversation that the suite's tasks lead to."""
    answers = {}
    for task, goals in _drawn(SEED, TASKS_PER_CATEGORY):
        user = ScriptedUser(task) if task.category == "multi_turn" else None
        dialogue = Dialogue(task, user, DialogueSettings())
        agent, last = Demonstrator(list(goals), random.Random(0)), None
        while not dialogue.done:
            text = agent.next_text(last)
            answers[json.dumps(dialogue.messages())] = text
            dialogue.reply(text)
            last = str(dialogue.messages()[-1]["content"])
    return answers


def right(request: Asked) -> Action:
    return Say(right_answers()[json.dumps(request.body["messages"])])


def wrong(request: Asked) -> Action:
    return Say("Task Completed")


def run(benchmark: Benchmark, script: Any, state: Path) -> tuple[list[dict[str, Any]], list[Asked]]:
    with stub(script) as server:
        rows = benchmark.run(server.endpoint, state, state)
        asked = list(server.asked)
    return checked_rows(rows, benchmark.expected(), "acebench"), asked


def test_right_answers_score_one_and_wrong_ones_zero(tmp_path: Path) -> None:
    benchmark = make(repeats=2)
    assert len(benchmark.expected()) == 2 * 60 == len(set(benchmark.expected()))
    rows, asked = run(benchmark, right, tmp_path / "right")
    assert [(row["task_id"], row["repeat"]) for row in rows] == benchmark.expected()
    assert {(r["score"], r["process"], r["status"], r["ended"]) for r in rows} == {
        (1.0, 1.0, "ok", "finished")
    }
    assert {row["user"] for row in rows if row["category"] == "multi_turn"} == {SCRIPTED}
    assert sum(row["steps"] for row in rows) == len(asked)
    # Every request of a repeat has a seed of its own, so that repeats are other draws.
    assert len({request.body["seed"] for request in asked}) == len(asked)
    assert {"max_tokens": 1000, "temperature": 0.7, "top_p": 0.95}.items() <= asked[0].body.items()
    rows, _ = run(benchmark, wrong, tmp_path / "wrong")
    assert {(row["score"], row["process"]) for row in rows} == {(0.0, 0.0)}


def test_a_part_of_the_tasks_says_so() -> None:
    whole, first, one_kind = make(), make(limit=2), make(categories=["multi_step"])
    assert (whole.partial, first.partial, one_kind.partial) == (False, True, True)
    assert whole.data.startswith("mini-suite (ACEBench agent form), ")
    assert first.data == f"partial: 4 tasks of {whole.data}"
    assert one_kind.data == f"partial: 30 tasks of {whole.data}"


def test_rows_do_not_depend_on_the_order_of_completion(tmp_path: Path) -> None:
    def jumbled(request: Asked) -> Action:
        return Slow(request.index * 37 % 11 / 1000, right(request))

    alone, _ = run(make(limit=6, in_flight=1), right, tmp_path / "alone")
    jumble, _ = run(make(limit=6, in_flight=12), jumbled, tmp_path / "jumbled")
    assert alone == jumble


def test_many_conversations_are_in_flight(tmp_path: Path) -> None:
    together = threading.Barrier(8)

    def waiting(request: Asked) -> Action:
        if request.index < 8:
            together.wait(30)  # an error unless eight requests are open at once
        return right(request)

    rows, _ = run(make(limit=8, in_flight=8), waiting, tmp_path)
    assert {row["score"] for row in rows} == {1.0}


@pytest.mark.parametrize(
    "trouble",
    [Drop(), Drop(partial=True), Raw(b'{"choices": ['), Raw(b"{}"), Fail(503), Fail(429)],
)
def test_passing_trouble_is_tried_again(tmp_path: Path, trouble: Action) -> None:
    def flaky(request: Asked) -> Action:
        return trouble if request.repeat == 0 else right(request)

    rows, asked = run(make(limit=2), flaky, tmp_path)
    assert {row["score"] for row in rows} == {1.0}
    assert len(asked) == 2 * sum(row["steps"] for row in rows)


@pytest.mark.parametrize(
    ("trouble", "said"),
    [
        (Drop(), "RemoteDisconnected"),
        (Raw(b"[]"), "no chat completion"),
        (Fail(500, "no luck"), "HTTP 500"),
        (Fail(404, "no model"), "HTTP 404"),
        (Fail(400, "bad field"), "HTTP 400"),
    ],
)
def test_lasting_trouble_refuses_the_cell_and_keeps_the_rest(
    tmp_path: Path, trouble: Action, said: str
) -> None:
    seen: list[str] = []

    def failing(request: Asked) -> Action:
        bad = request.body["messages"][1]["content"] == seen[0]
        return trouble if bad else right(request)

    benchmark = make(limit=3)
    seen.append(_drawn(SEED, TASKS_PER_CATEGORY)[1][0].question)
    with pytest.raises(UserError, match=r"1 of 6 tasks \(agent_multi_step_1#0\), 5 are") as failed:
        run(benchmark, failing, tmp_path)
    assert said in str(failed.value)
    assert "\n" not in str(failed.value)
    # Only the one that failed is asked in the next attempt.
    rows, asked = run(benchmark, right, tmp_path)
    assert {row["score"] for row in rows} == {1.0}
    assert len(asked) == next(r["steps"] for r in rows if r["task_id"] == "agent_multi_step_1")


def test_a_dead_endpoint_is_given_up_soon(tmp_path: Path) -> None:
    with stub(right) as server:
        endpoint = server.endpoint
    with pytest.raises(UserError, match=r"failed on \d+ of 60 tasks") as failed:
        make(in_flight=4).run(endpoint, tmp_path, tmp_path)
    assert int(str(failed.value).split("failed on ")[1].split()[0]) < 20


def test_a_slow_answer_is_a_failure_not_a_score(tmp_path: Path) -> None:
    slow = {"sampling": {"timeout_seconds": 0.05, "tries": 1}}
    with pytest.raises(UserError, match="timed out"):
        run(make(limit=1, **slow), lambda _: Slow(0.5), tmp_path)


def test_a_full_context_ends_or_refuses(tmp_path: Path) -> None:
    def full(request: Asked) -> Action:
        return Overflow() if len(request.body["messages"]) > 2 else right(request)

    rows, asked = run(make(limit=2), full, tmp_path / "end")
    assert {(row["ended"], row["score"], row["status"]) for row in rows} == {
        ("context length", 0.0, "ok")
    }
    assert len(asked) == 2 * len(rows)  # not tried again
    with pytest.raises(UserError, match="maximum context length"):
        run(make(limit=2, overflow="refuse"), full, tmp_path / "refuse")


def test_a_crash_costs_only_what_was_running(tmp_path: Path) -> None:
    class CrashError(BaseException):
        pass

    benchmark = make(limit=10, in_flight=1)
    started = threading.Event()
    journal_add = benchmark._play  # type: ignore[attr-defined]

    def crashing(client: Any, task_id: str, repeat: int) -> Any:
        if task_id == "agent_multi_step_7":
            started.set()
            raise CrashError
        return journal_add(client, task_id, repeat)

    benchmark._play = crashing  # type: ignore[attr-defined]
    with stub(right) as server, pytest.raises(CrashError):
        benchmark.run(server.endpoint, tmp_path, tmp_path)
    assert started.is_set()
    (journal,) = tmp_path.glob("*.jsonl")
    kept = [json.loads(line)["task_id"] for line in journal.read_text().splitlines()]
    assert "agent_multi_step_6" in kept and "agent_multi_step_7" not in kept
    # The last line is cut off, as by a crash in the middle of writing.
    journal.write_text(journal.read_text()[:-20])
    lost = {kept[-1], *(name for name, _ in benchmark.expected() if name not in kept)}
    rows, asked = run(make(limit=10), right, tmp_path)
    assert {row["score"] for row in rows} == {1.0}
    assert len(asked) == sum(row["steps"] for row in rows if row["task_id"] in lost)
    uncrashed, _ = run(make(limit=10), right, tmp_path / "other")
    assert rows == uncrashed


def test_other_settings_share_no_results(tmp_path: Path) -> None:
    run(make(limit=2), right, tmp_path)
    # More repeats or tasks reuse what there is; another temperature does not.
    _, more = run(make(limit=2, repeats=2), right, tmp_path)
    first, again = run(make(limit=2), right, tmp_path)
    assert len(more) == sum(row["steps"] for row in first)
    assert again == []
    warm = {"sampling": {**QUICK["sampling"], "temperature": 1.0}}
    _, other = run(make(limit=2, **warm), right, tmp_path)
    assert len(other) == len(more)


def test_a_model_can_play_the_user(tmp_path: Path) -> None:
    def both(request: Asked) -> Action:
        if request.body["model"] == "person":
            texts = [m["content"] for m in request.body["messages"]]
            assert "Ask for these things" in texts[0] and request.body["temperature"] == 0.5
            return Say("finish conversation" if len(texts) > 2 else "Hello.")
        return Say("What can I do?")

    with stub(both) as server:
        user = {"url": server.url, "model": "person", "temperature": 0.5}
        benchmark = make(limit=1, user=user)
        rows = benchmark.run(server.endpoint, tmp_path, tmp_path)
    assert rows[1]["user"] == "person at temperature 0.5"
    assert (rows[1]["score"], rows[1]["ended"], rows[1]["steps"]) == (0.0, "finished", 1)


def test_a_prompt_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "prompt.txt").write_text("Use one of:\n{functions}\n")
    dialogue = {"prompt_file": str(tmp_path / "prompt.txt"), "layout": "transcript"}
    _, asked = run(make(limit=1, dialogue=dialogue), wrong, tmp_path / "state")
    system, user = asked[0].body["messages"]
    assert system["content"].startswith("Use one of:\n[{'name': 'go_online'")
    assert user["content"].startswith("user:")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"suite": "big"}, "acebench.suite: found 'big', allowed: mini, official"),
        ({"repeats": 0}, "acebench.repeats: found 0, allowed: 1 or more"),
        ({"in_flight": 0}, "acebench.in_flight"),
        ({"overflow": "ignore"}, "allowed: end, refuse"),
        ({"unmatched": "maybe"}, "allowed: unchecked, wrong"),
        ({"categories": ["single"]}, "allowed: multi_step, multi_turn"),
        ({"colour": "red"}, "acebench.colour: unknown key"),
        ({"sampling": {"tries": 0}}, "benchmark.sampling.tries"),
        ({"sampling": {"timeout_seconds": 0}}, "benchmark.sampling.timeout_seconds"),
        ({"dialogue": {"prompt_file": "/none"}}, "cannot be read"),
        ({"dialogue": {"prompt_file": "/none", "system": ""}}, "one of system and prompt_file"),
        ({"user": {"url": "ftp://x", "model": "m"}}, "allowed: an http"),
    ],
)
def test_settings_that_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        make(**settings)
