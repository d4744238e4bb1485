"""The mini-suite: data files, the conversation's rules, demonstrations."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from lopd_repro.benchmarks.ace import GOLD, Noise, conversations, vocabulary
from lopd_repro.benchmarks.ace.dialogue import MALFORMED, RESULT, Dialogue, DialogueSettings
from lopd_repro.benchmarks.ace.scorer import score
from lopd_repro.benchmarks.ace.suite import TASKS_PER_CATEGORY, read_suite, suite_keys, suite_texts
from lopd_repro.benchmarks.ace.tasks import Task
from lopd_repro.benchmarks.ace.user import FINISH, ScriptedUser
from lopd_repro.errors import UserError

DATA = Path(__file__).resolve().parents[2] / "eval" / "acebench" / "data" / "mini"


def test_the_data_files_are_what_the_code_makes() -> None:
    texts = suite_texts()
    assert sorted(texts) == sorted(
        path.relative_to(DATA).as_posix() for path in DATA.rglob("*.json")
    )
    for name, text in texts.items():
        assert (DATA / name).read_text() == text, name


def test_the_official_form() -> None:
    tasks, answers, _ = read_suite(DATA)
    assert len(tasks) == 2 * TASKS_PER_CATEGORY == len(answers)
    row = json.loads((DATA / "data_agent_multi_turn.json").read_text().splitlines()[0])
    assert {"id", "question", "initial_config", "path", "involved_classes", "function"} < set(row)
    assert set(row["function"][0]["parameters"]) == {"type", "required", "properties"}
    for task in tasks:
        truth = answers[task.task_id]["ground_truth"]
        assert [list(part) for part in truth] == [[name] for name in task.classes]
        assert 2 <= len(answers[task.task_id]["mile_stone"]) <= 8


def play_texts(task: Task, texts: list[str]) -> Dialogue:
    user = ScriptedUser(task) if task.category == "multi_turn" else None
    dialogue = Dialogue(task, user, DialogueSettings())
    for text in texts:
        if not dialogue.done:
            dialogue.reply(text)
    return dialogue


def test_milestones_reach_the_ground_truth_and_less_does_not() -> None:
    tasks, answers, _ = read_suite(DATA)
    for task in tasks:
        answer = answers[task.task_id]
        stones = answer["mile_stone"]
        for texts, whole in ((stones, 1.0), (stones[:-1], 0.0)):
            dialogue = play_texts(task, [*texts, "Task Completed", "Task Completed"])
            verdict = score(dialogue.state(), dialogue.texts, answer)
            assert verdict.end_to_end == whole, task.task_id
            assert verdict.process == len(texts) / len(stones)
            assert dialogue.done == "finished"


def test_doing_nothing_scores_nothing() -> None:
    tasks, answers, _ = read_suite(DATA)
    for task in tasks:
        dialogue = play_texts(task, ["Task Completed"] * 2)
        verdict = score(dialogue.state(), dialogue.texts, answers[task.task_id])
        assert (verdict.end_to_end, verdict.process) == (0.0, 0.0)


def test_training_conversations_keep_clear_of_the_suite() -> None:
    tasks, _, _ = read_suite(DATA)
    closed = suite_keys()
    assert len(closed) > 60
    openings = {task.question for task in tasks if task.category == "multi_step"}
    seen = list(conversations(3, 600, Noise(0.2, 0.2, 0.2, 0.2, 0.2)))
    assert not openings & {conversation[1]["content"] for conversation in seen}
    # Multi-turn goals by what they ask for: whose note is deleted is told as an answer.
    told = {c[3]["content"] for c in conversations(4, 600) if c[1]["content"] == "Delete a note."}
    assert len(told) > 20
    assert not told & {key[1] for key in closed if key[0] == "forget"}


def test_conversations_are_repeatable_and_in_the_adapters_form() -> None:
    first = list(conversations(1, 20, GOLD))
    assert first == list(conversations(1, 20, GOLD)) != list(conversations(2, 20, GOLD))
    for conversation in first:
        assert [m["role"] for m in conversation[:2]] == ["system", "user"]
        for ours, other in pairwise(conversation[1:]):
            assert (ours["role"] == "user") == (other["role"] == "assistant")


def share_right(noise: Noise) -> float:
    """Share of the suite's multi-step and multi-turn tasks that a noisy agent solves."""
    from lopd_repro.benchmarks.ace.demonstrate import play
    from lopd_repro.benchmarks.ace.suite import SEED, TASKS_PER_CATEGORY, _drawn

    rng = random.Random(0)
    _, answers, _ = read_suite(DATA)
    verdicts = []
    for task, goals in _drawn(SEED, TASKS_PER_CATEGORY):
        dialogue = play(task, list(goals), rng, noise)
        verdicts.append(score(dialogue.state(), dialogue.texts, answers[task.task_id]).end_to_end)
    return sum(verdicts) / len(verdicts)


@pytest.mark.parametrize("mistake", ["order", "value", "omit", "no_ask", "give_up"])
def test_every_mistake_costs(mistake: str) -> None:
    share = share_right(replace(GOLD, **{mistake: 1.0}))
    # Half of the tasks withhold nothing; about half need no mending; a trip's two calls may come
    # in either order, and a blind guess can be right.
    limits = {"no_ask": 0.6, "give_up": 0.7, "order": 0.2}
    assert share <= limits.get(mistake, 0.0)


def test_no_noise_is_right() -> None:
    assert share_right(GOLD) == 1.0


def test_texts_are_short_in_the_tiny_vocabulary() -> None:
    from lopd_repro.data.tiny.vocabulary import segment, tiny_vocabulary

    words = vocabulary()
    assert len(words) == len(set(words)) < 250
    every = [*tiny_vocabulary(), *words]
    for conversation in conversations(5, 100):
        lengths = [len(segment(m["content"], every)) for m in conversation]
        assert all(
            n <= 10 for n, m in zip(lengths, conversation, strict=True) if m["role"] == "assistant"
        )
        assert sum(lengths) < 250
        # Everything is made of tokens of the list: no letter stands alone.
        for message in conversation:
            pieces = segment(message["content"], words)
            assert not [p for p in pieces if len(p) == 1 and p.isalpha() and p not in "aI"]


def move(**device: bool) -> Task:
    config: dict[str, Any] = {
        "Device": device,
        "Railway": {"seats": [{"seat_id": 70, "owner": "Ada Berg", "city": "Oslo", "price": 5}]},
    }
    return Task("agent_multi_step_0", "multi_step", "Move.", config, ["Device", "Railway"], [])


def told(dialogue: Dialogue) -> str:
    return str(dialogue.messages()[-1]["content"])


def test_a_multi_step_conversation() -> None:
    dialogue = Dialogue(move(online=False), None, DialogueSettings())
    assert dialogue.messages()[0]["content"].startswith("tools:\ngo_online\n")
    dialogue.reply("I will look.")
    assert told(dialogue) == RESULT + MALFORMED
    assert dialogue.state() == []
    dialogue.reply("[find_seat(owner='Ada Berg')]")
    assert told(dialogue) == f"{RESULT}[{{'status': False, 'message': 'offline'}}]"
    dialogue.reply("<think>[x()]</think>[go_online(), find_seat(owner='Ada Berg')]")
    assert told(dialogue) == f"{RESULT}[{{'status': True}}, {{'seat_id': 70, 'price': 5}}]"
    for text, answer in (
        ("[move_seat(seat_id='70', city='Lima')]", "['Error: wrong arguments']"),
        ("[move_seat(seat_id=True, city='Lima')]", "['Error: wrong arguments']"),
        ("[move_seat(city='Lima')]", "['Error: wrong arguments']"),
        ("[sing()]", "['Error: unknown function']"),
        ("[_device()]", "['Error: unknown function']"),
        ("[find_note(owner='Ada Berg')]", "['Error: unknown function']"),
        ("[move_seat(seat_id=70, city='Lima')]", "[{'status': True}]"),
    ):
        dialogue.reply(text)
        assert told(dialogue) == RESULT + answer
    dialogue.reply("Task Completed")
    assert dialogue.done == "finished"
    assert (dialogue.steps, dialogue.calls) == (11, 10)
    assert dialogue.state()[1]["Railway"]["seats"][0]["city"] == "Lima"


def test_limits_end_a_conversation() -> None:
    for settings, steps, reason in (
        (DialogueSettings(max_steps=3), 3, "step limit"),
        (DialogueSettings(max_dialog_turns=7), 4, "turn limit"),
    ):
        dialogue = Dialogue(move(), None, settings)
        while not dialogue.done:
            dialogue.reply("[go_online()]")
        assert (dialogue.steps, dialogue.done) == (steps, reason)


def test_the_transcript_layout_is_one_user_message() -> None:
    dialogue = Dialogue(move(), None, DialogueSettings(system="Use {names}.", layout="transcript"))
    dialogue.reply("[go_online()]")
    system, user = dialogue.messages()
    assert system["content"].startswith("Use go_online\n")
    assert user["content"].splitlines() == [
        "user:Move.",
        "agent:[go_online()]",
        "execution result:[{'status': True}]",
    ]


def test_the_scripted_user() -> None:
    goals = [
        {"opening": "Move the seat.", "answers": {"owner": "Ada Berg", "city": "Oslo"}},
        {"opening": "Delete a note.", "answers": {"owner": "Ben Cole"}},
    ]
    task = replace(move(), category="multi_turn", script=goals)
    user = ScriptedUser(task)
    assert user.first() == "Move the seat."
    assert user.respond("Which city?") == "Oslo"
    assert user.respond("For whom, and to which city?") == "Ada Berg Oslo"
    assert user.respond("Which meal?") == "I do not know."
    assert user.respond("I will do it.") == "Please go on."
    assert user.respond("Task Completed") == "Delete a note."
    assert user.respond("For whom?") == "Ben Cole"
    assert user.respond("Done.") == FINISH


def test_settings_out_of_range_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"dialogue\.layout: found 'free'"):
        DialogueSettings(layout="free")  # type: ignore[arg-type]
    with pytest.raises(UserError, match="max_steps"):
        DialogueSettings(max_steps=0)
    with pytest.raises(UserError, match="not a readable data file"):
        read_suite(tmp_path)
