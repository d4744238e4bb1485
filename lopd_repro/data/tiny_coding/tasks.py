"""Draws tiny programming tasks: a statement, and tests that only the family's convention passes.

Every test set tells the family's convention from every other one of its topic. One statement in
eight, by the digest of its text, is kept for the benchmarks' mini-suites: training tasks, splits
and corpora never draw it.
"""

from __future__ import annotations

import random
from collections.abc import Collection
from dataclasses import replace

from lopd_repro.data.coding.schema import CodeCase, CodeTask
from lopd_repro.data.splits import normalise_text
from lopd_repro.data.tiny_coding.families import FAMILIES, NAMES, VALUES
from lopd_repro.data.tiny_coding.programs import (
    Request,
    conventions,
    read_statement,
    run_here,
    solution,
    statement_of,
)
from lopd_repro.errors import UserError
from lopd_repro.files import digest_text

# A program on standard input runs anew for every case, a function once for all.
N_CASES = {"stdin": 3, "function": 6}
_KEPT = 8
_MAX_DRAWS = 1000


def sample_task(
    rng: random.Random,
    family: str,
    task_id: str = "sampled",
    forbidden_texts: Collection[str] = (),
    held_out: bool = False,
) -> CodeTask:
    """One random task of a family (`FAMILIES` has their names).

    `forbidden_texts` are SHA-256 of normalised statements that are not returned. `held_out` draws
    from the statements kept for the mini-suites, otherwise none of these comes.
    """
    for _ in range(_MAX_DRAWS):
        task = sample_statement(rng, family, task_id, forbidden_texts, held_out)
        cases = _cases(rng, task)
        if cases is not None:
            return replace(task, cases=cases)
    raise UserError(f"tiny coding tasks: no tests tell the conventions of {family} apart")


def sample_statement(
    rng: random.Random,
    family: str,
    task_id: str = "sampled",
    forbidden_texts: Collection[str] = (),
    held_out: bool = False,
) -> CodeTask:
    """As `sample_task`, without tests: all that a training corpus needs."""
    topic, own = FAMILIES[family]
    for _ in range(_MAX_DRAWS):
        name = rng.choice(NAMES) if topic.kind == "function" else ""
        request = Request(rng.choice(topic.nouns), rng.choice(VALUES), name)
        statement = statement_of(family, rng.randrange(len(own.templates)), request)
        digest = digest_text(normalise_text(statement))
        if digest not in forbidden_texts and (int(digest[:8], 16) % _KEPT == 0) is held_out:
            return CodeTask(task_id, statement, topic.kind, (), name, "", topic.name, family)
    raise UserError(f"tiny coding tasks: no {family} statement left that is not forbidden")


def tiny_tasks(seed: int, count: int, held_out: bool = False) -> dict[str, CodeTask]:
    """`count` tasks by id, spread evenly over the families; no two share a text."""
    if count < 1:
        raise UserError(f"number of tiny coding tasks: {count}, must be at least 1")
    rng = random.Random(f"tiny-coding-{seed}-{held_out}")
    names = list(FAMILIES)
    tasks: dict[str, CodeTask] = {}
    texts: set[str] = set()
    for index in range(count):
        family = names[index % len(names)]
        task_id = f"{family}-{index // len(names):04d}"
        task = sample_task(rng, family, task_id, texts, held_out)
        texts.add(digest_text(normalise_text(task.statement)))
        tasks[task_id] = task
    return tasks


def _cases(rng: random.Random, task: CodeTask) -> tuple[CodeCase, ...] | None:
    """Tests that tell all conventions apart; None where these draws do not."""
    _, own = FAMILIES[task.family]
    value = read_statement(task).value
    drawn = [own.draw(rng, value) for _ in range(N_CASES[task.kind])]
    stdin = task.kind == "stdin"
    given = [" ".join(map(str, item)) if stdin else item for item in drawn]

    def answers(program: str) -> list[object]:
        return [run_here(program, task.kind, task.entry_point, item) for item in given]

    right = answers(solution(task))
    for other in conventions(task.family):
        if other != own.convention and answers(solution(task, other)) == right:
            return None
    if stdin:
        return tuple(
            CodeCase(input=f"{i}\n", output=str(o)) for i, o in zip(given, right, strict=True)
        )
    return tuple(CodeCase(args=(i,), expected=o) for i, o in zip(given, right, strict=True))
