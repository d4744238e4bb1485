from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from worlds import FALSE, HOSTILE, LOGGED, PLENTY, TRUE, environment, task

from lopd_repro.envs import EnvPool, Limits, ToolEpisodes, TraceStep, lite_trace
from lopd_repro.errors import UserError

LIMITS = Limits(step_seconds=0.3, score_seconds=0.3)


@pytest.fixture(scope="module")
def pool() -> Iterator[EnvPool]:
    with EnvPool(1, LIMITS) as pool:
        yield pool


def call(name: Any, arguments: Any) -> str:
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


ADD = call("add", {"name": "bolt", "qty": 2})


def test_an_episode_from_start_to_end(pool: EnvPool) -> None:
    world = ToolEpisodes(pool)
    (episode,) = world.reset([(task(PLENTY, LOGGED), environment(), 0)])
    (first,) = world.turn([(episode, "Adding. " + ADD + ADD)])
    assert (first.role, first.executed, first.done, first.reward) == ("tool", True, False, None)
    assert first.observation == "{'success': True, 'items': {'bolt': 5}}"
    (second,) = world.turn([(episode, "Task Completed")])
    assert (second.role, second.observation, second.done) == ("user", "Task finished", True)
    assert (second.reward, second.status, episode.success) == (1.0, "ok", True)
    assert episode.checks == (True, True)
    assert episode.behaviour().row() == {
        "reward": 1.0,
        "success": True,
        "status": "ok",
        "steps": 2,
        "calls_parsed": 2,
        "calls_executed": 1,
        "repeated_calls": 0,
    }
    with pytest.raises(ValueError, match="done takes no turn"):
        world.turn([(episode, ADD)])


def test_behaviour_counts_repeats_of_calls_acted_on(pool: EnvPool) -> None:
    world = ToolEpisodes(pool)
    (episode,) = world.reset([(task(TRUE, FALSE), environment(), 0)])
    other_order = call("add", {"qty": 2, "name": "bolt"})
    for text in (ADD, other_order, call("fly", {}), call("fly", {}), "<tool_call>{", ADD):
        world.turn([(episode, text)])
    numbers = episode.behaviour()
    # 5 of 6 turns hold a whole call, 3 ran; repeated: the second and third add, the second fly.
    assert (numbers.steps, numbers.calls_parsed, numbers.calls_executed) == (6, 5, 3)
    assert (numbers.repeated_calls, numbers.reward) == (3, 0.0)


def test_errors_are_turns_and_a_raising_tool_ends_with_zero(pool: EnvPool) -> None:
    for variant, invalid in (
        ("envscaler", "Error: Invalid action"),
        ("lopd", "Error: 'fly' is not a valid tool of this environment."),
    ):
        world = ToolEpisodes(pool, variant=variant)  # type: ignore[arg-type]
        (episode,) = world.reset([(task(TRUE), environment(), 0)])
        (result,) = world.turn([(episode, call("fly", {}))])
        assert (result.role, result.observation, result.done) == ("user", invalid, False)
        (result,) = world.turn([(episode, call("remove", {"name": "ghost"}))])
        assert result.observation.endswith("KeyError: 'ghost'\n")
        assert (result.role, result.done, result.reward, result.status) == ("user", True, 0.0, "ok")
        assert (episode.success, episode.checks) == (False, ())


@pytest.mark.parametrize("name", [5, None, ["add"], {"a": 1}])
def test_a_name_that_is_no_text_is_no_tool(pool: EnvPool, name: Any) -> None:
    for variant in ("envscaler", "lopd"):
        world = ToolEpisodes(pool, variant=variant)  # type: ignore[arg-type]
        (episode,) = world.reset([(task(TRUE), environment(), 0)])
        (result,) = world.turn([(episode, call(name, {}))])
        assert (result.role, result.done, result.executed) == ("user", False, False)
        assert "valid" in result.observation


def test_where_the_variants_differ(pool: EnvPool) -> None:
    outcomes = {}
    for variant in ("envscaler", "lopd"):
        world = ToolEpisodes(pool, variant=variant)  # type: ignore[arg-type]
        starts = [(task(TRUE), environment(), 0)] * 4
        episodes = world.reset(starts)
        texts = [
            call("tags", None),
            call("chat_with_user", {"text": "x"}),
            call("add", [1]),
            call("tags", []),
        ]
        results = world.turn(list(zip(episodes, texts, strict=True)))
        outcomes[variant] = [(result.executed, result.done) for result in results]
    assert outcomes["envscaler"] == [(False, False)] * 4
    assert outcomes["lopd"] == [(True, False), (False, True), (False, False), (True, False)]


def test_step_caps(pool: EnvPool) -> None:
    def play(step_cap: Any, max_steps: int, turns: int) -> tuple[Any, ...]:
        world = ToolEpisodes(pool, max_steps=max_steps, step_cap=step_cap)
        (episode,) = world.reset([(task(PLENTY), environment(), 0)])
        results = [world.turn([(episode, ADD)])[0] for _ in range(turns)]
        last = results[-1]
        return [result.done for result in results], last.reward, last.status, last.role

    assert play("unscored", 3, 3) == ([False, False, True], 0.0, "step_cap", "tool")
    assert play("submit", 3, 2) == ([False, True], 1.0, "step_cap", "tool")
    world = ToolEpisodes(pool, max_steps=2, step_cap="submit")
    (episode,) = world.reset([(task(PLENTY), environment(), 0)])
    (result,) = world.turn([(episode, "Task Completed")])  # ended by itself on the last turn
    assert (result.reward, result.status) == (0.0, "ok")


def test_submit_scores_the_state_as_it_stands(pool: EnvPool) -> None:
    world = ToolEpisodes(pool)
    episodes = world.reset([(task(PLENTY), environment(), 0)] * 2)
    world.turn([(episodes[0], ADD)])
    results = world.submit(episodes)
    assert [result.reward for result in results] == [1.0, 0.0]
    assert [episode.turns for episode in episodes] == [1, 0]


def test_doing_nothing_has_a_reward(pool: EnvPool) -> None:
    world = ToolEpisodes(pool)
    pairs = [(task(TRUE, FALSE, PLENTY), environment()), (task(FALSE), environment())]
    assert world.noop_rewards(pairs) == [0.3333, 0.0]
    assert world.noop_reward(*pairs[0]) == 0.3333
    alive = pool.live
    world.noop_rewards(pairs)
    assert pool.live == alive


def test_hostile_code_ends_its_own_episode(pool: EnvPool) -> None:
    world = ToolEpisodes(pool)
    bad = environment(HOSTILE, "Hostile")
    config: dict[str, Any] = {}
    episodes = world.reset(
        [
            (task(TRUE, name="Hostile", config=config), bad, 0),
            (task(TRUE, name="Hostile", config=config), bad, 0),
            (task("def check_func(s):\n    while True: pass"), environment(), 0),
            (task(TRUE), environment("class Shelf(:"), 0),
            (task(TRUE), environment(), 0),
        ]
    )
    assert (episodes[3].done, episodes[3].status, episodes[3].reward) == (True, "error", 0.0)
    texts = [call("loop", {}), call("exit_now", {}), "Task Completed", None, "Task Completed"]
    turns = [(e, t) for e, t in zip(episodes, texts, strict=True) if t is not None]
    results = world.turn(turns)
    assert [result.status for result in results] == ["timeout", "crash", "timeout", "ok"]
    assert [result.reward for result in results] == [0.0, 0.0, 0.0, 1.0]
    assert all(result.done for result in results)
    world.close(episodes)


def test_the_pythonic_protocol_runs_the_same_worlds(pool: EnvPool) -> None:
    world = ToolEpisodes(pool, protocol="olmo3")
    (episode,) = world.reset([(task(PLENTY), environment(), 0)])
    text = "I add.</think><function_calls>add(name='bolt', qty=2)</function_calls>"
    assert world.turn([(episode, text)])[0].executed
    assert world.turn([(episode, "Task Completed")])[0].reward == 1.0


def test_what_cannot_work_is_refused(pool: EnvPool) -> None:
    with pytest.raises(UserError, match="empty checklist"):
        ToolEpisodes(pool).reset([(task(), environment(), 0)])
    lopd = ToolEpisodes(pool, variant="lopd")
    (episode,) = lopd.reset([(task(), environment(), 0)])
    assert lopd.turn([(episode, "Task Completed")])[0].reward == 0.0
    assert not episode.success
    with pytest.raises(UserError, match="its environment is Shelf, found Hostile"):
        lopd.reset([(task(TRUE), environment(HOSTILE, "Hostile"), 0)])
    with pytest.raises(UserError, match="step_cap: found 'x', allowed are unscored, submit"):
        ToolEpisodes(pool, step_cap="x")  # type: ignore[arg-type]
    with pytest.raises(UserError, match="max_steps: found 1"):
        ToolEpisodes(pool, max_steps=1, step_cap="submit")
    (episode,) = lopd.reset([(task(), environment(), 0)])
    with pytest.raises(ValueError, match="one turn at a time"):
        lopd.turn([(episode, "a"), (episode, "b")])


def test_lite_trace(pool: EnvPool) -> None:
    world = ToolEpisodes(pool)
    (episode,) = world.reset([(task(PLENTY), environment(), 0)])
    for text in (call("get", {"name": "bolt"}), ADD, call("fly", {}), "Task Completed"):
        world.turn([(episode, text)])
    assert lite_trace(episode.steps, 20) == (
        '1. get(name="bolt") -> 3\n2. add(name="bolt", qty=2) -> {\'success\': True,...'
    )
    step = TraceStep("say", {"a": [1, "é"], "b": None}, " two\n lines ")
    assert lite_trace([step]) == '1. say(a=[1, "é"], b=null) -> two lines'
    assert lite_trace([]) == ""
