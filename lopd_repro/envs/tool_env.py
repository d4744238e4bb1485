"""Tool-use episodes with EnvScaler's rules, in batches.

A turn is read as an action (`protocol`). A call runs and its result comes back as a tool
turn; a turn that cannot be read, or names no tool, is answered by an error as a user turn;
words to the user, whatever they say, end the episode and the checklist is scored; a tool that
raises ends it with reward 0, unscored. Variants, by name (`lopd` is the paper's authors' copy):

- `envscaler`: arguments must be an object; `chat_with_user` called as a tool needs `content`.
- `lopd`: arguments that are null or empty count as `{}`; `chat_with_user` always ends; its own
  error texts; an empty checklist scores 0 (EnvScaler divides by zero: refused here).

At the step cap, by name: `unscored` (EnvScaler's agent: after `max_steps` turns the episode is
over with reward 0) or `submit` (LOPD's agent: step `max_steps` submits by itself, so the model
has `max_steps - 1` turns and the state is scored).

Where the references stop with an exception (a world that cannot be built, a state that cannot
be copied, `SystemExit`, no limit on time) the episode ends with reward 0 and a status.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from lopd_repro.data.schema import Environment, ToolTask
from lopd_repro.data.trace import TraceStep
from lopd_repro.envs.pool import EnvPool, EpisodeSpec, Score, Status
from lopd_repro.envs.protocol import CHAT, PROTOCOLS, VARIANTS, Action, Protocol, Variant
from lopd_repro.envs.protocol import parse_action as parse_action_text
from lopd_repro.errors import UserError

StepCap = Literal["unscored", "submit"]
TurnStatus = Literal["ok", "timeout", "crash", "error", "step_cap"]

STEP_CAPS: tuple[StepCap, ...] = ("unscored", "submit")
FINISHED = "Task finished"


@dataclass(frozen=True)
class TurnResult:
    """What the environment answers to one assistant turn.

    role: `tool` (a call ran and returned) or `user`. reward: None until `done`.
    status: `ok`, or why the episode is over early. executed: a tool ran and returned.
    """

    role: Literal["tool", "user"]
    observation: str
    done: bool
    reward: float | None
    status: TurnStatus
    action: Action
    executed: bool


@dataclass(frozen=True)
class Behaviour:
    """One episode in numbers, for the behaviour table.

    steps: assistant turns. calls_parsed: well-formed calls written, the ones not run included.
    calls_executed: tools that ran and returned. repeated_calls: calls acted on whose name and
    arguments an earlier turn of the episode had already. success: every check passed.
    """

    reward: float
    success: bool
    status: TurnStatus
    steps: int
    calls_parsed: int
    calls_executed: int
    repeated_calls: int

    def row(self) -> dict[str, Any]:
        """As a JSON row."""
        return asdict(self)


@dataclass(eq=False)
class Episode:
    """The handle of one episode; read it, the methods of `ToolEpisodes` change it.

    `checks` are the verdicts of the checklist, empty where it was not scored. `steps` are the
    calls that ran, for `lite_trace`. A world that cannot be built is `done` from the start.
    """

    task: ToolTask
    environment: Environment
    seed: int
    id: int
    done: bool = False
    reward: float | None = None
    success: bool = False
    status: TurnStatus = "ok"
    detail: str = ""
    turns: int = 0
    calls_parsed: int = 0
    calls_executed: int = 0
    repeated_calls: int = 0
    steps: list[TraceStep] = field(default_factory=list)
    checks: tuple[bool, ...] = ()
    _seen: set[str] = field(default_factory=set, repr=False)

    def behaviour(self) -> Behaviour:
        """The numbers of the episode so far; reward 0 while it has none."""
        return Behaviour(
            reward=self.reward or 0.0,
            success=self.success,
            status=self.status,
            steps=self.turns,
            calls_parsed=self.calls_parsed,
            calls_executed=self.calls_executed,
            repeated_calls=self.repeated_calls,
        )


@dataclass
class _Turn:
    """A turn being worked off: filled in by the phases of `ToolEpisodes.turn`."""

    episode: Episode
    action: Action
    role: Literal["tool", "user"] = "user"
    observation: str = ""
    executed: bool = False
    ends: bool = False
    scored: bool = False
    capped: bool = False


class ToolEpisodes:
    """Episodes on a pool. Results do not depend on how they are batched.

    protocol: `qwen3` or `olmo3`. variant: `envscaler` or `lopd`. step_cap: see the module.
    """

    def __init__(
        self,
        pool: EnvPool,
        protocol: Protocol = "qwen3",
        variant: Variant = "envscaler",
        max_steps: int = 30,
        step_cap: StepCap = "unscored",
    ) -> None:
        for option, value, allowed in (
            ("protocol", protocol, PROTOCOLS),
            ("variant", variant, VARIANTS),
            ("step_cap", step_cap, STEP_CAPS),
        ):
            if value not in allowed:
                raise UserError(f"{option}: found {value!r}, allowed are {', '.join(allowed)}")
        least = 2 if step_cap == "submit" else 1
        if max_steps < least:
            raise UserError(
                f"max_steps: found {max_steps}, allowed with step_cap {step_cap} are {least} up"
            )
        self.pool = pool
        self.protocol = protocol
        self.variant = variant
        self.max_steps = max_steps
        self.step_cap = step_cap

    @property
    def max_turns(self) -> int:
        """Turns the model has at most."""
        return self.max_steps - 1 if self.step_cap == "submit" else self.max_steps

    def reset(self, starts: Sequence[tuple[ToolTask, Environment, int]]) -> list[Episode]:
        """Begin an episode for each (task, environment, seed)."""
        for task, environment, _ in starts:
            if task.env_id != environment.env_id:
                raise UserError(
                    f"task {task.task_id}: its environment is {task.env_id}, "
                    f"found {environment.env_id}"
                )
            if not task.checklist and self.variant == "envscaler":
                raise UserError(
                    f"task {task.task_id}: empty checklist, which variant envscaler cannot "
                    "score (it divides by zero); variant lopd gives it 0"
                )
        ids = self.pool.reset([EpisodeSpec.of(task, env, seed) for task, env, seed in starts])
        episodes = [
            Episode(task, env, seed, id_)
            for (task, env, seed), id_ in zip(starts, ids, strict=True)
        ]
        for episode in episodes:
            status, detail = self.pool.status(episode.id)
            if status != "ok":
                self._fail(episode, status, detail)
        return episodes

    def turn(self, turns: Sequence[tuple[Episode, str]]) -> list[TurnResult]:
        """Give each episode its assistant text (turn-end tokens removed); results in order.

        An episode that is done, or named twice, is a ValueError.
        """
        if len({id(episode) for episode, _ in turns}) != len(turns):
            raise ValueError("an episode takes one turn at a time")
        if any(episode.done for episode, _ in turns):
            raise ValueError("an episode that is done takes no turn")
        work = [
            _Turn(episode, parse_action_text(text, self.protocol, self.variant))
            for episode, text in turns
        ]
        self._run_calls([turn for turn in work if self._begin(turn)])
        return self._end(work)

    def submit(self, episodes: Sequence[Episode]) -> list[TurnResult]:
        """Finish these episodes as they stand, without a turn of the model, and score them."""
        if any(episode.done for episode in episodes):
            raise ValueError("an episode that is done cannot be submitted")
        action = Action("text", CHAT, {"content": ""})
        return self._end(
            [
                _Turn(episode, action, observation=FINISHED, ends=True, scored=True)
                for episode in episodes
            ]
        )

    def close(self, episodes: Sequence[Episode]) -> None:
        """Free the worlds of these episodes; their numbers stay readable."""
        self.pool.close([episode.id for episode in episodes])

    def noop_rewards(self, pairs: Sequence[tuple[ToolTask, Environment]]) -> list[float]:
        """Reward of an agent that finishes at once without a call, per task: the score's floor."""
        episodes = self.reset([(task, environment, 0) for task, environment in pairs])
        self._score([episode for episode in episodes if not episode.done])
        self.close(episodes)
        return [episode.reward or 0.0 for episode in episodes]

    def noop_reward(self, task: ToolTask, environment: Environment) -> float:
        """`noop_rewards` for one task."""
        return self.noop_rewards([(task, environment)])[0]

    # --- phases of a turn ---

    def _begin(self, turn: _Turn) -> bool:
        """Deal with everything that runs no tool; True if a tool is to be run."""
        episode, action = turn.episode, turn.action
        episode.turns += 1
        episode.calls_parsed += action.n_calls
        if action.kind == "error":
            turn.observation = action.error
            return False
        name, arguments = action.name, action.arguments
        if self.variant == "lopd":
            arguments = arguments or {}
        elif not isinstance(arguments, dict) or (name == CHAT and "content" not in arguments):
            turn.observation = self._invalid(name)
            return False
        if name == CHAT:
            turn.observation, turn.ends, turn.scored = FINISHED, True, True
            return False
        # The references pass any name to hasattr, which raises on one that is not a string.
        if not isinstance(arguments, dict) or not isinstance(name, str):
            turn.observation = self._invalid(name)
            return False
        key = json.dumps([name, arguments], sort_keys=True)
        episode.repeated_calls += key in episode._seen
        episode._seen.add(key)
        return True

    def _invalid(self, name: Any) -> str:
        if self.variant == "envscaler":
            return "Error: Invalid action"
        return f"Error: '{name}' is not a valid tool of this environment."

    def _run_calls(self, turns: list[_Turn]) -> None:
        calls = [
            (turn.episode.id, (turn.action.name, turn.action.arguments or {})) for turn in turns
        ]
        for turn, result in zip(turns, self.pool.step(calls), strict=True):
            episode = turn.episode
            if result.kind == "failed":
                self._fail(episode, result.status, result.detail)
                turn.observation, turn.ends = f"Error: {result.status}", True
                continue
            if result.kind == "unknown":
                turn.observation = self._invalid(turn.action.name)
                continue
            raised = result.kind == "raised"
            if raised:
                turn.observation = "Error: <Exception>\n" + result.observation
                turn.ends, episode.reward = True, 0.0
            else:
                turn.role, turn.observation, turn.executed = "tool", result.observation, True
                episode.calls_executed += 1
            episode.steps.append(
                TraceStep(turn.action.name, turn.action.arguments or {}, result.observation, raised)
            )

    def _score(self, episodes: list[Episode]) -> None:
        scores = self.pool.score([episode.id for episode in episodes])
        for episode, score in zip(episodes, scores, strict=True):
            if score.status != "ok":
                self._fail(episode, score.status, score.detail)
            else:
                self._reward(episode, score)

    @staticmethod
    def _reward(episode: Episode, score: Score) -> None:
        episode.checks = tuple(result is True for _, result, _ in score.checks)
        episode.reward = 0.0 if score.reward is None else score.reward
        # Not "reward == 1": 20,000 checks with one failure round to 1.0 as well.
        episode.success = bool(episode.checks) and all(episode.checks)

    @staticmethod
    def _fail(episode: Episode, status: Status, detail: str) -> None:
        episode.done, episode.reward, episode.status, episode.detail = True, 0.0, status, detail

    def _end(self, work: list[_Turn]) -> list[TurnResult]:
        for turn in work:
            if not turn.ends and turn.episode.turns >= self.max_turns:
                turn.ends = turn.capped = True
                turn.scored = self.step_cap == "submit"
        self._score([turn.episode for turn in work if turn.scored])
        return [self._finish(turn) for turn in work]

    def _finish(self, turn: _Turn) -> TurnResult:
        episode = turn.episode
        if turn.ends:
            episode.done = True
            episode.reward = episode.reward or 0.0
            if turn.capped and episode.status == "ok":
                episode.status = "step_cap"
        return TurnResult(
            role=turn.role,
            observation=turn.observation,
            done=turn.ends,
            reward=episode.reward if turn.ends else None,
            status=episode.status,
            action=turn.action,
            executed=turn.executed,
        )
