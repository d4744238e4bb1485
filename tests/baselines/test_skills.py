from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from chat_server import serve

from lopd_repro.errors import UserError
from lopd_repro.experience.endpoint import ChatEndpoint
from lopd_repro.experience.skills import (
    Attempt,
    OfflineWriter,
    Skill,
    SkillBank,
    read_skills,
    write_skills,
)
from lopd_repro.experience.skills_endpoint import EndpointWriter, parse_skill
from lopd_repro.files import write_jsonl

A, B, C = (Skill(name, "-", name) for name in "abc")


def attempt(calls: str, reward: float) -> Attempt:
    """One letter a call."""
    return Attempt(tuple(calls), f"trace {calls}", reward)


def test_the_offline_writer_reads_successes_and_failures() -> None:
    skill = OfflineWriter().write(
        "task", [attempt("fxm", 0.5), attempt("fpqm", 1.0), attempt("fpm", 1.0), attempt("fz", 0.0)]
    )
    # Best: fpqm and fpm, which share f, p, m; the shorter is the workflow. x and z were called
    # in worse rollouts alone; m and f were not.
    assert skill == Skill("f, p, m", "x, z", "trace fpm")


def test_the_offline_writer_where_nothing_succeeded_or_ran() -> None:
    writer = OfflineWriter()
    assert writer.write("task", [attempt("fa", 0.25), attempt("fb", 0.5)]) == Skill(
        "f, b", "a", "trace fb"
    )
    # Both are the best there is and share no call.
    assert writer.write("task", [attempt("f", 0.0), attempt("g", 0.0)]) == Skill(
        "-", "-", "trace f"
    )
    assert writer.write("task", [Attempt((), "", 1.0), attempt("f", math.nan)]) is None
    assert writer.write("task", []) is None


def test_ucb_takes_unused_skills_first_then_the_best_bound() -> None:
    bank = SkillBank()
    assert bank.choose("t") is None
    assert bank.add("t", A) and bank.add("t", B) and not bank.add("t", A)
    assert bank.choose("t") == 0
    bank.credit("t", 0, 0.9)
    assert bank.choose("t") == 1
    bank.credit("t", 1, 0.1)
    # Both once, ln 2 the same: 0.9 against 0.1.
    assert bank.choose("t") == 0
    for _ in range(8):
        bank.credit("t", 0, 0.5)
    # N = 10: skill 0 has mean 4.9/9 + sqrt(2 ln 10 / 9) = 0.544 + 0.715 = 1.26,
    # skill 1 has 0.1 + sqrt(2 ln 10 / 1) = 2.25.
    assert bank.choose("t") == 1
    assert bank.add("t", C) and bank.choose("t") == 2
    # Another task's uses do not count here.
    bank.add("u", A)
    assert bank.choose("u") == 0 and len(bank) == 4


def test_a_banks_state_goes_through_plain_values() -> None:
    bank = SkillBank()
    bank.add("t", A)
    bank.add("t", B)
    bank.credit("t", 1, 0.25)
    again = SkillBank()
    again.load_state_dict(bank.state_dict())
    assert again.state_dict() == bank.state_dict()
    assert again.arms("t")[1].pulls == 1 and again.arms("t")[1].reward_sum == 0.25
    again.credit("t", 0, 1.0)
    assert bank.arms("t")[0].pulls == 0


def test_the_skills_file_and_its_text(tmp_path: Path) -> None:
    pairs = [("t", A), ("t", B), ("u", A)]
    write_skills(tmp_path / "skills.jsonl", pairs, tasks=3)
    assert read_skills(tmp_path / "skills.jsonl") == pairs
    write_jsonl(tmp_path / "bad.jsonl", [{"task_id": "t", "works": ""}])
    with pytest.raises(UserError, match="row 0 has no 'avoid'"):
        read_skills(tmp_path / "bad.jsonl")
    prompts = {"skill_works": "+", "skill_avoid": "!", "skill_workflow": ":", "skill_after": "."}
    assert Skill("w", "a", "f").text(prompts) == "+w!a:f."
    assert Skill("w", "a", "f").text(prompts, ["workflow"]) == ":f."


def test_skills_of_a_model_behind_an_endpoint() -> None:
    answers = [
        "I cannot say.",
        'Sure:\n{"works": " look up ", "avoid": "x", "workflow": "1. f()"}\nDone.',
        '{"works": 3, "avoid": "", "workflow": ""}',
        "no",
    ]
    requests: list[dict[str, Any]] = []
    with serve(lambda body: {"content": answers.pop(0)}, requests) as settings:
        writer = EndpointWriter(ChatEndpoint(settings), "Write a skill.")
        attempts = [attempt("fm", 1.0), attempt("f", 0.25)]
        assert writer.write("the task", attempts) == Skill("look up", "x", "1. f()")
        assert writer.write("the task", attempts) is None
    system, user = requests[0]["messages"]
    assert system["content"] == "Write a skill."
    for part in ("the task", "trace fm", "reward 1.00", "trace f\n", "reward 0.25"):
        assert part in user["content"] + "\n"
    with pytest.raises(UserError, match=r"prompts\.skill_request"):
        EndpointWriter(ChatEndpoint(settings), " ")
    assert parse_skill("") is None
