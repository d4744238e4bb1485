"""The official suite: finding the repository, the relay, and a replay where it is present.

The replay needs LOPD_ACEBENCH_REPO (the repository at the pinned commit) and
LOPD_ACEBENCH_PYTHON (an interpreter with eval/acebench/requirements.txt).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from stub_server import Asked, Fail, Overflow, Say, stub

from lopd_repro.benchmarks import load_benchmark
from lopd_repro.benchmarks.ace import repository
from lopd_repro.benchmarks.ace.relay import Agent, relay
from lopd_repro.benchmarks.client import Client, Sampling
from lopd_repro.errors import UserError
from lopd_repro.experience.endpoint import ChatEndpoint, EndpointSettings

ROOT = Path(__file__).resolve().parents[2]
ADAPTER = ROOT / "eval" / "acebench" / "adapter.py"
REPOSITORY = os.environ.get(repository.REPOSITORY.variable, "")
PYTHON = os.environ.get("LOPD_ACEBENCH_PYTHON", "")
needs_official = pytest.mark.skipif(
    not (REPOSITORY and PYTHON),
    reason=f"{repository.REPOSITORY.variable} and LOPD_ACEBENCH_PYTHON name no official repository",
)
REPO = repository.REPOSITORY
SERVED = {"user": "served", "python": sys.executable}


def post(url: str, body: dict[str, Any]) -> str:
    request = urllib.request.Request(url, json.dumps(body).encode(), method="POST")
    with urllib.request.urlopen(request, timeout=10) as response:
        return str(json.load(response)["choices"][0]["message"]["content"])


def agent(url: str, **changes: Any) -> Agent:
    values: dict[str, Any] = {
        "client": Client(url, "real", Sampling(tries=1, pause_seconds=0.0)),
        "model": "real",
        "temperature": None,
        "max_tokens": None,
        "top_p": None,
        "top_k": None,
        "seed": "0/0",
        "strip_think": False,
        "overflow": "end",
    }
    return Agent(**{**values, **changes})


def person(url: str) -> ChatEndpoint:
    return ChatEndpoint(EndpointSettings(url, "person", temperature=0.5, tries=1))


ASKED = {
    "model": "gpt-served",
    "messages": [{"role": "user", "content": "hello"}],
    "temperature": 0.001,
    "max_tokens": 1000,
}


def test_the_relay_puts_in_names_sampling_and_seed() -> None:
    with stub(lambda _: Say("<think>x</think>[f()]")) as server:
        with relay(agent(server.url), person(server.url)) as (url, log):
            assert post(f"{url}/agent/v1/chat/completions", ASKED) == "<think>x</think>[f()]"
            post(f"{url}/user/v1/chat/completions", ASKED)
            assert (log.agent_requests, log.user_requests, log.failures) == (1, 1, [])
        changes = {"temperature": 0.7, "max_tokens": 40960, "top_k": 20, "strip_think": True}
        for seed in ("0/0", "0/0", "0/1"):
            with relay(agent(server.url, seed=seed, **changes), person(server.url)) as (url, _):
                assert post(f"{url}/agent/v1/chat/completions", ASKED) == "[f()]"
        official, user, first, same, repeat = (request.body for request in server.asked)
    assert official["model"] == "real"
    assert (official["temperature"], official["max_tokens"]) == (0.001, 1000)
    assert "top_p" not in official
    assert (user["model"], user["temperature"]) == ("person", 0.5)
    assert (first["temperature"], first["max_tokens"], first["top_k"]) == (0.7, 40960, 20)
    assert first == same != repeat
    assert first["seed"] != repeat["seed"]


def test_the_relay_remembers_failures() -> None:
    def failing(request: Asked) -> Fail | Overflow:
        return Overflow() if request.body["max_tokens"] == 7 else Fail(500)

    with stub(failing) as server, relay(agent(server.url), person(server.url)) as (url, log):
        for way in ("agent", "user", "other"):
            with pytest.raises(urllib.error.HTTPError, match="400"):
                post(f"{url}/{way}/v1/chat/completions", ASKED)
        assert [failure.split(":")[0] for failure in log.failures] == ["agent", "user", "other"]
        # A prompt that is too long ends the conversation and is counted.
        text = post(f"{url}/agent/v1/chat/completions", {**ASKED, "max_tokens": 7})
        assert (text, log.too_long, len(log.failures)) == ("finish conversation", 1, 3)
    with stub(failing) as server:
        refusing = agent(server.url, overflow="refuse")
        with relay(refusing, person(server.url)) as (url, log):
            with pytest.raises(urllib.error.HTTPError, match="400"):
                post(f"{url}/agent/v1/chat/completions", {**ASKED, "max_tokens": 7})
            assert "maximum context length" in log.failures[0]


@pytest.mark.parametrize(
    ("official", "message"),
    [
        ({}, "acebench.user: the official multi-turn tasks need a user simulator"),
        ({"user": "somebody"}, "acebench.official.user: found 'somebody'"),
        ({"user": "served", "python": "/none"}, "pip install -r"),
        ({**SERVED, "multi_step_language": "de"}, "allowed: 'zh', 'en'"),
        ({**SERVED, "threads": 0}, "acebench.official.threads"),
        (
            {**SERVED, "repository": "/none"},
            "no official repository at /none; get it with: git clone https",
        ),
        ({**SERVED, "colour": 1}, "acebench.official.colour: unknown key"),
    ],
)
def test_what_the_official_suite_lacks_is_said(official: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message) as refused:
        load_benchmark(ADAPTER, {"suite": "official", "official": official})
    assert "\n" not in str(refused.value)


def git(folder: Path, *arguments: str) -> None:
    identity = ("-c", "user.name=a", "-c", "user.email=a@b")
    subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True)


def test_a_source_without_the_commit_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.mkdir()
    git(source, "init", "-q")
    (source / "file").write_text("x")
    git(source, "add", "file")
    git(source, "commit", "-qm", "x")
    with pytest.raises(UserError, match="could not be fetched from") as refused:
        REPO.fetch(target, str(source))
    assert "\n" not in str(refused.value)
    assert REPO.commit in str(refused.value)
    assert not target.exists()
    monkeypatch.delenv(REPO.variable, raising=False)
    with pytest.raises(UserError, match="get it with: git clone"):
        REPO.locate("", target)


def test_changed_or_incomplete_folders_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"has no eval_main\.py"):
        REPO.check(tmp_path)
    for name in ("model_eval", "model_inference"):
        (tmp_path / name).mkdir()
    for name in ("eval_main.py", "generate.py", "category.py", *repository.data_files()):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
    with pytest.raises(UserError, match="differs from commit 56dd66c"):
        REPO.check(tmp_path)
    before = REPO.tree_digest(tmp_path)
    (tmp_path / "README.md").write_text("not used")
    assert REPO.tree_digest(tmp_path) == before
    (tmp_path / "model_eval" / "new.py").write_text("used")
    assert REPO.tree_digest(tmp_path) != before


@needs_official
def test_the_official_code_scores_a_replay_alike_with_and_without_us(tmp_path: Path) -> None:
    sys.path.append(str(ROOT / "benchmarks"))
    import ace_replay  # type: ignore[import-not-found]

    folder = REPO.locate(REPOSITORY, tmp_path / "none")
    part = ace_replay.parts(ace_replay.read(folder))[2]
    assert len(part.tasks) >= 8
    scores = []
    for drop_last in (False, True):
        mine, plain = tmp_path / f"wrapped{drop_last}", tmp_path / f"bare{drop_last}"
        with ace_replay.serving(ace_replay.Script(part, drop_last)) as url:
            mine.mkdir()
            plain.mkdir()
            ours = ace_replay.wrapped(url, part, folder, PYTHON, mine)
            theirs = ace_replay.bare(url, part, folder, PYTHON, plain)
        assert ace_replay.compare(part, ours, theirs) == []
        scores.append(sum(row["process"] for row in ours[1].values()))
    assert 0 < scores[1] < scores[0]


@needs_official
def test_an_official_run_goes_on_after_a_failing_endpoint(tmp_path: Path) -> None:
    finish = Say("finish conversation")

    def failing(request: Asked) -> Say | Fail:
        return finish if request.index < 3 else Fail(400)

    with stub(lambda _: finish) as user:
        benchmark = load_benchmark(
            ADAPTER,
            {
                "suite": "official",
                "limit": 2,
                "user": {"url": user.url, "model": "person", "tries": 1},
                "official": {
                    "repository": REPOSITORY,
                    "python": PYTHON,
                    "threads": 1,
                    "max_tokens": 40,
                    "max_dialog_turns": 40,
                },
            },
        )
        assert len(benchmark.expected()) == 4
        assert benchmark.partial and benchmark.data.startswith("partial: 4 tasks of ACEBench")
        # Of the first two of each category both multi-step ones name a class wrongly.
        assert benchmark.scorer == (
            "ACEBench agent_eval 56dd66c, max_tokens 40; 2 ground truths that name a class wrongly "
            "are in part unchecked"
        )
        assert "prompt in zh, user: person at temperature 0.7" in benchmark.data
        with stub(failing) as server, pytest.raises(UserError, match="tasks are unfinished"):
            benchmark.run(server.endpoint, tmp_path, tmp_path)
        done = [
            json.loads(line)["id"]
            for file in tmp_path.glob("*/repeat0/result_all/result_en/*/*.json")
            for line in file.read_text().splitlines()
        ]
        assert 0 < len(done) < 4
        with stub(lambda _: finish) as server:
            rows = benchmark.run(server.endpoint, tmp_path, tmp_path)
            asked = len(server.asked)
        steps = {row["task_id"]: row["steps"] for row in rows}
        assert [(row["task_id"], row["repeat"]) for row in rows] == benchmark.expected()
        assert {(row["score"], row["status"]) for row in rows} == {(0.0, "ok")}
        assert asked == sum(n for name, n in steps.items() if name not in done)
        (isolation,) = tmp_path.glob("*/repeat0/generate.sandbox.json")
        assert json.loads(isolation.read_text())["isolation"]["network"] in ("namespace", "seccomp")
        # What is complete is not asked at all.
        with stub(lambda _: finish) as server:
            assert benchmark.run(server.endpoint, tmp_path, tmp_path) == rows
            assert server.asked == []
