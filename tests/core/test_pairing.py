"""What a task is given by each pairing."""

from __future__ import annotations

import random

import pytest
from small_lopd import GROUPS, RETRIEVED, bank, experience

from lopd_repro.errors import UserError
from lopd_repro.experience.bank import Experience
from lopd_repro.experience.pairing import assign_experiences, overlap

BANK = {e.experience_id: e for e in bank()}


def assign(pairing: str, seed: int = 0, tasks: list[str] | None = None) -> dict[str, list[str]]:
    chosen = list(RETRIEVED) if tasks is None else tasks
    return assign_experiences(chosen, RETRIEVED, 2, pairing, GROUPS, BANK, seed)


def wide(n: int, depth: int, seed: int) -> tuple[dict[str, list[str]], dict[str, Experience]]:
    """n tasks in families of eight that retrieve other tasks of their family."""
    rng = random.Random(seed)
    entries = [experience(f"t{i}", "x") for i in range(n)]
    lists = {}
    for i in range(n):
        family = [e.experience_id for j, e in enumerate(entries) if j // 8 == i // 8 and j != i]
        lists[f"t{i}"] = rng.sample(family, depth)
    return lists, {e.experience_id: e for e in entries}


def test_retrieved_pairing_keeps_rank_and_length() -> None:
    assert assign("retrieved") == RETRIEVED
    top = assign_experiences(["t0"], RETRIEVED, 1, "retrieved", GROUPS, BANK, 0)
    assert top == {"t0": ["t1#1"]}


def test_shuffled_pairing_gives_every_task_the_list_of_another() -> None:
    seen = set()
    for seed in range(20):
        lists, entries = wide(40, 3, seed)
        given = assign_experiences(list(lists), lists, 2, "shuffled", {}, entries, seed)
        assert list(given) == list(lists)
        assert sorted(given.values()) == sorted(names[:2] for names in lists.values())
        for task, names in given.items():
            assert not set(names) & set(lists[task][:2])
            assert all(entries[name].task_id != task for name in names)
        assert overlap(given, lists, 2) == 0.0
        seen.add(str(sorted(given.items())))
    assert len(seen) == 20
    assert assign("shuffled", 3) == assign("shuffled", 3)
    with pytest.raises(UserError, match="at least two tasks"):
        assign("shuffled", tasks=["t0"])


def test_shuffling_never_hands_a_task_its_own_trajectory_back() -> None:
    # Each list holds trajectories of one other task, as retrieval without self retrieval gives.
    for seed in range(30):
        for task, names in assign("shuffled", seed).items():
            assert all(BANK[name].task_id != task for name in names)
    pair = {"t0": ["t1#1"], "t1": ["t0#1"]}
    with pytest.raises(UserError, match="pairing shuffled: every list left for t"):
        assign_experiences(["t0", "t1"], pair, 1, "shuffled", GROUPS, BANK, 0)


def test_lists_that_cannot_be_told_apart_are_shuffled_as_well_as_they_can() -> None:
    same = {f"t{i}": ["t0#1"] for i in range(1, 5)}
    given = assign_experiences(list(same), same, 1, "shuffled", GROUPS, BANK, 0)
    assert given == same and overlap(given, same, 1) == 1.0
    half = {"t1": ["t0#1"], "t2": ["t0#1"], "t3": ["t4#1"]}
    entries = {**BANK, "t4#1": experience("t4", "x")}
    for seed in range(5):
        given = assign_experiences(list(half), half, 1, "shuffled", GROUPS, entries, seed)
        # Three tasks, two lists alike: one of the two must keep what it has, the others need not.
        assert overlap(given, half, 1) == pytest.approx(1 / 3)


def test_unrelated_pairing_draws_from_other_groups() -> None:
    drawn = set()
    for seed in range(10):
        for task, names in assign("unrelated", seed).items():
            assert len(set(names)) == len(names) == len(RETRIEVED[task])
            assert all(GROUPS[BANK[name].task_id] != GROUPS[task] for name in names)
            drawn |= set(names)
    assert drawn == set(BANK)
    two = {"t0": ["t2#1", "t2#1", "t2#1"]}
    with pytest.raises(UserError, match="too few experiences outside the group of t0"):
        assign_experiences(["t0"], two, 3, "unrelated", GROUPS, BANK, 0)
    with pytest.raises(UserError, match="pairing: found 'random'"):
        assign("random")
