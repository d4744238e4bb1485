"""The core on the bundled tasks in real environment workers."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from small import GRPO, ScriptedEngine, backbone, codec, full_logits
from small_lopd import PROMPTS, make_composer

from lopd_repro.data.tiny import demonstration, lite_trace, tiny_task_set
from lopd_repro.envs import EnvPool, ToolEpisodes
from lopd_repro.experience.bank import build_bank, write_bank
from lopd_repro.experience.embed import make_embedder
from lopd_repro.experience.retrieval import RetrievalSettings, Retriever
from lopd_repro.files import write_json
from lopd_repro.lopd.method import LOPD
from lopd_repro.lopd.saved import save_composer
from lopd_repro.models.backbone import copy_model, freeze
from lopd_repro.rollout.engine import SamplingParams
from lopd_repro.rollout.episodes import EpisodeRequest, Trajectory, collect
from lopd_repro.rollout.heads import TextContext
from lopd_repro.rollout.hf_engine import HFEngine
from lopd_repro.rollout.tool_use import ToolPrompts, ToolUseDomain
from lopd_repro.training.method import Method, Resources
from lopd_repro.training.step import PhaseClock, Stepper, StepSettings

TASKS = tiny_task_set(seed=3, count=12)
NAMES = list(TASKS.tasks)
SAMPLING = SamplingParams(max_turn_tokens=60, max_tail_tokens=400)


@pytest.fixture(scope="module")
def domain() -> Iterator[ToolUseDomain]:
    with EnvPool(1) as pool:
        episodes = ToolEpisodes(pool, max_steps=8)
        yield ToolUseDomain(TASKS, episodes, ToolPrompts("{introduction}"))


def demonstrated(domain: ToolUseDomain) -> list[Trajectory]:
    """The demonstrator's texts, played as an engine's samples."""
    coder = codec()
    shown = [demonstration(task) for task in TASKS.tasks.values()]
    texts = [[t.text for t in episode.turns if t.role == "assistant"] for episode in shown]
    engine = ScriptedEngine(lambda i, n: ([*coder.encode(texts[i][n]), coder.eos_ids[0]], "eos"))
    requests = [EpisodeRequest(name, i, i, i) for i, name in enumerate(NAMES)]
    done = collect(engine, coder, domain, requests, SAMPLING)
    for one, episode in zip(done, shown, strict=True):
        # The observations in the tail are what the tools really answered.
        assert domain.trace(one.records) == lite_trace(episode.calls)
        tail = coder.tokenizer.decode(one.tail)
        assert all(turn.text in tail for turn in episode.turns if turn is not episode.turns[-1])
        sampled = [i for i, kept in zip(one.tail, one.supervised, strict=True) if kept]
        assert sampled.count(coder.eos_ids[0]) == len(one.records)
        assert sampled == [
            i for text in texts[one.group] for i in [*coder.encode(text), coder.eos_ids[0]]
        ]
    return done


def test_demonstrations_succeed_and_become_a_bank(domain: ToolUseDomain) -> None:
    done = demonstrated(domain)
    assert [t.reward for t in done] == [1.0] * 12 and {t.status for t in done} == {"ok"}
    entries = build_bank(done, domain, threshold=1.0, per_task=2)
    assert [e.task_id for e in entries] == NAMES and all(e.trace for e in entries)
    settings = RetrievalSettings(depth=3)
    hits = Retriever(entries, make_embedder("tfidf", backbone()), settings).search(
        [(name, TASKS.tasks[name].task) for name in NAMES]
    )
    owners = {e.experience_id: e.task_id for e in entries}
    assert all(len(h) == 3 for h in hits)
    assert all(
        owners[hit.experience_id] != n for n, h in zip(NAMES, hits, strict=True) for hit in h
    )


def test_a_budget_that_ends_mid_episode_scores_by_the_step_cap(domain: ToolUseDomain) -> None:
    coder = codec()
    first = demonstration(TASKS.tasks[NAMES[0]]).turns[0].text
    ids = [*coder.encode(first), coder.eos_ids[0]]
    engine = ScriptedEngine(lambda _, n: (ids, "eos"))
    tight = SamplingParams(max_turn_tokens=60, max_tail_tokens=len(ids) + 2)
    (done,) = collect(engine, coder, domain, [EpisodeRequest(NAMES[0], 0, 1, 1)], tight)
    assert (done.reward, done.status) == (0.0, "step_cap")
    assert done.tail == ids and domain.trace(done.records).startswith("1. ")
    assert domain._running == {}


def test_one_step_of_grpo_and_lopd_on_sampled_episodes(
    domain: ToolUseDomain, tmp_path: Path
) -> None:
    policy = backbone()
    entries = build_bank(demonstrated(domain), domain, 1.0, 1)
    write_bank(tmp_path / "bank.jsonl", entries)
    rng = random.Random(0)
    retrieved = {n: rng.sample([e.experience_id for e in entries], 2) for n in NAMES}
    write_json(tmp_path / "retrieved.json", {"train": retrieved, "groups": domain.groups()})
    save_composer(make_composer(freeze(copy_model(policy.model))), tmp_path / "c.safetensors")
    files = {
        "bank": str(tmp_path / "bank.jsonl"),
        "retrieved": str(tmp_path / "retrieved.json"),
        "composer": str(tmp_path / "c.safetensors"),
    }
    given = Resources(policy, codec(), domain, 1, "base", files, dict(PROMPTS))
    engine = HFEngine(policy.model, policy.eos_ids, given.codec.pad_id)
    requests = [EpisodeRequest(n, g, 2 * g + k, k) for g, n in enumerate(NAMES[:3]) for k in (0, 1)]
    sampling = SamplingParams(max_turn_tokens=8, max_tail_tokens=60)
    done = collect(engine, given.codec, domain, requests, sampling)
    for one in done:
        assert not math.isnan(one.reward) and 0 <= one.reward <= 1
        logits = full_logits(policy.model, [*one.head, *one.tail]).log_softmax(-1)
        own = [float(logits[len(one.head) + j - 1, t]) for j, t in enumerate(one.tail)]
        expected = [p if kept else 0.0 for p, kept in zip(own, one.supervised, strict=True)]
        torch.testing.assert_close(
            torch.tensor(one.raw_logp), torch.tensor(expected), atol=3e-5, rtol=0
        )
    methods: list[Method] = [GRPO({}, given), LOPD({"n_retrieved": 2}, given)]
    for method in methods:
        stepper = Stepper(policy.model, method, StepSettings(), PhaseClock())
        metrics = stepper.step(done)
        assert all(math.isfinite(value) for value in metrics.values())
        assert metrics["tokens"] == sum(t.n_sampled for t in done) > 0


def test_privileged_text_reaches_the_head_only(domain: ToolUseDomain) -> None:
    policy = backbone()
    engine = HFEngine(policy.model, policy.eos_ids, codec().pad_id)
    hint = TextContext("\n1. hint")
    requests = [EpisodeRequest(NAMES[0], 0, 5, 0), EpisodeRequest(NAMES[0], 0, 5, 0, hint)]
    plain, taught = collect(engine, codec(), domain, requests, SamplingParams(max_turn_tokens=4))
    text, other = (codec().tokenizer.decode(t.head) for t in (plain, taught))
    task = TASKS.tasks[NAMES[0]].task
    assert other == text.replace(task, task + "\n1. hint") and "hint" not in text


def test_records_hold_calls_written_beside_the_one_acted_on(domain: ToolUseDomain) -> None:
    def call(name: str) -> str:
        return f'<tool_call>{{"name": "{name}", "arguments": {{"n": 1}}}}</tool_call>'

    handles = domain.begin([(NAMES[0], 0)] * 3)
    turns = [
        call("no_tool"),
        call("no_tool") + call("other"),
        "<tool_call>{}</tool_call>" + call("x"),
    ]
    outcomes = domain.turn(list(zip(handles, turns, strict=True)))
    records = [outcome.record for outcome in outcomes]
    assert [r["kind"] for r in records] == ["call", "call", "error"]
    assert [r["n_calls"] for r in records] == [1, 2, 1]
    # Of a turn with one call that is acted on, name and arguments say it all.
    assert "calls" not in records[0] and records[0]["arguments"] == {"n": 1}
    assert records[1]["calls"] == [["no_tool", {"n": 1}], ["other", {"n": 1}]]
    assert records[2]["calls"] == [["x", {"n": 1}]]
    domain.cut(handles)
