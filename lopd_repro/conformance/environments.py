"""Adapters for the recorded environment behaviour: parsing, rewards, whole episodes.

Nothing here is a matter of tolerance: `value_error` is the number of cases that differ. What
the records hold beyond this project's types is left out and said so: the reference's action
for a turn whose parse failed, which nobody acts on, and prompt texts.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lopd_repro.conformance.outcome import Outcome
from lopd_repro.data.schema import Check, Environment, ToolTask
from lopd_repro.envs import EnvPool, EpisodeSpec, Score, ToolEpisodes, parse_action
from lopd_repro.envs.protocol import VARIANTS, Variant
from lopd_repro.envs.tool_env import FINISHED, TurnResult

SUBMIT = "__submit__"


def parse(_: dict[str, Any], path: Path) -> Outcome:
    """Every text under every recorded variant: outcome, call, reasoning, text, error answer."""
    differing = []
    for case in _read(path):
        for variant in VARIANTS:
            if variant in case and not _parses_alike(case["text"], variant, case[variant]):
                differing.append(f"{case['name']}/{variant}")
    return _outcome(differing, "actions of failed parses not compared")


def _parses_alike(text: str, variant: Variant, recorded: dict[str, Any]) -> bool:
    action, struct = parse_action(text, "qwen3", variant), recorded["struct"]
    ours: dict[str, Any] = {"text": action.text, "reasoning": action.reasoning}
    reasoning = struct["reasoning_content"]
    theirs: dict[str, Any] = {
        "text": struct["content"],
        "reasoning": None if isinstance(reasoning, dict) else reasoning,
    }
    if not recorded["parse_success"]:
        ours["error"] = action.error
        theirs["error"] = (
            "Error: Failed to parse response to struct response"
            if variant == "envscaler"
            else f"Error: malformed response. {struct['tool_calls'] or reasoning}"
        )
    elif not recorded["action_success"]:
        ours["error"] = action.error
        theirs["error"] = (
            "Error: Failed to parse response to action"
            if variant == "envscaler"
            else "Error: could not parse a valid action."
        )
    else:
        ours["kind"], theirs["kind"] = action.kind, "call" if struct["tool_calls"] else "text"
        ours["action"] = {"name": action.name, "arguments": action.arguments}
        theirs["action"] = recorded["action"]
    # As JSON text, because a recorded NaN equals itself there.
    return json.dumps(ours, sort_keys=True) == json.dumps(theirs, sort_keys=True)


def reward(_: dict[str, Any], path: Path) -> Outcome:
    """Checklists on states that recorded calls lead to: states, each verdict, the reward."""
    recorded = json.loads(path.read_text())
    differing = []
    with EnvPool(1) as pool:
        for index, case in enumerate(recorded["cases"]):
            codes = tuple(recorded["check_functions"][name] for name in case["checks"])
            spec = EpisodeSpec(
                recorded["env_class_name"],
                recorded["env_class_code"],
                recorded["init_config"],
                codes,
            )
            (episode,) = pool.reset([spec])
            before = pool.states([episode])[0]
            results = pool.step([(episode, (name, arguments)) for name, arguments in case["ops"]])
            after = pool.states([episode])[0]
            (score,) = pool.score([episode])
            pool.close([episode])
            alike = (
                json.loads(before or "null") == case["init_state"]
                and json.loads(after or "null") == case["final_state"]
                and [result.observation for result in results]
                == list(map(str, case["tool_returns"]))
                and all(_scores_alike(score, v, case[v]) for v in VARIANTS if v in case)
            )
            if not alike:
                differing.append(f"case {index}")
    return _outcome(differing)


def _scores_alike(score: Score, variant: Variant, recorded: dict[str, Any]) -> bool:
    if "raises" in recorded:
        # An empty checklist: `None` is what a task is refused for under this variant.
        return recorded["raises"] == "ZeroDivisionError" and score.reward is None
    ours = 0.0 if score.reward is None and variant == "lopd" else score.reward
    verdicts = recorded["per_check_success_result_error"]
    return bool(ours == recorded["reward"] and [list(check) for check in score.checks] == verdicts)


def episodes_of(variant: Variant) -> Callable[[dict[str, Any], Path], Outcome]:
    """The adapter for whole episodes under one variant."""

    def episodes(_: dict[str, Any], path: Path) -> Outcome:
        recorded = json.loads(path.read_text())
        environment = Environment(
            "recorded", recorded["env_class_name"], recorded["env_class_code"], (), "", ()
        )
        checklist = tuple(Check(n, recorded["check_functions"][n]) for n in recorded["checklist"])
        task = ToolTask("recorded", "recorded", "", recorded["init_config"], checklist)
        with EnvPool(1) as pool:
            differing = [
                case["name"]
                for case in recorded["cases"]
                if not _plays_alike(pool, variant, task, environment, case)
            ]
        return _outcome(differing, "prompt texts not compared")

    return episodes


def _plays_alike(
    pool: EnvPool, variant: Variant, task: ToolTask, environment: Environment, case: dict[str, Any]
) -> bool:
    steps = case["steps"]
    world = ToolEpisodes(pool, variant=variant, max_steps=len(steps) + 2)
    (episode,) = world.reset([(task, environment, 0)])
    try:
        for step in steps:
            if episode.done:
                return False
            if step["text"] == SUBMIT:
                (result,) = world.submit([episode])
            else:
                (result,) = world.turn([(episode, step["text"])])
            if not _answers_alike(result, step):
                return False
        if "final_items" in case:
            state: dict[str, Any] = json.loads(pool.states([episode.id])[0] or "{}")
            same: bool = state.get("items") == case["final_items"]
            return same
        return True
    finally:
        world.close([episode])


def _answers_alike(result: TurnResult, step: dict[str, Any]) -> bool:
    observation = result.observation
    head = "Error: <Exception>\n"
    if observation.startswith(head):
        # The record keeps the last line of a traceback, which names files of its machine.
        observation = f"Error: <Exception>\\n<traceback ending: {observation.splitlines()[-1]}>"
    worked = result.executed or observation == FINISHED
    return (
        result.role == step["obs_type"]
        and observation == step["observation"]
        and (result.reward or 0.0) == step["reward"]
        and result.done == step["terminated"]
        and not step.get("truncated", False)
        and step.get("success", worked) == worked
        and step.get("info", {}).get("action_executed", worked) == worked
    )


def _read(path: Path) -> list[dict[str, Any]]:
    content = json.loads(path.read_text())
    cases: list[dict[str, Any]] = content["cases"] if isinstance(content, dict) else content
    return cases


def _outcome(differing: list[str], note: str = "") -> Outcome:
    detail = f"differing: {', '.join(differing)}" if differing else note
    return Outcome(float(len(differing)), None, not differing, detail)


ENTRIES: dict[str, Callable[[dict[str, Any], Path], Outcome]] = {
    "envscaler_parse": parse,
    "envscaler_reward": reward,
    "envscaler_episodes": episodes_of("envscaler"),
    "lopd_env_episodes": episodes_of("lopd"),
}
