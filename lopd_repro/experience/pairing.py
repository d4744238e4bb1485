"""Which experiences a task is given: what it retrieved, or what a control gives it instead."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from lopd_repro.errors import UserError
from lopd_repro.experience.bank import Experience

PAIRINGS = ("retrieved", "shuffled", "unrelated")

Lists = Mapping[str, Sequence[str]]


def assign_experiences(
    task_ids: Sequence[str],
    retrieved: Lists,
    n_retrieved: int,
    pairing: str,
    groups: Mapping[str, str],
    bank: Mapping[str, Experience],
    seed: int,
) -> dict[str, list[str]]:
    """Experience ids of each task, best first.

    pairing: `retrieved` keeps retrieval's answer. `shuffled` gives every task the list of another
    one, never one with a trajectory of the task itself, and as far as the lists allow none that
    shares an experience with its own. `unrelated` draws, as many as the task retrieved, from
    experiences whose task is of another group (domain).
    """
    if pairing not in PAIRINGS:
        raise UserError(f"pairing: found {pairing!r}, allowed: {', '.join(PAIRINGS)}")
    own = {task: list(retrieved[task][:n_retrieved]) for task in task_ids}
    if pairing == "retrieved":
        return own
    generator = torch.Generator().manual_seed(seed)
    if pairing == "shuffled":
        owners = {name: bank[name].task_id for names in own.values() for name in names}
        givers = _givers(own, owners, generator)
        return {task: own[givers[task]] for task in task_ids}
    assigned = {}
    for task in task_ids:
        others = [e.experience_id for e in bank.values() if groups[e.task_id] != groups[task]]
        if len(others) < len(own[task]):
            raise UserError(f"pairing unrelated: too few experiences outside the group of {task}")
        picks = torch.randperm(len(others), generator=generator)[: len(own[task])].tolist()
        assigned[task] = [others[i] for i in picks]
    return assigned


def overlap(assigned: Lists, retrieved: Lists, n_retrieved: int) -> float:
    """Share of the tasks that are given at least one of their own best `n_retrieved` hits."""
    shared = [
        not set(names).isdisjoint(retrieved[task][:n_retrieved]) for task, names in assigned.items()
    ]
    return sum(shared) / max(1, len(shared))


def _givers(
    own: Mapping[str, list[str]], owners: Mapping[str, str], generator: torch.Generator
) -> dict[str, str]:
    """Whose list each task gets: a random cyclic order, mended by swaps that lower the cost."""
    tasks = list(own)
    if len(tasks) < 2:
        raise UserError("pairing shuffled: it needs at least two tasks")
    order = [tasks[i] for i in torch.randperm(len(tasks), generator=generator).tolist()]
    givers = {task: order[(i + 1) % len(order)] for i, task in enumerate(order)}
    # One list with the task's own trajectory must weigh more than any number of shared ones.
    forbidden = 1 + sum(len(names) for names in own.values())

    def cost(task: str, giver: str) -> int:
        if giver == task:
            return forbidden
        solutions = sum(owners[name] == task for name in own[giver])
        return forbidden * solutions + len(set(own[giver]) & set(own[task]))

    improved = True
    while improved:
        improved = False
        for task in order:
            for other in order:
                if not cost(task, givers[task]):
                    break
                before = cost(task, givers[task]) + cost(other, givers[other])
                if cost(task, givers[other]) + cost(other, givers[task]) < before:
                    givers[task], givers[other] = givers[other], givers[task]
                    improved = True
    for task, giver in givers.items():
        if cost(task, giver) >= forbidden:
            raise UserError(
                f"pairing shuffled: every list left for {task} is its own or has its own trajectory"
            )
    return givers
