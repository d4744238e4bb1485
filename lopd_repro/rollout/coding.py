"""The coding domain: one reply a task, its program run on all tests, reward 1 or 0.

The program is taken out of the reply by a named rule and judged in the sandbox, all programs of
a batch together. The verdict stands in the record: passed, wrong, timeout, memory, crash or
refused, or `no_program` where the rule finds none. An episode's experience text, what the
observation-lite trace is in tool use, is its program.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lopd_repro.data.coding.extract import extract
from lopd_repro.data.coding.schema import CodeTask, CodeTaskSet, tests_of
from lopd_repro.errors import UserError
from lopd_repro.rollout.domain import Opening, TurnOutcome
from lopd_repro.sandbox.executor import Executor
from lopd_repro.sandbox.programs import Judgement, Program, Tests, judge, parse_tests

NO_PROGRAM = "no_program"
_UNSURE = ("timeout", "memory")
_NO_OUTCOME = TurnOutcome("user", "", True, 0.0, record={"verdict": NO_PROGRAM})


@dataclass(frozen=True)
class CodePrompts:
    """Texts of a task's first messages.

    user: holds `{task}` and may hold `{starter}`, the code that the task starts from.
    """

    system: str
    user: str = "{task}"


def code_opening(task: CodeTask, prompts: CodePrompts) -> Opening:
    """First messages of a task: what the policy reads, before any privileged text."""
    try:
        user = prompts.user.format(task=task.statement, starter=task.starter)
    except (KeyError, IndexError) as error:
        raise UserError(f"prompts: unknown slot {error}; allowed: task, starter (user)") from None
    return Opening(prompts.system, user)


def fenced(program: str) -> str:
    """A program as a reply."""
    return f"```python\n{program}\n```"


class CodeTexts:
    """Tasks and finished episodes as texts."""

    def __init__(self, tasks: CodeTaskSet) -> None:
        self._tasks = tasks.tasks

    def task_text(self, task_id: str) -> str:
        """The task's statement."""
        return self._tasks[task_id].statement

    def trace(self, records: Sequence[Mapping[str, Any]]) -> str:
        """The episode's program."""
        return next((str(r["program"]) for r in records if r.get("executed")), "")


class CodingDomain(CodeTexts):
    """Runs coding episodes of a task set. `extraction` is a rule of `data.coding.extract`."""

    name = "coding"

    def __init__(
        self,
        tasks: CodeTaskSet,
        executor: Executor,
        prompts: CodePrompts,
        extraction: str = "last_fence",
    ) -> None:
        extract("", extraction)  # an unknown rule is refused now, not after the first batch
        super().__init__(tasks)
        self._executor = executor
        self._prompts = prompts
        self._extraction = extraction
        self._tests: dict[str, Tests] = {}
        self._judged: dict[tuple[str, str], TurnOutcome] = {}
        self._running: dict[int, str] = {}
        self._next = 0

    def opening(self, task_id: str) -> Opening:
        """The task's first messages."""
        return code_opening(self._tasks[task_id], self._prompts)

    def begin(self, requests: Sequence[tuple[str, int]]) -> list[int]:
        """Start episodes; nothing runs before the reply."""
        handles = list(range(self._next, self._next + len(requests)))
        self._next += len(requests)
        self._running.update(zip(handles, (task_id for task_id, _ in requests), strict=True))
        return handles

    def turn(self, turns: Sequence[tuple[int, str]]) -> list[TurnOutcome]:
        """Judge the replies' programs, all together.

        Equal programs of a task are run once, in this batch and over all: policies repeat
        themselves. What a time or memory limit ended is run again in the next batch.
        """
        asked = [(self._running.pop(handle), extract(t, self._extraction)) for handle, t in turns]
        new = list(
            dict.fromkeys(
                (task_id, code)
                for task_id, code in asked
                if code is not None and (task_id, code) not in self._judged
            )
        )
        programs = [Program(code, self._tests_of(task_id)) for task_id, code in new]
        # The cases after a bad one cannot change the reward.
        judgements = judge(self._executor, programs, stop=True)
        found = {key: _outcome(key[1], j) for key, j in zip(new, judgements, strict=True)}
        known = ChainMap(found, self._judged)
        outcomes = [
            _NO_OUTCOME if code is None else known[task_id, code] for task_id, code in asked
        ]
        self._judged |= {k: o for k, o in found.items() if o.record["verdict"] not in _UNSURE}
        return outcomes

    def cut(self, handles: Sequence[int]) -> list[TurnOutcome]:
        """Token budget spent before the reply ended: reward 0, nothing is run."""
        for handle in handles:
            del self._running[handle]
        return [TurnOutcome("user", "", True, 0.0, "step_cap") for _ in handles]

    def _tests_of(self, task_id: str) -> Tests:
        if task_id not in self._tests:
            self._tests[task_id] = parse_tests(tests_of(self._tasks[task_id]), f"task {task_id}")
        return self._tests[task_id]


def _outcome(code: str, judgement: Judgement) -> TurnOutcome:
    record = {
        "executed": True,
        "program": code.strip("\n"),
        "steps": [line for text in code.splitlines() if (line := text.strip())],
        "verdict": judgement.verdict,
        "cases": list(judgement.cases),
    }
    return TurnOutcome("user", "", True, float(judgement.passed), record=record)
