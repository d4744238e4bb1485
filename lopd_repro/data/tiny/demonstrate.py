"""A scripted policy for the tiny tasks, and in-process episodes to record what it does.

The policy reads the instruction, looks the record up, then runs pre-step, main call and
post-step, and ends with `Task Completed`. It can follow any given procedure, and noise makes it
only partly competent: base models are trained on such episodes.

`run_in_process` runs the bundled environments without a sandbox, which is fine for this
project's own code and makes corpora cheap; it refuses any other environment.
"""

from __future__ import annotations

import ast
import json
import random
from collections.abc import Iterable
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, Protocol

from lopd_repro.data.schema import Environment, ToolTask
from lopd_repro.data.tiny.domains import DOMAINS, ID_NUMBERS, PROCEDURES, VALUES, Procedure
from lopd_repro.data.tiny.tasks import read_instruction
from lopd_repro.data.tiny.world import environment as tiny_environment
from lopd_repro.data.trace import TraceStep
from lopd_repro.data.trace import lite_trace as trace_text
from lopd_repro.errors import UserError

DONE = "Task Completed"
MAX_STEPS = 7
_CALL = ("<tool_call>\n", "\n</tool_call>")


@dataclass(frozen=True)
class Noise:
    """Probabilities of the demonstrator's mistakes, each drawn once per episode.

    Where the procedure has no pre-step, `pre_wrong` adds one and `pre_omit` does nothing.
    `value_wrong` and `entity_wrong` spoil the main call.
    """

    pre_omit: float = 0.0
    pre_wrong: float = 0.0
    post_omit: float = 0.0
    post_wrong: float = 0.0
    value_wrong: float = 0.0
    entity_wrong: float = 0.0


GOLD = Noise()


@dataclass(frozen=True)
class Turn:
    """What the assistant wrote, or what the tool answered."""

    role: Literal["assistant", "tool"]
    text: str


@dataclass(frozen=True)
class Call:
    """One executed tool call."""

    tool: str
    arguments: dict[str, Any]
    observation: str


@dataclass(frozen=True)
class Episode:
    """A whole episode; `turns` alternate assistant, tool, ..., assistant."""

    task: ToolTask
    turns: tuple[Turn, ...]
    calls: tuple[Call, ...]
    initial_state: dict[str, Any]
    final_state: dict[str, Any]


class Policy(Protocol):
    """Anything that writes the next assistant text; the first observation is none."""

    def next_text(self, last_observation: str | None) -> str: ...


class Demonstrator:
    """Follows a procedure (the family's own by default), with mistakes drawn from `noise`."""

    def __init__(
        self,
        task: ToolTask,
        rng: random.Random | None = None,
        noise: Noise = GOLD,
        procedure: Procedure | None = None,
    ) -> None:
        self._request = request = read_instruction(task)
        self._rng = rng = rng or random.Random(0)
        self._noise = noise
        given = procedure or PROCEDURES[request.domain.name, request.family.name]
        self.followed = _disturbed(given, request.domain.name, noise, rng)
        """The procedure that this episode really follows, after noise."""
        self._value_wrong = rng.random() < noise.value_wrong
        self._entity_wrong = rng.random() < noise.entity_wrong
        steps = (self.followed.pre, request.family.main_tool, self.followed.post)
        self._steps = [step for step in steps if step]
        self._record: tuple[str, int] | None = None
        self._started = False

    def next_text(self, last_observation: str | None) -> str:
        """The next assistant text; `last_observation` is the last tool result, none at first."""
        domain, family = self._request.domain, self._request.family
        if not self._started:
            self._started = True
            return call_text(domain.look_up, {domain.owner: self._request.name})
        if self._record is None:
            found = ast.literal_eval(last_observation or "{}")
            if not found.get("success"):
                return DONE
            self._record = found[domain.id_name], found[domain.number]
        if not self._steps:
            return DONE
        step = self._steps.pop(0)
        arguments: dict[str, Any] = {domain.id_name: self._record[0]}
        if step == family.main_tool:
            if self._entity_wrong:
                arguments[domain.id_name] = self._other_id(self._record[0])
            asked = self._request.value
            value = self._record[1] if asked is None else asked
            arguments[family.argument] = self._other_value(value) if self._value_wrong else value
        return call_text(step, arguments)

    def _other_id(self, right: str) -> str:
        prefix = self._request.domain.id_prefix
        return self._rng.choice([i for n in ID_NUMBERS if (i := f"{prefix}{n}") != right])

    def _other_value(self, right: int | str) -> int | str:
        values: tuple[int | str, ...] = self._request.family.words or VALUES
        return self._rng.choice([value for value in values if value != right])


def _disturbed(
    procedure: Procedure, domain_name: str, noise: Noise, rng: random.Random
) -> Procedure:
    domain = DOMAINS[domain_name]
    pre: str | None = procedure.pre
    post: str | None = procedure.post
    draw = rng.random()
    if draw < noise.pre_wrong:
        pre = rng.choice([tool for tool in domain.pre_steps if tool != procedure.pre])
    elif draw < noise.pre_wrong + noise.pre_omit:
        pre = None
    draw = rng.random()
    if draw < noise.post_wrong:
        post = rng.choice([tool for tool in domain.post_steps if tool != procedure.post])
    elif draw < noise.post_wrong + noise.post_omit:
        post = None
    return Procedure(pre, post)


def random_procedure(domain_name: str, rng: random.Random) -> Procedure:
    """Uniform over the domain's pre-steps (none included) and post-steps."""
    domain = DOMAINS[domain_name]
    return Procedure(rng.choice((None, *domain.pre_steps)), rng.choice(domain.post_steps))


def demonstration(
    task: ToolTask,
    environment: Environment | None = None,
    rng: random.Random | None = None,
    noise: Noise = GOLD,
    procedure: Procedure | None = None,
) -> Episode:
    """One episode of the demonstrator; `environment` defaults to the bundled one."""
    return run_in_process(task, Demonstrator(task, rng, noise, procedure), environment=environment)


def call_text(tool: str, arguments: dict[str, Any]) -> str:
    """An assistant text with one call, as Qwen3 writes it."""
    body = json.dumps({"name": tool, "arguments": arguments})
    return f"{_CALL[0]}{body}{_CALL[1]}"


def lite_trace(calls: Iterable[Call]) -> str:
    """The calls as the experience bank writes them."""
    return trace_text(TraceStep(call.tool, call.arguments, call.observation) for call in calls)


def run_in_process(
    task: ToolTask,
    policy: Policy,
    *,
    environment: Environment | None = None,
    max_steps: int = MAX_STEPS,
) -> Episode:
    """Run one episode of a bundled task in this process, for at most `max_steps` texts.

    The policy must write calls as `call_text` does; any other text ends the episode.
    `UserError` for an environment that is not this project's own.
    """
    own = _own_environment(task)
    if environment is not None and environment.class_code != own.class_code:
        raise UserError(
            f"environment {environment.env_id!r} is not bundled code: run it in a worker"
        )
    instance = _environment_class(own)(deepcopy(task.init_config))
    for name, value in deepcopy(task.init_config).items():
        setattr(instance, name, value)
    initial_state = deepcopy(vars(instance))
    turns: list[Turn] = []
    calls: list[Call] = []
    observation: str | None = None
    for _ in range(max_steps):
        text = policy.next_text(observation)
        turns.append(Turn("assistant", text))
        if not text.startswith(_CALL[0]):
            break
        call = json.loads(text.removeprefix(_CALL[0]).removesuffix(_CALL[1]))
        observation = str(getattr(instance, call["name"])(**call["arguments"]))
        turns.append(Turn("tool", observation))
        calls.append(Call(call["name"], call["arguments"], observation))
    return Episode(task, tuple(turns), tuple(calls), initial_state, deepcopy(vars(instance)))


def checks_in_process(episode: Episode) -> tuple[bool, ...]:
    """Verdict of each check on the episode's final state. For generated tasks only."""
    _own_environment(episode.task)
    verdicts = []
    for check in episode.task.checklist:
        scope: dict[str, Any] = {"initial_state": deepcopy(episode.initial_state)}
        exec(check.code, scope)
        verdicts.append(bool(scope["check_func"](deepcopy(episode.final_state))))
    return tuple(verdicts)


def reward_in_process(episode: Episode) -> float:
    """Share of checks that hold, rounded to four places as EnvScaler does."""
    verdicts = checks_in_process(episode)
    return round(sum(verdicts) / len(verdicts), 4)


def _own_environment(task: ToolTask) -> Environment:
    """The bundled environment of a generated task; its checks and code are this project's own."""
    if task.domain not in DOMAINS or tiny_environment(task.domain).env_id != task.env_id:
        raise UserError(f"task {task.task_id!r} is not a bundled tiny task: run it in a worker")
    return tiny_environment(task.domain)


@cache
def _class_of(code: str, name: str) -> Any:
    scope: dict[str, Any] = {}
    exec(code, scope)
    return scope[name]


def _environment_class(environment: Environment) -> Any:
    return _class_of(environment.class_code, environment.class_name)
