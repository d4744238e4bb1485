"""Draws tiny tasks: an initial state with distractors, an instruction, and its checks.

Checks per task (four):
1. the main change is on the right record with the right value;
2. the pre-step came before the main call, or, for a family without pre-step, all other records
   are untouched (the one check that holds at reset);
3. the post-step came after the main call;
4. nothing else was changed: the calls that change something are exactly the procedure's.
   It asks for pre- and post-step too, since otherwise leaving them out would pay better than
   guessing them and a learner would settle there.
"""

from __future__ import annotations

import random
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lopd_repro.data.envscaler import write_task_set
from lopd_repro.data.schema import Check, TaskSet, ToolTask
from lopd_repro.data.splits import normalise_text, state_digest
from lopd_repro.data.tiny.domains import (
    DOMAINS,
    FIRST_NAMES,
    ID_NUMBERS,
    LAST_NAMES,
    VALUES,
    Domain,
    Family,
)
from lopd_repro.data.tiny.world import env_id, environments
from lopd_repro.errors import UserError
from lopd_repro.files import digest_text

DEFAULT_SIZES: dict[str, int] = {"train": 480, "validation": 96, "test": 96}
_MAX_DRAWS = 1000


@dataclass(frozen=True)
class Request:
    """What an instruction asks for; `value` is none where only the look-up tells it."""

    domain: Domain
    family: Family
    name: str
    value: int | str | None


def make_tiny_tasks(
    out_dir: Path | str, seed: int, sizes: Mapping[str, int] | None = None
) -> TaskSet:
    """Write `environments.jsonl` and `scenarios.jsonl` (sum of `sizes` tasks) and return them.

    Equal seeds and sizes give equal bytes.
    """
    task_set = tiny_task_set(seed, sum((sizes or DEFAULT_SIZES).values()))
    out = Path(out_dir)
    write_task_set(task_set, out / "environments.jsonl", out / "scenarios.jsonl")
    return task_set


def tiny_task_set(seed: int, count: int) -> TaskSet:
    """`count` tasks spread evenly over the procedures; no two share a text or a state."""
    if count < 1:
        raise UserError(f"number of tiny tasks: {count}, must be at least 1")
    rng = random.Random(f"tiny-tasks-{seed}")
    kinds = [
        (domain.name, family.name) for domain in DOMAINS.values() for family in domain.families
    ]
    tasks: dict[str, ToolTask] = {}
    texts: set[str] = set()
    states: set[str] = set()
    for index in range(count):
        domain, family = kinds[index % len(kinds)]
        task_id = f"{domain}-{family}-{index // len(kinds):04d}"
        for _ in range(_MAX_DRAWS):
            task = sample_task(rng, domain, family, task_id)
            text, state = normalise_text(task.task), state_digest(task)
            if text not in texts and state not in states:
                break
        else:
            raise UserError(f"number of tiny tasks: {count} is more than {domain}/{family} offers")
        texts.add(text)
        states.add(state)
        tasks[task_id] = task
    return TaskSet(environments=environments(), tasks=tasks)


def sample_task(
    rng: random.Random,
    domain_name: str,
    family_name: str,
    task_id: str = "sampled",
    forbidden_texts: Collection[str] = (),
) -> ToolTask:
    """One random task of a family.

    `forbidden_texts` are digests as `splits.text_digests` gives them: tasks with such a text are
    not returned, so that training corpora made from fresh tasks stay clear of held-out ones.
    """
    domain = DOMAINS[domain_name]
    family = domain.family(family_name)
    for _ in range(_MAX_DRAWS):
        task = _draw(rng, domain, family, task_id)
        if not forbidden_texts or digest_text(normalise_text(task.task)) not in forbidden_texts:
            return task
    raise UserError(f"tiny tasks: no {domain_name}/{family_name} text left that is not forbidden")


def read_instruction(task: ToolTask) -> Request:
    """What the instruction of a tiny task asks for, from its text alone.

    `UserError` if the text is none of the tiny templates.
    """
    for domain in DOMAINS.values():
        if task.env_id != env_id(domain.name):
            continue
        for family in domain.families:
            for template in family.templates:
                match = re.fullmatch(_pattern(template), task.task)
                if match:
                    value = match.groupdict().get("value")
                    number = value is not None and family.kind == "number"
                    return Request(
                        domain, family, match["name"], int(value) if number and value else value
                    )
    raise UserError(f"task {task.task_id!r}: {task.task!r} is not a tiny instruction")


def _draw(rng: random.Random, domain: Domain, family: Family, task_id: str) -> ToolTask:
    records = _records(rng, domain)
    target = rng.choice(list(records))
    value: Any = records[target][domain.number]
    if family.kind != "looked_up":
        value = rng.choice(VALUES if family.kind == "number" else family.words)
    text = rng.choice(family.templates).format(name=records[target][domain.owner], value=value)
    return ToolTask(
        task_id=task_id,
        env_id=env_id(domain.name),
        task=text,
        init_config={domain.collection: records},
        checklist=_checklist(domain, family, target, value),
        domain=domain.name,
        family=family.name,
    )


def _records(rng: random.Random, domain: Domain) -> dict[str, dict[str, Any]]:
    """Four or five records; the first two owners share their first name, others a last name."""
    count = rng.choice((4, 5))
    first = rng.sample(FIRST_NAMES, count - 1)
    last = rng.sample(LAST_NAMES, count - 1)
    owners = [f"{a} {b}" for a, b in zip(first, last, strict=True)]
    owners.append(f"{first[0]} {last[1]}")
    rng.shuffle(owners)
    ids = rng.sample(ID_NUMBERS, count)
    return {
        f"{domain.id_prefix}{number}": {domain.owner: owner, domain.number: rng.choice(VALUES)}
        for number, owner in zip(ids, owners, strict=True)
    }


def _checklist(domain: Domain, family: Family, target: str, value: Any) -> tuple[Check, ...]:
    pre, post = family.procedure.pre, family.procedure.post
    main = family.main_tool
    others = (
        f'all(final_state["{domain.collection}"].get(key) == record '
        f'for key, record in initial_state["{domain.collection}"].items() if key != "{target}")'
    )
    steps = [[tool, target] for tool in (pre, main, post) if tool]
    checks = [
        Check(
            f"Is {family.name} {value} set on {target}?",
            _check(
                f'return final_state["{domain.collection}"]["{target}"].get("{family.name}")'
                f" == {value!r}"
            ),
        )
    ]
    if pre:
        checks.append(_order(pre, main, target))
    else:
        checks.append(Check("Are all other records untouched?", _check(f"return {others}")))
    if post:
        checks.append(_order(main, post, target))
    checks.append(
        Check(
            "Was nothing changed beyond the procedure?",
            _check(f'return final_state["events"] == {steps!r} and {others}'),
        )
    )
    return tuple(checks)


def _order(before: str, after: str, target: str) -> Check:
    return Check(
        f"Did {before} come before {after} on {target}?",
        _check(
            'events = final_state["events"]',
            f"before, after = {[before, target]!r}, {[after, target]!r}",
            "return before in events and after in events"
            " and events.index(before) < events.index(after)",
        ),
    )


def _check(*lines: str) -> str:
    return "def check_func(final_state):\n" + "".join(f"    {line}\n" for line in lines)


def _pattern(template: str) -> str:
    pattern = re.escape(template)
    pattern = pattern.replace(re.escape("{name}"), r"(?P<name>[A-Z]\w+ [A-Z]\w+)")
    return pattern.replace(re.escape("{value}"), r"(?P<value>\w+)")
