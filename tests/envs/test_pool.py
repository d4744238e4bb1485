from __future__ import annotations

import errno
import gc
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from worlds import FALSE, LOGGED, PLENTY, SHELF, TRUE, hostile, shelf

from lopd_repro.envs import (
    EnvPool,
    EpisodeSpec,
    Limits,
    StepResult,
    checklist_reward,
    worker,
)
from lopd_repro.errors import UserError

QUICK = Limits(
    reset_seconds=0.4, step_seconds=0.3, score_seconds=0.4, memory_mb=256, observation_chars=1000
)


@pytest.fixture(scope="module")
def pool() -> Iterator[EnvPool]:
    with EnvPool(1, QUICK) as pool:
        yield pool


def one(pool: EnvPool, tool: str, **arguments: object) -> StepResult:
    """The tool's result beside a neighbour that must not notice."""
    neighbour, victim = pool.reset([hostile(), hostile()])
    before = pool.step([(neighbour, ("fine", {}))])[0]
    result, after = pool.step([(victim, (tool, arguments)), (neighbour, ("fine", {"n": 2}))])
    assert (before.observation, after.observation) == ("1", "3")
    assert pool.score([neighbour])[0].status == "ok"
    pool.close([neighbour, victim])
    return result


@pytest.mark.parametrize("tool", ["loop", "swallow", "sleep"])
def test_a_hanging_tool_costs_its_episode(pool: EnvPool, tool: str) -> None:
    lost = pool.counters["timeout"]
    result = one(pool, tool)
    assert (result.kind, result.status) == ("failed", "timeout")
    assert result.detail == "no answer within 0.3 s"
    assert pool.counters["timeout"] == lost + 1


@pytest.mark.parametrize(
    ("tool", "detail"),
    [
        ("exit_now", "exited with code 0"),
        ("segfault", "killed by SIGSEGV"),
        ("abort", "killed by SIGABRT"),
        ("memory", "out of memory"),
        ("grow", "out of memory"),
        ("scribble", "it wrote something that is no answer"),
        ("hang_up", "exited with code"),
    ],
)
def test_a_tool_that_kills_its_worker_costs_its_episode(
    pool: EnvPool, tool: str, detail: str
) -> None:
    lost = pool.counters["crash"]
    result = one(pool, tool)
    assert (result.kind, result.status) == ("failed", "crash")
    assert detail in result.detail
    assert pool.counters["crash"] == lost + 1


@pytest.mark.parametrize(
    ("tool", "detail"),
    [("leave", "SystemExit: 3"), ("interrupt", "KeyboardInterrupt"), ("huge", "10000000")],
)
def test_a_tool_that_breaks_the_rules_costs_its_episode(
    pool: EnvPool, tool: str, detail: str
) -> None:
    result = one(pool, tool)
    assert (result.kind, result.status) == ("failed", "error")
    assert detail in result.detail


@pytest.mark.parametrize("tool", ["fork", "thread", "shell", "dial"])
def test_processes_threads_and_sockets_are_refused(pool: EnvPool, tool: str) -> None:
    started = pool.counters["restart"]
    result = one(pool, tool)
    assert result.kind == "raised"
    assert "PermissionError" in result.observation
    assert pool.counters["restart"] == started


def test_the_kernel_refuses_them_too() -> None:
    # Without the audit hook: what a worker locks by limits and namespace must hold alone.
    code = """
class Bare:
    def __init__(self, config): pass
    def fork(self):
        import _posixsubprocess, os
        try:
            pid = os.fork()
        except OSError as error:
            return type(error).__name__
        if pid == 0:
            os._exit(0)
        return "forked"
    def dial(self):
        import _socket
        try:
            _socket.socket().connect(("127.0.0.1", 9))
        except OSError as error:
            return error.errno
"""
    script = worker.SCRIPT.read_text()
    line = '    sys.addaudithook(Fence(config["scratch"], (requests, answers)))\n'
    assert line in script
    with tempfile.TemporaryDirectory() as folder:
        bare = Path(folder) / "bare.py"
        bare.write_text(script.replace(line, ""))
        with mock.patch.object(worker, "SCRIPT", bare), EnvPool(1, QUICK) as pool:
            isolation = pool.isolation
            (episode,) = pool.reset([EpisodeSpec("Bare", code, {})])
            forked, dialled = pool.step([(episode, ("fork", {})), (episode, ("dial", {}))])
    if os.geteuid() != 0 or isolation["user"] != "unchanged":
        assert forked.observation == "BlockingIOError"
    if isolation["network"] == "namespace":  # there, not even the loopback interface is up
        assert int(dialled.observation) == errno.ENETUNREACH


def test_prints_reach_nobody_and_are_kept_in_part(
    pool: EnvPool, capfd: pytest.CaptureFixture[str]
) -> None:
    result = one(pool, "shout")
    assert (result.kind, result.observation) == ("ok", "said")
    assert result.output == "x" * QUICK.output_chars
    assert capfd.readouterr() == ("", "")


def test_files_stay_in_a_scratch_folder(pool: EnvPool, tmp_path: Path) -> None:
    assert one(pool, "write_here").observation == "hello"
    for path in (tmp_path / "no", "/tmp/lopd-no", "../lopd-no"):
        result = one(pool, "write_there", path=str(path))
        assert "PermissionError" in result.observation
        assert not Path(path).exists()
    assert "File too large" in one(pool, "fill_disk").observation


def test_the_worker_sees_nothing_of_our_environment(
    pool: EnvPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "x")
    with EnvPool(1) as fresh:
        assert "SECRET" not in one(fresh, "environment").observation
        assert one(fresh, "arguments").observation == "['']"


def test_texts_are_always_encodable(pool: EnvPool) -> None:
    one(pool, "surrogate").observation.encode()


def test_deep_recursion_ends_somehow_and_only_there(pool: EnvPool) -> None:
    assert one(pool, "deep").status in ("crash", "timeout")


def test_a_failed_episode_stays_failed(pool: EnvPool) -> None:
    (episode,) = pool.reset([hostile(TRUE)])
    first, second = pool.step([(episode, ("leave", {})), (episode, ("fine", {}))])
    assert (first.kind, second.kind) == ("failed", "failed")
    assert pool.step([(episode, ("fine", {}))])[0].detail == first.detail
    (score,) = pool.score([episode])
    assert (score.reward, score.status) == (0.0, "error")
    assert pool.status(episode)[0] == "error"
    assert pool.states([episode]) == [None]
    pool.close([episode])


def test_checks_that_misbehave(pool: EnvPool) -> None:
    head = "def check_func(final_state):\n    "
    cases = {
        "raise ValueError('x')": (0.5, "ok"),
        "return 1": (0.5, "ok"),
        "import sys; sys.exit(0)": (0.0, "error"),
        "while True: pass": (0.0, "timeout"),
        "import os; os._exit(1)": (0.0, "crash"),
        "return [bytearray(1 << 34)]": (0.0, "crash"),
        "import os; os.fork()": (0.5, "ok"),
    }
    ids = pool.reset([shelf(head + body, TRUE) for body in cases])
    scores = pool.score(ids)
    assert [(score.reward, score.status) for score in scores] == list(cases.values())
    pool.close(ids)


def test_a_state_that_cannot_be_copied_is_an_error_at_the_score(pool: EnvPool) -> None:
    (episode,) = pool.reset([hostile(TRUE)])
    assert pool.step([(episode, ("keep_lock", {}))])[0].observation == "kept"
    (score,) = pool.score([episode])
    assert (score.reward, score.status) == (0.0, "error")
    assert "cannot pickle 'generator' object" in score.detail
    pool.close([episode])


def test_worlds_that_cannot_be_built(pool: EnvPool) -> None:
    codes = {
        "class Other: pass": "class 'World' is not in the environment's code",
        "class World(": "SyntaxError",
        "import nothing_like_this": "ModuleNotFoundError",
        "while True: pass": "no answer within 0.4 s",
        "class World:\n    def __init__(self, config): raise KeyError('k')": "KeyError: 'k'",
    }
    ids = pool.reset([EpisodeSpec("World", code, {}) for code in codes])
    for episode, detail in zip(ids, codes.values(), strict=True):
        assert detail in pool.status(episode)[1]
    # A constructor without a parameter is EnvScaler's second try, and attributes are set.
    plain = EpisodeSpec("World", "class World:\n    def who(self): return self.name", {"name": "w"})
    (episode,) = pool.reset([plain])
    assert pool.step([(episode, ("who", {}))])[0].observation == "w"
    pool.close([*ids, episode])


def test_tracebacks_show_the_dataset_only(pool: EnvPool) -> None:
    (episode,) = pool.reset([shelf()])
    (result,) = pool.step([(episode, ("remove", {"name": "ghost"}))])
    line = SHELF[: SHELF.index("del self.items")].count("\n") + 1
    assert result.observation == (
        "Traceback (most recent call last):\n"
        f'  File "<environment>", line {line}, in remove\n'
        "KeyError: 'ghost'\n"
    )
    pool.close([episode])


def test_episodes_share_no_class_and_addresses_do_not_show(pool: EnvPool) -> None:
    ids = pool.reset([shelf(), shelf()])
    results = pool.step([(i, ("sell", {"name": "x"})) for i in ids])
    assert [result.observation for result in results] == ["1", "1"]
    assert pool.step([(ids[0], ("handle", {}))])[0].observation == "<object object at 0x0>"
    pool.close(ids)


def play(n_workers: int, one_by_one: bool, order: int, seed: int = 0) -> list[object]:
    """Twelve episodes of random tools; what they saw, by the episode's own seed."""
    tools: list[tuple[str, dict[str, Any]]] = [
        ("draw", {}),
        ("token", {}),
        ("nothing", {}),
        ("tags", {}),
        ("draw", {}),
    ]
    with EnvPool(n_workers, seed=seed) as pool:
        specs = [shelf(PLENTY, seed=i) for i in range(12)][::order]
        ids = pool.reset(specs)
        seen: dict[int, list[object]] = {spec.seed: [] for spec in specs}
        if one_by_one:
            for spec, episode in zip(specs, ids, strict=True):
                for tool in tools:
                    seen[spec.seed] += pool.step([(episode, tool)])
        else:
            for spec, episode in zip(specs, ids, strict=True):
                seen[spec.seed] += pool.step([(episode, tool) for tool in tools])
        for spec, score, state in zip(specs, pool.score(ids), pool.states(ids), strict=True):
            seen[spec.seed] += [score, state]
    return [seen[i] for i in range(12)]


def test_results_do_not_depend_on_workers_batches_or_order() -> None:
    first = play(1, True, 1)
    assert play(3, False, 1) == first
    assert play(2, True, -1) == first
    assert play(1, True, 1, seed=1) != first
    assert first[0][0] != first[1][0]  # type: ignore[index]


def test_a_killed_worker_is_rebuilt_from_the_log_without_blame() -> None:
    with EnvPool(1, seed=3) as pool, EnvPool(1, seed=3) as control:
        results = []
        for each in (pool, control):
            ids = each.reset([shelf(PLENTY, seed=i) for i in range(4)])
            each.step([(i, ("draw", {})) for i in ids])
            each.step([(i, ("remove", {"name": "ghost"})) for i in ids[:2]])
            if each is pool:
                killed = each._lanes[0].worker
                assert killed is not None
                killed.process.kill()
                killed.process.wait()
            seen = each.step([(i, (t, {})) for i in ids for t in ("draw", "unknown", "token")])
            results.append((seen, each.states(ids), each.score(ids)))
        assert results[0] == results[1]
        assert pool.counters == {"restart": 1}


def test_a_breakdown_is_run_again_before_it_counts(tmp_path: Path) -> None:
    # Four neighbours together are over the memory limit, each alone is not: no one is blamed
    # for another's load as long as the rerun, in a fresh worker, succeeds.
    code = """
class Hungry:
    def __init__(self, config): self.kept = None
    def eat(self):
        self.kept = bytearray(90 << 20)
        return "ate"
"""
    with EnvPool(1, Limits(memory_mb=256)) as pool:
        ids = pool.reset([EpisodeSpec("Hungry", code, {}) for _ in range(3)])
        results = pool.step([(i, ("eat", {})) for i in ids])
        assert [result.observation for result in results] == ["ate"] * 3
        assert pool.counters["rerun"] >= 1
        assert pool.counters["crash"] == 0


def test_many_large_requests_do_not_block() -> None:
    # 40 x 100 kB each way is far over what two pipes hold.
    text = "z" * 100_000
    code = "class Echo:\n    def say(self, text): return text"
    with EnvPool(1) as pool:
        ids = pool.reset([EpisodeSpec("Echo", code, {}) for _ in range(40)])
        results = pool.step([(i, ("say", {"text": text})) for i in ids])
        assert all(result.observation == text for result in results)


def test_nothing_is_left_behind() -> None:
    before = set(Path(tempfile.gettempdir()).glob("lopd-env-*"))
    with EnvPool(2, QUICK) as pool:
        pool.reset([hostile()])
        pids = [lane.worker.process.pid for lane in pool._lanes if lane.worker]
        assert len(set(Path(tempfile.gettempdir()).glob("lopd-env-*")) - before) == 2
    assert set(Path(tempfile.gettempdir()).glob("lopd-env-*")) <= before
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    with pytest.raises(RuntimeError, match="shut down"):
        pool.reset([hostile()])
    forgotten = EnvPool(1, QUICK)
    last = forgotten._lanes[0].worker
    assert last is not None
    del forgotten
    gc.collect()
    assert last.process.poll() is not None


ORPHAN = """
from lopd_repro.envs import EnvPool, EpisodeSpec
code = "class W:\\n    def __init__(self, c): pass\\n    def loop(self):\\n        while 1: pass"
pool = EnvPool(1)
ids = pool.reset([EpisodeSpec("W", code, {})])
print(pool._lanes[0].worker.process.pid, flush=True)
pool.step([(ids[0], ("loop", {}))])
"""


@pytest.mark.skipif(sys.platform != "linux", reason="a parent's death is signalled on Linux only")
def test_workers_die_with_a_killed_parent(tmp_path: Path) -> None:
    command = [sys.executable, "-c", ORPHAN]
    scratch = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=scratch) as parent:
        assert parent.stdout is not None
        worker_pid = int(parent.stdout.readline())
        os.kill(worker_pid, 0)
        parent.kill()
    stat = Path(f"/proc/{worker_pid}/stat")
    deadline = time.monotonic() + 3
    while stat.exists() and stat.read_text().split()[2] != "Z":
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_bookkeeping(pool: EnvPool) -> None:
    alive = pool.live
    ids = pool.reset([shelf(PLENTY, LOGGED, FALSE)])
    assert pool.live == alive + 1
    pool.step([(ids[0], ("add", {"name": "bolt", "qty": 2}))])
    (score,) = pool.score(ids)
    assert (score.reward, score.checks) == (
        0.6667,  # two of three, to four digits
        ((True, True, None), (True, True, None), (True, False, None)),
    )
    assert json.loads(pool.states(ids)[0] or "") == {"items": {"bolt": 5}, "log": ["bolt"]}
    pool.close(ids)
    pool.close(ids)
    assert pool.live == alive
    with pytest.raises(KeyError, match="closed or was never begun"):
        pool.step([(ids[0], ("get", {"name": "bolt"}))])
    assert checklist_reward([]) is None
    with pytest.raises(UserError, match="n_workers: found 0"):
        EnvPool(0)


def test_steps_are_cheap() -> None:
    # The aim is 0.3 ms a step; ten times that leaves room for a busy machine.
    with EnvPool(1) as pool:
        ids = pool.reset([shelf(seed=i) for i in range(32)])
        start = time.perf_counter()
        for _ in range(10):
            pool.step([(i, ("add", {"name": "bolt", "qty": 1})) for i in ids])
        assert (time.perf_counter() - start) / 320 < 0.003
