"""The BFCL mini-suite: bundled files, what each category is about, training scripts kept apart."""

import json
import random
from pathlib import Path

from lopd_repro.benchmarks import bfcl_mini as mini

DATA = Path(__file__).parents[2] / "eval" / "bfcl" / "data" / "mini"


def read(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_the_bundled_files_are_what_the_generator_makes(tmp_path):
    mini.write_suite(tmp_path)
    made = sorted(p.relative_to(tmp_path) for p in tmp_path.rglob("*.json"))
    assert made == sorted(p.relative_to(DATA) for p in DATA.rglob("*.json"))
    for path in made:
        assert (tmp_path / path).read_bytes() == (DATA / path).read_bytes(), path


def test_every_category_has_its_tasks_and_no_text_twice():
    for category, tasks in mini.suite().items():
        assert len(tasks) == mini.TASKS_PER_CATEGORY
        assert len({task.texts for task in tasks}) == len(tasks), category


def test_a_missing_function_is_held_back_for_exactly_the_turn_that_needs_it():
    entries = read(DATA / "BFCL_v3_multi_turn_miss_func.json")
    answers = read(DATA / "possible_answer" / "BFCL_v3_multi_turn_miss_func.json")
    for entry, answer in zip(entries, answers, strict=True):
        (turn,) = entry["missed_function"]
        (function,) = entry["missed_function"][turn]
        turns = answer["ground_truth"]
        assert entry["question"][int(turn)] == []
        assert turns[int(turn) - 1] == []
        assert any(call.startswith(f"{function}(") for call in turns[int(turn)])
        assert not any(call.startswith(f"{function}(") for call in turns[0])


def test_a_missing_value_comes_a_turn_later():
    for task in mini.suite()["miss_param"]:
        asking, answering = task.turns[1], task.turns[2]
        missing = str(asking.values[asking.request.missing])
        assert asking.calls == () and answering.calls
        assert missing not in asking.text
        assert missing in answering.text


def test_long_context_lists_a_folder_before_the_second_request():
    for task in mini.suite()["long_context"]:
        assert [name for name, _ in task.turns[0].calls] == ["cd", "ls"]
        assert task.turns[1].request.backend != "GorillaFileSystem"


def test_scripts_keep_clear_of_the_suite():
    # Every text that a first draw makes is closed, so that the filter has something to do.
    drawn = mini.sample_task(random.Random("bfcl-scripts-0"), "base")
    first = next(mini.scripts(0, 1, mini.Noise(), set()))
    assert " / ".join(t["text"] for t in first["turns"]) == drawn.texts
    other = next(mini.scripts(0, 1, mini.Noise(), {drawn.texts}))
    assert " / ".join(t["text"] for t in other["turns"]) != drawn.texts


def test_scripts_without_noise_make_the_right_calls():
    for script in mini.scripts(1, 40, mini.Noise(), set()):
        for turn in script["turns"]:
            assert bool(turn["calls"]) == (turn["reply"] == mini.DONE)


def test_noise_makes_some_scripts_wrong_and_is_repeatable():
    noise = mini.Noise(value=0.2, omit=0.2, tool=0.2, rash=0.5)
    clean = list(mini.scripts(2, 200, mini.Noise(), set()))
    spoilt = list(mini.scripts(2, 200, noise, set()))
    assert spoilt == list(mini.scripts(2, 200, noise, set()))
    assert [s["category"] for s in clean] == [s["category"] for s in spoilt]
    rash = [
        bool(turn["calls"])
        for script in spoilt
        for turn in script["turns"]
        if turn["reply"] in (mini.ASK, mini.NO_TOOL)
    ]
    assert 0.3 < sum(rash) / len(rash) < 0.7


def test_calls_are_written_as_python():
    call = ("resolve_ticket", {"ticket_id": 61, "resolution": "Oslo"})
    assert mini.call_code(call) == "resolve_ticket(ticket_id=61, resolution='Oslo')"
