"""Splits: sizes, disjointness three ways, planted near-duplicates, who may open what."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lopd_repro.data.envscaler import write_task_set
from lopd_repro.data.schema import Check, Environment, TaskSet, ToolTask
from lopd_repro.data.splits import (
    check_disjoint,
    jaccard,
    make_splits,
    normalise_text,
    open_split,
    split_ids,
    text_digests,
)
from lopd_repro.data.tiny import PROCEDURES, make_tiny_tasks, tiny_task_set
from lopd_repro.errors import UserError
from lopd_repro.files import digest_text, read_json, write_json

FILES = ("environments.jsonl", "scenarios.jsonl", "splits.json")


def make(folder: Path, **options: Any) -> dict[str, list[str]]:
    environments, scenarios, splits = (folder / name for name in FILES)
    return make_splits(environments, scenarios, splits, **options)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("tiny")
    make_tiny_tasks(out, seed=0)
    make(out, seed=1, validation=96, test=96)
    return out


def official(*tasks: ToolTask) -> TaskSet:
    lamp = Environment("lamp", "Lamp", "class Lamp: pass", ({"name": "on"},), "", ())
    hall = replace(lamp, env_id="hall")
    return TaskSet({"lamp": lamp, "hall": hall}, {task.task_id: task for task in tasks})


def lamp_task(task_id: str, text: str, state: dict[str, Any], env_id: str = "lamp") -> ToolTask:
    return ToolTask(task_id, env_id, text, state, (Check("on?", "def check_func(s): return True"),))


def pool(count: int) -> list[ToolTask]:
    """Official-form tasks that share nothing."""
    return [
        lamp_task(f"t{i:02d}", f"Switch lamp {i} on for {i + 7} minutes.", {"lamp": i})
        for i in range(count)
    ]


def write_pool(folder: Path, *tasks: ToolTask) -> None:
    write_task_set(official(*tasks), folder / FILES[0], folder / FILES[1])


def test_tiny_splits_have_their_sizes_in_every_procedure(folder: Path) -> None:
    for name, size, purpose in (
        ("train", 480, "training"),
        ("validation", 96, "selection"),
        ("test", 96, "evaluation"),
    ):
        tasks = open_split(folder / "splits.json", name, purpose)
        assert len(tasks.tasks) == size
        spread = Counter((task.domain, task.family) for task in tasks.tasks.values())
        assert spread == dict.fromkeys(PROCEDURES, size // 12)
        assert len(tasks.environments) == 4
    ids = split_ids(folder / "splits.json")
    assert len(set().union(*ids.values())) == 672


def test_splits_are_written_once_and_equal_seeds_agree(folder: Path) -> None:
    before = (folder / "splits.json").read_bytes()
    make(folder, seed=1, validation=96, test=96)
    assert (folder / "splits.json").read_bytes() == before
    with pytest.raises(UserError, match="written once"):
        make(folder, seed=2, validation=96, test=96)
    assert (folder / "splits.json").read_bytes() == before


@pytest.mark.parametrize(
    ("purpose", "allowed"),
    [
        ("training", {"train"}),
        ("experience", {"train"}),
        ("selection", {"train", "validation"}),
        ("evaluation", {"train", "validation", "test"}),
    ],
)
def test_only_evaluation_opens_test(folder: Path, purpose: str, allowed: set[str]) -> None:
    for name in ("train", "validation", "test"):
        if name in allowed:
            assert open_split(folder / "splits.json", name, purpose).tasks
        else:
            with pytest.raises(UserError, match=f"'{name}': not open to '{purpose}'"):
                open_split(folder / "splits.json", name, purpose)
    with pytest.raises(UserError, match="must be one of"):
        open_split(folder / "splits.json", "test", "curiosity")
    with pytest.raises(UserError, match="must be one of"):
        open_split(folder / "splits.json", "dev", "evaluation")


def test_edited_data_is_refused(tmp_path: Path) -> None:
    write_pool(tmp_path, *pool(6))
    make(tmp_path, seed=0, validation=2, test=2)
    edited = pool(6)
    edited[3] = replace(edited[3], checklist=(Check("on?", "def check_func(s): return False"),))
    write_pool(tmp_path, *edited)
    with pytest.raises(UserError, match="task 't03' is not as it was"):
        open_split(tmp_path / "splits.json", "train", "training")
    tasks = official(*pool(6))
    lamp = replace(tasks.environments["lamp"], class_code="class Lamp: on = True")
    environments = {**tasks.environments, "lamp": lamp}
    write_task_set(TaskSet(environments, tasks.tasks), tmp_path / FILES[0], tmp_path / FILES[1])
    with pytest.raises(UserError, match="environment 'lamp' is not as it was"):
        open_split(tmp_path / "splits.json", "train", "training")


def test_normalised_text_forgets_case_space_marks_and_number_formats() -> None:
    assert normalise_text("  Pay\t1,200.00 EUR, to  “Ann”!") == "pay 1200 eur to ann"
    assert normalise_text("pay 1200 eur to ANN") == "pay 1200 eur to ann"
    assert normalise_text("7.50 of 12.") == "7.5 of 12"
    # Different numbers and lists of numbers stay different.
    assert normalise_text("rooms 1,2") == "rooms 1 2"
    assert normalise_text("7.5") != normalise_text("75")
    assert normalise_text("order P-17") != normalise_text("order P-18")


def test_shingle_similarity_by_hand() -> None:
    # a b c d e has abc bcd cde; a b c d f has abc bcd cdf: 2 shared of 4.
    assert jaccard("a b c d e", "a b c d f") == 0.5
    assert jaccard("a b", "a c") == pytest.approx(1 / 3)
    assert jaccard("a b c", "a b c") == 1.0


LONG = "Switch the lamp in the long hall on and keep it on until the guests have left the house"
PLANTED = {
    "id text up to format": (
        lamp_task("a", "Pay 1,200 EUR to Ann.", {"x": 1}),
        lamp_task("b", "pay 1200.0 eur  to ann", {"x": 2}, "hall"),
        "the same text",
    ),
    "same state": (
        lamp_task("a", "Switch it on.", {"x": 1, "y": [1, 2]}),
        lamp_task("b", "Never mind the lamp.", {"y": [1, 2], "x": 1}),
        "the same environment and initial state",
    ),
    "like text, state up to format": (
        lamp_task("a", LONG + ".", {"Hall": ["Lamp A", 12]}),
        lamp_task("b", LONG + " today", {"hall": [12.0, "lamp a"]}),
        "like texts",
    ),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_near_duplicate_is_found_and_refused_with_both_ids(
    tmp_path: Path, name: str
) -> None:
    first, second, reason = PLANTED[name]
    tasks = official(*pool(8), first, second)
    ids = [task.task_id for task in pool(8)]
    with pytest.raises(UserError, match=rf"'a' \(train\) and 'b' \(test\) have {reason}"):
        check_disjoint({"train": [*ids, "a"], "test": ["b"]}, tasks)
    # Within one split they may stay, and the choice keeps them together.
    check_disjoint({"train": ids, "test": ["a", "b"]}, tasks)
    write_pool(tmp_path, *pool(8), first, second)
    splits = make(tmp_path, seed=0, validation=3, test=3)
    together = [name for name, members in splits.items() if {"a", "b"} & set(members)]
    assert len(together) == 1
    # Planted into the file of the splits by hand, it is refused when opened.
    document = read_json(tmp_path / "splits.json")
    (home,) = together
    away = next(name for name in ("train", "test") if name != home)
    (row,) = [row for row in document["splits"][home] if row["task_id"] == "b"]
    document["splits"][home].remove(row)
    document["splits"][away].append(row)
    write_json(tmp_path / "splits.json", document)
    with pytest.raises(UserError, match=rf"'[ab]' \(\w+\) and '[ab]' \(\w+\) have {reason}"):
        open_split(tmp_path / "splits.json", "train", "training")


def test_a_planted_tiny_near_duplicate_is_found_and_honest_ones_are_not() -> None:
    honest = tiny_task_set(seed=0, count=672)
    ids = list(honest.tasks)
    splits = {"train": ids[:480], "validation": ids[480:576], "test": ids[576:]}
    check_disjoint(splits, honest)
    # Honest tasks really share templates: some pairs across splits are alike in words.
    train = [honest.tasks[i] for i in ids[:480] if honest.tasks[i].family == "charge"]
    test = [honest.tasks[i] for i in ids[576:] if honest.tasks[i].family == "charge"]
    alike = max(
        jaccard(normalise_text(one.task), normalise_text(other.task))
        for one in train
        for other in test
    )
    assert alike >= 0.5
    victim = honest.tasks[ids[600]]
    planted = replace(
        victim,
        task_id="planted",
        task=victim.task.upper().replace(" ", "  ").rstrip("."),
    )
    tasks = TaskSet(honest.environments, {**honest.tasks, "planted": planted})
    message = rf"'planted' \(train\) and '{victim.task_id}'|'{victim.task_id}' \(test\) and 'pl"
    with pytest.raises(UserError, match=message):
        check_disjoint({**splits, "train": [*splits["train"], "planted"]}, tasks)


def test_like_texts_with_other_states_are_not_near_duplicates() -> None:
    one = lamp_task("a", LONG, {"lamp": 1})
    other = lamp_task("b", LONG + " today", {"lamp": 2})
    assert jaccard(normalise_text(one.task), normalise_text(other.task)) >= 0.8
    check_disjoint({"train": ["a"], "test": ["b"]}, official(one, other))


def test_an_id_in_two_splits_is_refused() -> None:
    with pytest.raises(UserError, match="'t01' is listed 2 times"):
        check_disjoint({"train": ["t00", "t01"], "test": ["t01"]}, official(*pool(2)))


def test_validation_comes_out_of_the_pool_when_the_test_ids_are_given(tmp_path: Path) -> None:
    write_pool(tmp_path, *pool(20))
    held_out = ["t03", "t11", "t12"]
    splits = make(tmp_path, seed=4, validation=5, test=held_out)
    assert splits["test"] == held_out
    assert len(splits["validation"]) == 5 and len(splits["train"]) == 12
    (tmp_path / "splits.json").unlink()
    other = make(tmp_path, seed=5, validation=5, test=held_out)
    assert other["test"] == held_out and other["validation"] != splits["validation"]


def test_a_pool_task_like_a_given_test_task_is_refused_or_dropped(tmp_path: Path) -> None:
    copy = replace(pool(20)[3], task_id="copy")
    write_pool(tmp_path, *pool(20), copy)
    with pytest.raises(UserError, match=r"'t03' \(test\) and 'copy' \(train\)"):
        make(tmp_path, seed=0, validation=5, test=["t03"])
    splits = make(tmp_path, seed=0, validation=5, test=["t03"], on_collision="drop")
    assert "copy" not in set().union(*splits.values())
    dropped = json.loads((tmp_path / "splits.json").read_text())["dropped"]
    assert [row["task_id"] for row in dropped] == ["copy"]


def test_impossible_requests_are_refused(tmp_path: Path) -> None:
    write_pool(tmp_path, *pool(6))
    with pytest.raises(UserError, match="'nope' is not in the scenario file"):
        make(tmp_path, seed=0, validation=2, test=["nope"])
    with pytest.raises(UserError, match="given twice"):
        make(tmp_path, seed=0, validation=2, test=["t01", "t01"])
    with pytest.raises(UserError, match="6 tasks for test, must be between 1 and 5"):
        make(tmp_path, seed=0, validation=2, test=6)
    with pytest.raises(UserError, match="4 tasks for validation"):
        make(tmp_path, seed=0, validation=4, test=2)
    with pytest.raises(UserError, match="must lie in the folder"):
        make_splits(
            tmp_path / FILES[0],
            tmp_path / FILES[1],
            tmp_path / "elsewhere" / "splits.json",
            seed=0,
            validation=1,
            test=1,
        )
    (tmp_path / "splits.json").write_text("[]")
    with pytest.raises(UserError, match="not a split file"):
        open_split(tmp_path / "splits.json", "train", "training")


def test_text_digests_stand_for_texts(folder: Path) -> None:
    test = open_split(folder / "splits.json", "test", "evaluation").tasks.values()
    digests = {digest_text(normalise_text(task.task)) for task in test}
    assert text_digests(folder / "splits.json", ["test"]) == digests
    assert len(text_digests(folder / "splits.json")) == 672
