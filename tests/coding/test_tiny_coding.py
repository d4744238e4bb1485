"""The tiny programming tasks: only the convention passes, texts are apart, programs short."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from lopd_repro.data.coding import CodeTask
from lopd_repro.data.splits import normalise_text
from lopd_repro.data.tiny import segmenter
from lopd_repro.data.tiny_coding import (
    FAMILIES,
    CodeNoise,
    conventions,
    noisy_solution,
    program_lines,
    read_statement,
    run_here,
    sample_statement,
    sample_task,
    solution,
    tiny_tasks,
    vocabulary,
)
from lopd_repro.errors import UserError
from lopd_repro.files import digest_text

TASKS = tiny_tasks(seed=0, count=120)


def passes(task: CodeTask, program: str) -> bool:
    """All cases, compared exactly as the generator writes them."""
    for case in task.cases:
        given: Any = case.input.rstrip("\n") if task.kind == "stdin" else case.args[0]
        expected: Any = case.output if task.kind == "stdin" else case.expected
        if run_here(program, task.kind, task.entry_point, given) != expected:
            return False
    return True


def test_tasks_are_spread_over_families_and_both_kinds() -> None:
    assert Counter(task.family for task in TASKS.values()) == dict.fromkeys(FAMILIES, 10)
    assert Counter(task.kind for task in TASKS.values()) == {"stdin": 60, "function": 60}
    assert len({normalise_text(task.statement) for task in TASKS.values()}) == 120


def test_only_the_familys_convention_passes() -> None:
    for task in TASKS.values():
        own = FAMILIES[task.family][1].convention
        assert passes(task, solution(task))
        for other in conventions(task.family):
            assert passes(task, solution(task, other)) == (other == own)


def test_a_hand_made_answer() -> None:
    # numbers-above: drop the first value, add up those above k, print the double.
    task = CodeTask(
        "t", "Read ages from one line. Print the sum of those above 5.", "stdin", (),
        topic="numbers", family="numbers-above",
    )  # fmt: skip
    # 9 is dropped; 6 + 7 = 13, doubled 26.
    assert run_here(solution(task), "stdin", "", "9 6 5 7 1") == "26\n"


def test_equal_seeds_give_equal_tasks_and_another_seed_others() -> None:
    assert tiny_tasks(0, 24) == {k: TASKS[k] for k in list(TASKS)[:24]}
    assert tiny_tasks(1, 24) != tiny_tasks(0, 24)


def test_statements_for_mini_suites_never_come_otherwise() -> None:
    rng = random.Random(3)
    held_out = {
        sample_statement(rng, f, held_out=True).statement for f in FAMILIES for _ in "12345"
    }
    others = {sample_statement(rng, f).statement for f in FAMILIES for _ in range(300)}
    assert not held_out & others


def test_forbidden_texts_are_avoided() -> None:
    rng = random.Random(5)
    forbidden = {digest_text(normalise_text(t.statement)) for t in TASKS.values()}
    for family in FAMILIES:
        drawn = [sample_task(rng, family, forbidden_texts=forbidden) for _ in range(5)]
        assert not {t.statement for t in drawn} & {t.statement for t in TASKS.values()}


def test_noise_of_certainty_never_passes_and_none_always_does() -> None:
    rng = random.Random(0)
    for task in TASKS.values():
        assert passes(task, noisy_solution(task, rng))
        assert not passes(task, noisy_solution(task, rng, CodeNoise(post_wrong=1.0)))
        assert not passes(task, noisy_solution(task, rng, CodeNoise(pre_wrong=1.0)))
        assert not passes(task, noisy_solution(task, rng, CodeNoise(post_omit=1.0)))


def test_programs_and_statements_are_short_in_the_vocabulary() -> None:
    words = vocabulary(["\nReference:\n"])
    assert len(words) == len(set(words))
    known = segmenter(words)
    for task in TASKS.values():
        program = f"```python\n{solution(task)}\n```"
        pieces = known.findall(program)
        assert "".join(pieces) == program
        assert set(pieces) <= set(words)
        assert 10 <= len(pieces) <= 25
        assert set(known.findall(task.statement)) <= set(words)
        assert len(known.findall(task.statement)) <= 10


def test_lines_of_a_program() -> None:
    assert program_lines("def f(a):\n    a = a[1:]\n\n    return a") == [
        "def f(a):", "a = a[1:]", "return a",
    ]  # fmt: skip


def test_a_statement_of_another_form_is_refused() -> None:
    task = CodeTask("t", "Do something.", "stdin", (), family="numbers-above")
    with pytest.raises(UserError, match="is not a tiny statement"):
        read_statement(task)
    with pytest.raises(UserError, match="is not a tiny coding family"):
        read_statement(CodeTask("t", "Do something.", "stdin", ()))
