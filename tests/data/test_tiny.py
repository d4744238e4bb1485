"""Tiny tasks: gold scores 1, every hidden step matters, the vocabulary is closed."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from lopd_repro.data.envscaler import load_task_set
from lopd_repro.data.schema import Environment, TaskSet, ToolTask
from lopd_repro.data.splits import normalise_text, state_digest
from lopd_repro.data.tiny import (
    DOMAINS,
    DONE,
    PROCEDURES,
    Demonstrator,
    Episode,
    Noise,
    Procedure,
    call_text,
    checks_in_process,
    demonstration,
    environment,
    lite_trace,
    make_tiny_tasks,
    random_procedure,
    read_instruction,
    reward_in_process,
    run_in_process,
    sample_task,
    segmenter,
    tiny_task_set,
    tiny_vocabulary,
)
from lopd_repro.errors import UserError
from lopd_repro.files import digest_text

SIZES = {"train": 480, "validation": 96, "test": 96}


class Script:
    """Writes the given texts one by one."""

    def __init__(self, *texts: str) -> None:
        self.texts = list(texts)

    def next_text(self, last_observation: str | None) -> str:
        return self.texts.pop(0)


@pytest.fixture(scope="module")
def tasks() -> TaskSet:
    return tiny_task_set(seed=0, count=sum(SIZES.values()))


@pytest.fixture(scope="module")
def one_each(tasks: TaskSet) -> list[ToolTask]:
    """One task of each procedure."""
    return list({(task.domain, task.family): task for task in tasks.tasks.values()}.values())


def target_of(task: ToolTask) -> str:
    """Id of the record the instruction is about, by its owner's name."""
    request = read_instruction(task)
    records = task.init_config[request.domain.collection]
    return next(i for i, r in records.items() if r[request.domain.owner] == request.name)


def scripted(task: ToolTask, target: str, steps: list[tuple[str, dict[str, Any]]]) -> Episode:
    key = DOMAINS[task.domain].id_name
    texts = [call_text(tool, {key: target, **more}) for tool, more in steps]
    return run_in_process(task, Script(*texts, DONE))


def main_step(task: ToolTask) -> tuple[str, dict[str, Any]]:
    """The right main call without its id."""
    request = read_instruction(task)
    family, domain = request.family, request.domain
    records = task.init_config[domain.collection]
    value = records[target_of(task)][domain.number] if request.value is None else request.value
    return family.main_tool, {family.argument: value}


def test_scale_and_spread(tasks: TaskSet) -> None:
    assert len(DOMAINS) >= 4 and len(PROCEDURES) >= 12
    spread = Counter((task.domain, task.family) for task in tasks.tasks.values())
    assert spread == dict.fromkeys(PROCEDURES, 672 // 12)
    for task in tasks.tasks.values():
        records = task.init_config[DOMAINS[task.domain].collection]
        owners = [record[DOMAINS[task.domain].owner] for record in records.values()]
        assert len(records) >= 4 and len(set(owners)) == len(owners)
        assert 3 <= len(task.checklist) <= 4


def test_texts_and_states_are_all_different(tasks: TaskSet) -> None:
    assert len({normalise_text(task.task) for task in tasks.tasks.values()}) == 672
    assert len({state_digest(task) for task in tasks.tasks.values()}) == 672


def test_gold_scores_one_on_every_task_in_two_to_five_calls(tasks: TaskSet) -> None:
    for task in tasks.tasks.values():
        episode = demonstration(task)
        assert reward_in_process(episode) == 1.0, task.task_id
        assert episode.turns[-1].text == DONE
        assert 2 <= len(episode.calls) <= 5
        assert episode.calls[0].tool == DOMAINS[task.domain].look_up
        # The look-up changes nothing, the later calls do.
        assert len(episode.final_state["events"]) == len(episode.calls) - 1


def test_doing_nothing_holds_one_check_of_four_without_pre_step_and_none_with_one(
    tasks: TaskSet,
) -> None:
    rewards = []
    for task in tasks.tasks.values():
        reward = reward_in_process(run_in_process(task, Script(DONE)))
        pre = PROCEDURES[task.domain, task.family].pre
        assert reward == (0.0 if pre else 0.25)
        rewards.append(reward)
    # 4 of the 12 procedures have no pre-step: 4/12 * 1/4.
    assert sum(rewards) / len(rewards) == pytest.approx(1 / 12)


def test_omitted_and_wrong_steps_lose_reward_by_hand(one_each: list[ToolTask]) -> None:
    # Checks: main, pre (or others untouched), post, nothing else changed. A missing or a wrong
    # pre-step fails checks 2 and 4; a missing or a wrong post-step fails checks 3 and 4. Without
    # a pre-step in the procedure, an added one fails check 4 alone.
    for task in one_each:
        has_pre = PROCEDURES[task.domain, task.family].pre is not None
        expected = {
            Noise(post_omit=1): 0.5,
            Noise(post_wrong=1): 0.5,
            Noise(pre_wrong=1): 0.5 if has_pre else 0.75,
            Noise(pre_omit=1): 0.5 if has_pre else 1.0,
            Noise(pre_omit=1, post_omit=1): 0.25 if has_pre else 0.5,
            Noise(value_wrong=1): 0.75,
        }
        for noise, reward in expected.items():
            episode = demonstration(task, rng=random.Random(3), noise=noise)
            assert reward_in_process(episode) == reward, (task.task_id, noise)


def test_no_procedure_but_the_own_one_scores_one(one_each: list[ToolTask]) -> None:
    for task in one_each:
        domain = DOMAINS[task.domain]
        for pre, post in itertools.product((None, *domain.pre_steps), (None, *domain.post_steps)):
            procedure = Procedure(pre, post)
            right = procedure == PROCEDURES[task.domain, task.family]
            assert (reward_in_process(demonstration(task, procedure=procedure)) == 1.0) is right


def test_order_of_steps_matters(one_each: list[ToolTask]) -> None:
    for task in one_each:
        procedure = PROCEDURES[task.domain, task.family]
        before = [(procedure.pre, {})] if procedure.pre else []
        assert procedure.post
        steps = [*before, main_step(task), (procedure.post, {})]
        assert reward_in_process(scripted(task, target_of(task), steps)) == 1.0
        backwards = reward_in_process(scripted(task, target_of(task), steps[::-1]))
        assert backwards == (0.25 if procedure.pre else 0.5)


def test_the_whole_procedure_on_another_record_earns_nothing(one_each: list[ToolTask]) -> None:
    for task in one_each:
        procedure = PROCEDURES[task.domain, task.family]
        target = target_of(task)
        records = task.init_config[DOMAINS[task.domain].collection]
        other = next(i for i in records if i != target)
        assert procedure.post
        steps = [(procedure.pre, {})] if procedure.pre else []
        steps += [main_step(task), (procedure.post, {})]
        assert reward_in_process(scripted(task, other, steps)) == 0.0


def test_a_stray_change_to_a_distractor_costs_a_check(one_each: list[ToolTask]) -> None:
    for task in one_each:
        domain = DOMAINS[task.domain]
        other = next(i for i in task.init_config[domain.collection] if i != target_of(task))
        gold = [turn.text for turn in demonstration(task).turns if turn.role == "assistant"]
        stray = call_text(domain.post_steps[0], {domain.id_name: other})
        episode = run_in_process(task, Script(*gold[:-1], stray, DONE))
        assert checks_in_process(episode) == (True, True, True, False)


def test_the_demonstrator_needs_the_look_up_and_gives_up_when_it_fails() -> None:
    task = sample_task(random.Random(1), "shop", "invoice")
    demonstrator = Demonstrator(task)
    assert "find_order" in demonstrator.next_text(None)
    told = demonstrator.next_text("{'success': True, 'order_id': 'P-99', 'total': 7}")
    assert told == call_text("invoice_order", {"order_id": "P-99", "amount": 7})
    lost = Demonstrator(task)
    lost.next_text(None)
    assert lost.next_text("{'success': False, 'error': 'not found'}") == DONE


def test_a_given_procedure_is_followed_and_noise_reports_what_was_done() -> None:
    rng = random.Random(0)
    task = sample_task(rng, "hotel", "settle")
    for _ in range(20):
        procedure = random_procedure("hotel", rng)
        tools = [call.tool for call in demonstration(task, procedure=procedure).calls]
        expected = ["find_booking", procedure.pre, "settle_booking", procedure.post]
        assert tools == [tool for tool in expected if tool]
    noisy = Demonstrator(task, random.Random(5), Noise(pre_wrong=1, post_omit=1))
    assert noisy.followed.post is None
    assert noisy.followed.pre in {"check_room", "clean_room"}


def test_steps_are_capped() -> None:
    task = sample_task(random.Random(1), "shop", "refund")
    look_up = call_text("find_order", {"customer": "Nobody Here"})
    episode = run_in_process(task, Script(*[look_up] * 7))
    assert len(episode.calls) == 7 and episode.turns[-1].role == "tool"


def test_families_are_readable_from_the_text_and_the_hidden_steps_are_not(tasks: TaskSet) -> None:
    for task in tasks.tasks.values():
        request = read_instruction(task)
        assert (request.domain.name, request.family.name) == (task.domain, task.family)
        for tool in request.domain.pre_steps + request.domain.post_steps:
            verb = tool.split("_")[0]
            assert verb not in task.task.lower().split()
            assert tool not in environment(task.domain).introduction


def test_equal_seeds_give_equal_bytes_and_other_seeds_do_not(tmp_path: Path) -> None:
    sizes = {"train": 12, "validation": 6, "test": 6}
    for name, seed in (("a", 3), ("b", 3), ("c", 4)):
        make_tiny_tasks(tmp_path / name, seed, sizes)
    read = {name: (tmp_path / name / "scenarios.jsonl").read_bytes() for name in ("a", "b", "c")}
    assert read["a"] == read["b"] != read["c"]
    environments = {(tmp_path / n / "environments.jsonl").read_bytes() for n in ("a", "b", "c")}
    assert len(environments) == 1


def test_written_tasks_read_back_the_same(tmp_path: Path) -> None:
    made = make_tiny_tasks(tmp_path, 0, {"train": 24, "validation": 12, "test": 12})
    loaded = load_task_set(tmp_path / "environments.jsonl", tmp_path / "scenarios.jsonl")
    assert loaded == made


def test_the_vocabulary_covers_every_episode_trace_and_introduction(tasks: TaskSet) -> None:
    vocabulary = tiny_vocabulary()
    assert len(vocabulary) == len(set(vocabulary)) <= 400
    known, match = set(vocabulary), segmenter(vocabulary)
    rng = random.Random(0)
    noise = Noise(0.2, 0.2, 0.2, 0.2, 0.2, 0.2)
    for task in tasks.tasks.values():
        own = environment(task.domain)
        episode = demonstration(
            task, rng=rng, noise=noise, procedure=random_procedure(task.domain, rng)
        )
        texts = [task.task, own.introduction, *own.rules, lite_trace(episode.calls)]
        turns = [turn.text for turn in episode.turns]
        for text in [*texts, *turns]:
            pieces = match.findall(text)
            assert "".join(pieces) == text
            assert set(pieces) <= known, (text, pieces)
        # Short enough to train on: instruction and turns without the chat template's own tokens.
        assert sum(len(match.findall(text)) for text in [task.task, *turns]) <= 60


def test_a_name_is_the_same_token_in_the_text_and_in_the_call() -> None:
    match = segmenter(tiny_vocabulary())
    task = sample_task(random.Random(2), "library", "renew")
    request = read_instruction(task)
    first, last = request.name.split()
    for text in (task.task, demonstration(task).turns[0].text):
        assert {first, f" {last}"} <= set(match.findall(text))


def test_extra_texts_join_the_vocabulary() -> None:
    text = "Reference past trajectory: none"
    assert set(segmenter(tiny_vocabulary([text])).findall(text)) <= set(tiny_vocabulary([text]))
    assert " trajectory" not in tiny_vocabulary()


def test_forbidden_texts_are_not_sampled() -> None:
    first = sample_task(random.Random(9), "shop", "ship")
    forbidden = {digest_text(normalise_text(first.task))}
    again = sample_task(random.Random(9), "shop", "ship", forbidden_texts=forbidden)
    assert again.task != first.task


def test_other_peoples_code_is_not_run_in_process(tasks: TaskSet) -> None:
    task = next(iter(tasks.tasks.values()))
    own = environment(task.domain)
    foreign = Environment(own.env_id, own.class_name, own.class_code + "\n", (), "", ())
    with pytest.raises(UserError, match="not bundled code"):
        run_in_process(task, Script(DONE), environment=foreign)
    with pytest.raises(UserError, match="not a bundled tiny task"):
        run_in_process(ToolTask("x", "e", "Do it.", {}, task.checklist), Script(DONE))


def test_more_tasks_than_a_family_offers_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="at least 1"):
        tiny_task_set(0, 0)
    monkeypatch.setattr("lopd_repro.data.tiny.tasks.FIRST_NAMES", ("Ada", "Ben", "Cleo", "Dora"))
    monkeypatch.setattr("lopd_repro.data.tiny.tasks.LAST_NAMES", ("Berg", "Cole", "Drake", "Frost"))
    # 16 names, 2 templates, no value in the text: 32 texts of the looked-up families at most.
    with pytest.raises(UserError, match="offers"):
        tiny_task_set(0, 33 * 12)
