"""Coding episodes: verdicts, rewards, what an experience is, and the sandbox between."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lopd_repro.data.coding import CodeCase, CodeTask, CodeTaskSet
from lopd_repro.data.tiny_coding import solution, tiny_tasks
from lopd_repro.errors import UserError
from lopd_repro.experience.skills import OfflineWriter, attempts_of
from lopd_repro.rollout.coding import CodePrompts, CodingDomain, fenced
from lopd_repro.rollout.episodes import Trajectory
from lopd_repro.sandbox.executor import Executor, ProgramLimits

DOUBLE = CodeTask(
    "double", "Print the double.", "stdin", (CodeCase("2\n", "4\n"), CodeCase("5\n", "10\n"))
)
ADD = CodeTask(
    "add", "Write add(a, b).", "function",
    (CodeCase(args=(1, 2), expected=3), CodeCase(args=(4, 4), expected=8)),
    entry_point="add", starter="def add(a, b):\n",
)  # fmt: skip
TINY = tiny_tasks(0, 12)
GOOD = "print(2 * int(input()))"


@pytest.fixture(scope="module")
def executor() -> Iterator[Executor]:
    with Executor(ProgramLimits(cpu_seconds=0.3, wall_seconds=10.0), workers=1) as running:
        yield running


@pytest.fixture
def domain(executor: Executor) -> CodingDomain:
    tasks = CodeTaskSet({"double": DOUBLE, "add": ADD, **TINY})
    return CodingDomain(tasks, executor, CodePrompts("Be brief.", "{task}\n{starter}"))


def verdicts(domain: CodingDomain, *replies: tuple[str, str]) -> list[tuple[float | None, str]]:
    handles = domain.begin([(task_id, 0) for task_id, _ in replies])
    outcomes = domain.turn([(h, text) for h, (_, text) in zip(handles, replies, strict=True)])
    assert all(outcome.done and outcome.status == "ok" for outcome in outcomes)
    return [(outcome.reward, outcome.record["verdict"]) for outcome in outcomes]


def test_first_messages(domain: CodingDomain) -> None:
    opening = domain.opening("add")
    assert opening.system == "Be brief."
    assert opening.user == "Write add(a, b).\ndef add(a, b):\n"
    assert domain.task_text("add") == "Write add(a, b)."


def test_rewards_are_one_if_all_tests_pass_else_zero(domain: CodingDomain) -> None:
    assert verdicts(
        domain,
        ("double", fenced(GOOD)),
        ("double", fenced("print(4)")),  # right in the first case only
        ("double", fenced("print(2 * int(input())")),  # no Python
        ("double", fenced("while True: pass")),
        ("double", "no fence: " + GOOD),
        ("add", fenced("def add(a, b):\n    return a + b")),
        ("add", fenced("def sub(a, b):\n    return a + b")),
        ("add", "Well.\n" + fenced("def add(a, b):\n    return 8") + "\nDone."),
    ) == [
        (1.0, "passed"),
        (0.0, "wrong"),
        (0.0, "crash"),
        (0.0, "timeout"),
        (0.0, "no_program"),
        (1.0, "passed"),
        (0.0, "crash"),
        (0.0, "wrong"),
    ]


def test_the_tiny_solutions_pass_in_the_sandbox(domain: CodingDomain) -> None:
    replies = [(task_id, fenced(solution(task))) for task_id, task in TINY.items()]
    assert verdicts(domain, *replies) == [(1.0, "passed")] * 12


def test_equal_programs_are_run_once(executor: Executor, monkeypatch: pytest.MonkeyPatch) -> None:
    domain = CodingDomain(CodeTaskSet({"double": DOUBLE}), executor, CodePrompts(""))
    ran: list[int] = []
    real = executor.run
    monkeypatch.setattr(executor, "run", lambda jobs: (ran.append(len(jobs)), real(jobs))[1])
    assert verdicts(domain, *[("double", fenced(GOOD))] * 3) == [(1.0, "passed")] * 3
    assert verdicts(domain, ("double", fenced(GOOD)), ("double", fenced("print(1)"))) == [
        (1.0, "passed"),
        (0.0, "wrong"),
    ]
    assert ran == [1, 1]


def test_a_spent_budget_scores_zero_and_runs_nothing(domain: CodingDomain) -> None:
    (outcome,) = domain.cut(domain.begin([("double", 0)]))
    assert (outcome.done, outcome.reward, outcome.status) == (True, 0.0, "step_cap")


def episode(domain: CodingDomain, text: str) -> Trajectory:
    (outcome,) = domain.turn([(domain.begin([("double", 0)])[0], text)])
    assert outcome.reward is not None
    return Trajectory("double", 0, (), reward=outcome.reward, records=[outcome.record])


def test_an_experience_is_the_program_and_its_steps_are_lines(domain: CodingDomain) -> None:
    right = episode(domain, fenced("n = int(input())\nprint(n * 2)"))
    wrong = episode(domain, fenced("n = int(input())\nprint(n + 2)"))
    none = episode(domain, "nothing")
    assert domain.trace(right.records) == "n = int(input())\nprint(n * 2)"
    assert domain.trace(none.records) == ""
    attempts = attempts_of([right, wrong, none], domain)
    assert [a.calls for a in attempts] == [
        ("n = int(input())", "print(n * 2)"),
        ("n = int(input())", "print(n + 2)"),
        (),
    ]
    skill = OfflineWriter().write("task", attempts)
    assert skill is not None
    assert (skill.works, skill.avoid) == ("n = int(input()), print(n * 2)", "print(n + 2)")
    assert skill.workflow == "n = int(input())\nprint(n * 2)"


def test_bad_settings_are_refused(executor: Executor) -> None:
    tasks = CodeTaskSet({"double": DOUBLE})
    with pytest.raises(UserError, match="extraction: found 'guess'"):
        CodingDomain(tasks, executor, CodePrompts(""), "guess")
    with pytest.raises(UserError, match="prompts: unknown slot"):
        CodingDomain(tasks, executor, CodePrompts("", "{tusk}")).opening("double")
