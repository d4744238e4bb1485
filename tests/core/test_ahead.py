"""What runs ahead of a step: it changes nothing, unless it is asked to be one step off-policy."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from small import GRPO, ScriptDomain, backbone, codec
from small_lopd import TRAIN, resources
from test_loop import ENDS, SAMPLING, FaultyEngine, Interrupted, build, outcome, same

from lopd_repro.errors import UserError
from lopd_repro.models.backbone import copy_model
from lopd_repro.rollout.divided import CopyEngine
from lopd_repro.rollout.engine import Turn
from lopd_repro.rollout.episodes import Started
from lopd_repro.rollout.turn_worker import TurnWorker
from lopd_repro.training.ahead import Ahead
from lopd_repro.training.evaluate import EvaluationPlan
from lopd_repro.training.loop import LoopSettings, RunSeeds, TrainingRun
from lopd_repro.training.step import StepSettings
from lopd_repro.workflow.notice import notice
from lopd_repro.workflow.slices import domains


def test_work_ahead_is_taken_once_and_its_error_is_told() -> None:
    ahead: Ahead[int] = Ahead(lambda step: 6 // step)
    with ahead.meanwhile(3):
        pass
    assert ahead.made == (3, 2) and ahead.take(3) == 2 and ahead.take(3) is None
    with ahead.meanwhile(2):
        pass
    assert ahead.take(1) is None and ahead.made is None
    with pytest.raises(ZeroDivisionError), ahead.meanwhile(0):
        pass


def test_turns_are_answered_in_order_while_others_are_given() -> None:
    may_go = threading.Event()

    def on_turns(turns: list[tuple[int, Turn]]) -> list[list[int] | None]:
        may_go.wait(10)
        return [[index] for index, _ in turns]

    turn = Turn([1], [0.0], [0.0], "eos")
    with TurnWorker[str](on_turns) as worker:
        worker.give("first", [(1, turn)])
        worker.give("second", [(2, turn), (3, turn)])
        assert worker.take(wait=False) == [] and worker.busy
        may_go.set()
        found = worker.take(wait=True)
        while worker.busy:
            found += worker.take(wait=True)
        assert found == [("first", [[1]]), ("second", [[2], [3]])]
        assert worker.take(wait=True) == []


def test_an_environments_error_ends_the_engines_run() -> None:
    def on_turns(turns: list[tuple[int, Turn]]) -> list[list[int] | None]:
        raise OSError("gone")

    with pytest.raises(OSError, match="gone"), TurnWorker[int](on_turns) as worker:
        worker.give(0, [])
        worker.take(wait=True)


@pytest.mark.parametrize("name", ["grpo", "lopd"])
def test_episodes_begun_ahead_change_nothing(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ahead = build(name, tmp_path / "ahead")
    begun: list[int] = []
    begin = ahead._begin

    def seen(step: int) -> Started:
        begun.append(step)
        return begin(step)

    monkeypatch.setattr(ahead._started, "_work", seen)
    ahead.run()
    # Four steps, validated after 2 and 4: only steps 1 and 3 may begin before their turn.
    assert begun == [1, 3]
    plain = build(name, tmp_path / "plain")
    monkeypatch.setattr(plain, "_begun_by", lambda step: None)
    plain.run()
    assert same(outcome(ahead), outcome(plain))


def off_policy(folder: Path, stop_at: int = -1, cap: float = 2.0, copied: bool = True) -> Any:
    """A run whose engine samples from a copy, as `lopd-repro train` builds one."""
    policy = backbone(extra_ends=ENDS)
    given = resources(policy)
    given.codec = codec(ENDS)
    given.domain = ScriptDomain()
    sampled = copy_model(policy.model) if copied else policy.model
    engine: Any = FaultyEngine(sampled, policy.eos_ids, given.codec.pad_id, 64, stop_at=stop_at)
    return TrainingRun(
        policy.model,
        GRPO({}, given),
        CopyEngine(engine, sampled) if copied else engine,
        TRAIN[:5],
        EvaluationPlan(("t0", "t5"), 2, 9, SAMPLING),
        LoopSettings(4, 8, 4, validate_every=2, checkpoint_every=2, one_step_off=True),
        StepSettings(lr=1e-2, warmup_steps=3, importance_cap=cap),
        SAMPLING,
        RunSeeds(1, 2, 3),
        folder,
        {},
    )


def test_one_step_off_draws_from_the_weights_before_the_update(tmp_path: Path) -> None:
    run = off_policy(tmp_path / "off")
    drawn_from: list[torch.Tensor] = []
    engine = run.engine
    sample = engine.run

    def seen(*args: Any) -> None:
        drawn_from.append(next(engine.twin.parameters()).clone())
        sample(*args)

    engine.run = seen
    run.run()
    # Engine runs: validation 0, then steps 1, 2 (both from the start), 3, validation after 2, 4.
    start, one, two, three, validated, four, last = drawn_from
    assert torch.equal(start, one) and torch.equal(start, two) and not torch.equal(two, three)
    assert not torch.equal(three, validated) and torch.equal(validated, four)
    assert not torch.equal(four, last)
    rows = [row for row in run.metrics if row["kind"] == "train"]
    assert [row["policy_lag"] for row in rows] == [0.0, 1.0, 1.0, 1.0]
    assert rows[0]["logp_gap_mean"] < 1e-5 < 1e-3 < rows[2]["logp_gap_mean"]
    assert rows[2]["importance_mean"] != 1.0


def test_one_step_off_resumes_as_if_uninterrupted(tmp_path: Path) -> None:
    whole = off_policy(tmp_path / "whole")
    whole.run()
    with pytest.raises(Interrupted):
        off_policy(tmp_path / "stopped", stop_at=5).run()
    assert (tmp_path / "stopped/state.pt").exists()
    again = off_policy(tmp_path / "stopped", stop_at=2)
    again.run()
    assert same(outcome(again), outcome(whole))


def test_one_step_off_is_refused_without_weights_for_it(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"train\.one_step_off: found true with .*importance_cap 0"):
        off_policy(tmp_path, cap=0.0)
    with pytest.raises(RuntimeError, match="weights that change"):
        off_policy(tmp_path, copied=False)


def test_tables_say_which_trainings_were_off_policy() -> None:
    root = Path(__file__).resolve().parents[2]
    config = yaml.safe_load((root / "config/tiny.yaml").read_text())
    assert notice(config, domains(config)) == config["notice"]
    config["method_settings"]["lopd"]["train"] = {"one_step_off": True}
    text = notice(config, domains(config))
    assert text.startswith(config["notice"].rstrip()) and "one step off-policy" in text
    assert "lopd, lopd_frozen" in text and "grpo" not in text
