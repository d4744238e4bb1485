"""The file of base rollouts: read back whole, refused where it is of something else, and what
bank and skills make of it without running an episode."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from small import make_model, tokenizer
from test_evaluate_command import SETTINGS

from lopd_repro.cli import main
from lopd_repro.commands.wiring import parts, training_tasks
from lopd_repro.data.schema import TaskSet
from lopd_repro.errors import UserError
from lopd_repro.experience.bank import build_bank, read_bank
from lopd_repro.experience.rollouts import RolloutOrigin, read_rollouts, write_rollouts
from lopd_repro.experience.skills import OfflineWriter, attempts_of, read_skills
from lopd_repro.files import read_jsonl, read_jsonl_with_footer, write_jsonl
from lopd_repro.rollout.episodes import Trajectory
from lopd_repro.rollout.tool_use import ToolTexts
from lopd_repro.training.checkpoint import save_model
from lopd_repro.training.evaluate import EvaluationPlan, evaluate

MADE_WITH = {"domain": "tool_use", "sampling": {"rollout": {"temperature": 1.0, "top_k": 0}}}
ORIGIN = RolloutOrigin(("b", "a"), "digest", 2, MADE_WITH)
RECORD = {
    "executed": True, "name": "put", "observation": "ok \ud800", "tokens": 3,
    "arguments": {"z": math.inf, "a": {"y": [1, 2.5], "x": None}},
}  # fmt: skip


def rolled(task_id: str, group: int, reward: float = 1.0, *, tail: int = 7) -> Trajectory:
    marks, unknown = [True, True, False, True], [math.nan, math.nan, 0.0, math.nan]
    return Trajectory(
        task_id, group, (5, 6), [tail, 8, 9, 2], marks, unknown, list(unknown), reward, "ok",
        [RECORD, {"executed": False}],
    )  # fmt: skip


GIVEN = [rolled("b", 0), rolled("a", 1, 0.25), rolled("b", 0, math.nan), rolled("a", 1, tail=11)]


def write(path: Path, origin: RolloutOrigin = ORIGIN) -> Path:
    write_rollouts(path, origin, GIVEN, rollouts=4)
    return path


def as_text(trajectories: list[Trajectory]) -> str:
    """NaN equals NaN here, and the order of keys counts."""
    return json.dumps([asdict(t) for t in trajectories])


def test_rollouts_are_read_back_as_they_were_but_for_log_probabilities(tmp_path: Path) -> None:
    path = write(tmp_path / "rollouts.jsonl")
    assert as_text(read_rollouts(path, ORIGIN)) == as_text(GIVEN)
    footer = read_jsonl_with_footer(path)[1]
    assert footer["rollouts"] == 4 and footer["settings"] == MADE_WITH
    # The trace shows arguments in the order in which they were written.
    [first, *_] = read_rollouts(path, ORIGIN)
    trace = ToolTexts(TaskSet({}, {})).trace(first.records)
    assert trace == '1. put(z=Infinity, a={"y": [1, 2.5], "x": null}) -> ok \ud800'


def test_other_settings_tasks_and_incomplete_groups_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "rollouts.jsonl")
    warm = {**MADE_WITH, "sampling": {"rollout": {"temperature": 0.7, "top_k": 0}}}
    longer = {**MADE_WITH, "environment": {"max_steps": 9}}
    rows, footer = read_jsonl_with_footer(path)
    kept = {key: footer[key] for key in ("tasks_sha256", "settings")}
    write_jsonl(tmp_path / "short.jsonl", rows[:3], **kept)
    write_jsonl(tmp_path / "twice.jsonl", [*rows[:3], rows[1]], **kept)
    write_jsonl(tmp_path / "broken.jsonl", [{**rows[0], "supervised": [1]}, *rows[1:]], **kept)
    for name, origin, message in (
        ("rollouts", replace(ORIGIN, settings=warm),
         "made with sampling.rollout.temperature 1.0, found 0.7 now"),
        ("rollouts", replace(ORIGIN, settings=longer),
         'made with environment.max_steps "nothing", found 9 now'),
        ("rollouts", replace(ORIGIN, task_ids=("b", "c")),
         "row 1 is of task a, which is not among the 2 training tasks"),
        ("rollouts", replace(ORIGIN, task_ids=("b", "a", "c")),
         "found of task c rollouts none, allowed: each of 0 to 1 once"),
        ("rollouts", replace(ORIGIN, tasks_sha256="other"), "are not as they were when"),
        ("short", ORIGIN, "found of task a rollouts 0, allowed: each of 0 to 1 once"),
        ("twice", ORIGIN, "found of task a rollouts 0, 0, allowed: each of 0 to 1 once"),
        ("broken", ORIGIN, "row 0 is not a rollout"),
    ):  # fmt: skip
        with pytest.raises(UserError) as refused:
            read_rollouts(tmp_path / f"{name}.jsonl", origin)
        assert message in str(refused.value) and "\n" not in str(refused.value)
    text = path.read_text().splitlines(keepends=True)
    path.write_text("".join(text[:2]))
    with pytest.raises(UserError, match="no footer"):
        read_rollouts(path, ORIGIN)


OWN: dict[str, Any] = {
    **SETTINGS,
    "base_rollouts": {"seed": 3, "per_task": 4, "task_limit": 5},
    "bank": {"threshold": 0.0, "per_task": 2},
    "skills": {"groups": 1, "group_size": 3},
}


def run(command: str, settings: dict[str, Any], **options: object) -> int:
    given = [f"--{name}={value}" for name, value in options.items()]
    return main([command, "--settings", json.dumps(settings), *given])


def test_bank_and_skills_read_the_same_rollouts_and_load_no_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = {"train": 8, "validation": 4, "test": 4}
    given = json.dumps({"source": "tiny", "seed": 0, "sizes": sizes})
    assert main(["tasks", "--settings", given, "--out", str(tmp_path / "tasks")]) == 0
    splits, model = tmp_path / "tasks/splits.json", tmp_path / "model"
    save_model(model, make_model(), tokenizer())
    path = tmp_path / "rollouts.jsonl"
    assert run("base-rollouts", OWN, splits=splits, backbone=model, out=path) == 0

    tasks = training_tasks(OWN, str(splits), 5)
    with parts(OWN, model) as p:
        domain = p.domain(tasks)
        plan = EvaluationPlan(tuple(tasks.tasks), 4, 3, p.sampling("rollout"))
        expected = evaluate(p.engine, p.codec, domain, plan)
    bank = build_bank(expected, domain, 0.0, 2)
    groups = {t: [e for e in expected if e.task_id == t][:3] for t in tasks.tasks}
    written = {
        t: OfflineWriter().write(domain.task_text(t), attempts_of(group, domain))
        for t, group in groups.items()
    }

    # Nothing below may load a model or start an environment.
    for name in ("load_backbone", "EnvPool"):
        monkeypatch.delattr(f"lopd_repro.commands.wiring.{name}")
    shared = {"splits": splits, "rollouts": path}
    assert run("bank", OWN, **shared, out=tmp_path / "bank.jsonl") == 0
    assert read_bank(tmp_path / "bank.jsonl") == bank
    footer = read_jsonl_with_footer(tmp_path / "bank.jsonl")[1]
    assert footer["rollouts"] == 20 and footer["tasks"] == 5
    assert run("skills", OWN, **shared, out=tmp_path / "skills.jsonl") == 0
    assert read_skills(tmp_path / "skills.jsonl") == [(t, s) for t, s in written.items() if s]
    assert read_jsonl_with_footer(tmp_path / "skills.jsonl")[1]["rollouts"] == 15

    # How an episode is told is no reason to run it again; how it goes is.
    told = {**OWN, "environment": {**OWN["environment"], "trace_chars": 8}}
    assert run("bank", told, **shared, out=tmp_path / "told.jsonl") == 0
    longer = {**OWN, "environment": {**OWN["environment"], "max_steps": 4}}
    three = {**OWN, "skills": {"groups": 2, "group_size": 3}}
    capsys.readouterr()
    for command, settings, message in (
        ("bank", longer, "rollouts.jsonl: made with environment.max_steps 3, found 4 now\n"),
        ("skills", three, "skills.groups * skills.group_size: found 6, allowed: up to 4 (base"),
    ):
        assert run(command, settings, **shared, out=tmp_path / "no.jsonl") == 2
        error = capsys.readouterr().err
        assert message in error and error.count("\n") == 1
    assert not (tmp_path / "no.jsonl").exists()
    assert len(read_jsonl(path)) == 20
