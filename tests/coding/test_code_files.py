"""Task files in the form of DeepCoder's TACO subset, and splits of them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lopd_repro.data.coding import CodeCase, CodeTask, load_code_tasks, write_code_tasks
from lopd_repro.data.coding import tests_of as as_tests
from lopd_repro.data.coding.extract import RULES, extract
from lopd_repro.data.coding.splits import make_code_splits, open_code_split
from lopd_repro.data.splits import open_split, split_ids, text_digests
from lopd_repro.data.tiny import make_tiny_tasks
from lopd_repro.data.tiny_coding import FAMILIES, tiny_tasks
from lopd_repro.errors import UserError
from lopd_repro.files import read_json, write_json, write_jsonl

STDIN = {
    "problem": "Add two numbers.",
    "tests": json.dumps({"inputs": ["1 2\n", ["3", "4"]], "outputs": ["3\n", ["7", ""]]}),
    "solutions": ["print(sum(map(int, open(0).read().split())))"],
}
CALL = {
    "problem": "Write add(a, b).",
    "tests": json.dumps({"fn_name": "add", "inputs": [[1, 2], [3, 4]], "outputs": [[3], [7]]}),
    "starter_code": "def add(a, b):\n",
}


def record(**tests: Any) -> dict[str, Any]:
    return {"problem": "A problem.", "tests": json.dumps(tests)}


def write_lines(path: Path, *records: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(r) + "\n" for r in records))
    return path


def check_two(path: Path) -> None:
    first, second = load_code_tasks(path).tasks.values()
    # Lists of lines are joined.
    assert first.kind == "stdin" and first.entry_point == ""
    assert [(c.input, c.output) for c in first.cases] == [("1 2\n", "3\n"), ("3\n4", "7\n")]
    # Results in lists of one element are unwrapped.
    assert second.kind == "function" and second.entry_point == "add"
    assert [(c.args, c.expected) for c in second.cases] == [((1, 2), 3), ((3, 4), 7)]
    assert second.starter == "def add(a, b):\n"
    assert first.task_id.startswith("taco-") and first.task_id != second.task_id


def test_json_lines_with_and_without_footer_and_a_list(tmp_path: Path) -> None:
    check_two(write_lines(tmp_path / "a.jsonl", STDIN, CALL))
    write_jsonl(tmp_path / "b.jsonl", [STDIN, CALL])
    check_two(tmp_path / "b.jsonl")
    (tmp_path / "c.json").write_text(json.dumps([STDIN, CALL]))
    check_two(tmp_path / "c.json")


def test_parquet_files_as_released(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow.parquet import write_table

    rows = [{"starter_code": "", **STDIN}, {"solutions": [], **CALL}]
    write_table(pyarrow.Table.from_pylist(rows), tmp_path / "train-00000-of-00001.parquet")
    check_two(tmp_path / "train-00000-of-00001.parquet")
    (tmp_path / "not.parquet").write_text("no")
    with pytest.raises(UserError, match="no Parquet file"):
        load_code_tasks(tmp_path / "not.parquet")


def test_several_files_are_one_set(tmp_path: Path) -> None:
    paths = [write_lines(tmp_path / "a.jsonl", STDIN), write_lines(tmp_path / "b.jsonl", CALL)]
    assert [t.kind for t in load_code_tasks(paths).tasks.values()] == ["stdin", "function"]


def test_arguments_may_be_lines_of_json_and_results_unwrapped(tmp_path: Path) -> None:
    text = record(fn_name="f", inputs=["[1, 2]\n3", '[]\n"x"'], outputs=[[1, 2, 3], []])
    (task,) = load_code_tasks(write_lines(tmp_path / "a.jsonl", text)).tasks.values()
    # One result has three elements, so none is unwrapped.
    assert task.cases[0] == CodeCase(args=([1, 2], 3), expected=[1, 2, 3])
    assert task.cases[1] == CodeCase(args=([], "x"), expected=[])


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (record(inputs=["1"], outputs=["1", "2"]), "1 inputs and 2 outputs"),
        (record(inputs=[], outputs=[]), "at least one test"),
        (record(inputs=[3], outputs=["1"]), "neither a text nor a list of lines"),
        (record(fn_name="f", inputs=[3], outputs=[1]), "no list of arguments"),
        (record(fn_name="f", inputs=["[1"], outputs=[1]), "an argument is no JSON"),
        (record(fn_name="a b", inputs=[[1]], outputs=[[1]]), "allowed: a function's name"),
        ({"problem": "x", "tests": "{"}, "tests: is no JSON"),
        ({"problem": "x"}, "tests: is missing"),
        ({"problem": " ", "tests": STDIN["tests"]}, "problem: is missing or empty"),
        (STDIN, "is there twice"),
    ],
)
def test_a_record_that_cannot_be_scored_is_refused_or_dropped(
    tmp_path: Path, bad: dict[str, Any], reason: str
) -> None:
    path = write_lines(tmp_path / "a.jsonl", STDIN, bad)
    with pytest.raises(UserError, match=f"a.jsonl: record 1: .*{reason}"):
        load_code_tasks(path)
    found = load_code_tasks(path, "drop")
    assert len(found.tasks) == 1
    assert len(found.dropped) == 1 and reason in found.dropped[0]


def test_a_file_without_tasks_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no task that can be scored"):
        load_code_tasks(write_lines(tmp_path / "a.jsonl", record(inputs=[], outputs=[])), "drop")
    with pytest.raises(UserError, match="no such file"):
        load_code_tasks(tmp_path / "none.jsonl")


def test_written_tasks_come_back(tmp_path: Path) -> None:
    tasks = tiny_tasks(0, 24)
    write_code_tasks(tasks.values(), tmp_path / "tasks.jsonl")
    assert load_code_tasks(tmp_path / "tasks.jsonl").tasks == tasks


def test_tests_as_the_executor_reads_them(tmp_path: Path) -> None:
    call = load_code_tasks(write_lines(tmp_path / "a.jsonl", CALL)).tasks.values()
    assert as_tests(next(iter(call))) == {
        "type": "function",
        "entry_point": "add",
        "cases": [{"args": [1, 2], "expected": 3}, {"args": [3, 4], "expected": 7}],
    }


# --- splits


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("coding")
    write_code_tasks(tiny_tasks(0, 144).values(), out / "tasks.jsonl")
    make_code_splits(out / "tasks.jsonl", out / "splits.json", seed=1, validation=24, test=24)
    return out


def test_splits_have_their_sizes_in_every_family(folder: Path) -> None:
    for name, size, purpose in (
        ("train", 96, "training"),
        ("validation", 24, "selection"),
        ("test", 24, "evaluation"),
    ):
        tasks = open_code_split(folder / "splits.json", name, purpose).tasks
        assert len(tasks) == size
        families = [task.family for task in tasks.values()]
        assert {families.count(f) for f in FAMILIES} == {size // 12}
    assert len(set().union(*split_ids(folder / "splits.json").values())) == 144
    assert len(text_digests(folder / "splits.json", ("test",))) == 24


def test_only_evaluation_opens_test(folder: Path) -> None:
    for purpose in ("training", "experience", "selection"):
        with pytest.raises(UserError, match="not open to"):
            open_code_split(folder / "splits.json", "test", purpose)
    with pytest.raises(UserError, match="not open to"):
        open_code_split(folder / "splits.json", "validation", "training")


def test_an_edited_task_is_refused(folder: Path, tmp_path: Path) -> None:
    tasks = load_code_tasks(folder / "tasks.jsonl").tasks
    first = next(iter(tasks))
    case = replace(tasks[first].cases[0], output="other\n")
    tasks[first] = replace(tasks[first], cases=(case, *tasks[first].cases[1:]))
    write_code_tasks(tasks.values(), tmp_path / "tasks.jsonl")
    write_json(tmp_path / "splits.json", read_json(folder / "splits.json"))
    with pytest.raises(UserError, match=f"task '{first}' is not as it was"):
        open_code_split(tmp_path / "splits.json", "train", "training")


def test_splits_are_written_once(folder: Path) -> None:
    with pytest.raises(UserError, match="written once"):
        make_code_splits(
            folder / "tasks.jsonl", folder / "splits.json", seed=2, validation=24, test=24
        )


def plain(task_id: str, statement: str, output: str) -> CodeTask:
    return CodeTask(task_id, statement, "stdin", (CodeCase(input="1\n", output=output),))


def test_tasks_with_the_same_tests_or_text_stay_together(tmp_path: Path) -> None:
    # a and b have the same tests, c and d the same text up to case and marks.
    tasks = [
        plain("a", "Print the double.", "2"),
        plain("b", "Something else entirely.", "2"),
        plain("c", "Say one", "4"),
        plain("d", "say: ONE!", "5"),
        *(plain(f"e{i}", f"Print case {i}", f"other {i}") for i in range(8)),
    ]
    write_code_tasks(tasks, tmp_path / "tasks.jsonl")
    for seed in range(6):
        (tmp_path / "splits.json").unlink(missing_ok=True)
        splits = make_code_splits(
            tmp_path / "tasks.jsonl", tmp_path / "splits.json", seed=seed, validation=3, test=3
        )
        of = {task_id: name for name, ids in splits.items() for task_id in ids}
        assert of["a"] == of["b"] and of["c"] == of["d"]


def test_given_test_ids_that_collide_are_refused_or_dropped(tmp_path: Path) -> None:
    tasks = [plain("a", "One", "2"), plain("b", "Two", "2"), plain("c", "Three", "3"),
             plain("d", "Four", "4")]  # fmt: skip
    write_code_tasks(tasks, tmp_path / "tasks.jsonl")
    common: dict[str, Any] = {"seed": 0, "validation": 1, "test": ["a"]}
    with pytest.raises(UserError, match=r"'a' .test. and 'b' .train. have the same tests"):
        make_code_splits(tmp_path / "tasks.jsonl", tmp_path / "splits.json", **common)
    splits = make_code_splits(
        tmp_path / "tasks.jsonl", tmp_path / "splits.json", **common, on_collision="drop"
    )
    assert splits["test"] == ["a"] and "b" not in splits["train"] + splits["validation"]
    with pytest.raises(UserError, match="'z' is not in the task file"):
        make_code_splits(
            tmp_path / "tasks.jsonl", tmp_path / "x.json", seed=0, validation=1, test=["z"]
        )


def test_split_files_of_the_other_domain_are_told_apart(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="not a split file of tool-use scenarios"):
        open_split(folder / "splits.json", "train", "training")
    make_tiny_tasks(tmp_path, 0, {"train": 12, "validation": 12, "test": 12})
    from lopd_repro.data.splits import make_splits

    make_splits(
        tmp_path / "environments.jsonl", tmp_path / "scenarios.jsonl", tmp_path / "splits.json",
        seed=0, validation=12, test=12,
    )  # fmt: skip
    with pytest.raises(UserError, match="not a split file of programming tasks"):
        open_code_split(tmp_path / "splits.json", "train", "training")


# --- extraction

REPLY = "First:\n```python\na = 1\n```\nor better\n```\nb = 2\n\nc = 3\n```\nDone."


def test_rules_of_extraction() -> None:
    assert extract(REPLY, "first_fence") == "a = 1"
    assert extract(REPLY, "last_fence") == "b = 2\n\nc = 3"
    assert extract(REPLY, "last_fence_lines") == "b = 2\n\nc = 3"
    assert extract(REPLY, "whole_reply") == REPLY


def test_a_reply_without_a_closed_fence_has_no_program() -> None:
    for rule in ("first_fence", "last_fence", "last_fence_lines"):
        assert extract("```python\nprint(1)", rule) is None
        assert extract("print(1)", rule) is None
    assert extract(" \n", "whole_reply") is None


def test_where_the_two_last_rules_differ() -> None:
    # Three marks: the last closed fence is the first one, the last two marked lines are not it.
    reply = "```python\na\n```\ntalk\n```python\nb"
    assert extract(reply, "last_fence") == "a"
    assert extract(reply, "last_fence_lines") == "talk"


def test_an_unknown_rule_is_refused() -> None:
    with pytest.raises(UserError, match=f"allowed: {', '.join(RULES)}"):
        extract("x", "guess")
