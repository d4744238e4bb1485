"""Every command of the core on the coding domain, with all methods, on a model of a few thousand
parameters that knows one right and one wrong program."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import torch

from lopd_repro.cli import main
from lopd_repro.data.coding import CodeCase, CodeTask, write_code_tasks
from lopd_repro.data.splits import split_ids
from lopd_repro.experience.bank import read_bank, write_bank
from lopd_repro.experience.embed import TfidfEmbedder
from lopd_repro.experience.retrieval import RetrievalSettings, retrieve_for
from lopd_repro.experience.skills import read_skills
from lopd_repro.files import read_json, read_jsonl, read_jsonl_with_footer
from lopd_repro.models.chat import ChatCodec
from lopd_repro.models.tiny_tokenizer import build_tokenizer
from lopd_repro.rollout.coding import CodePrompts, code_opening, fenced
from lopd_repro.rollout.heads import build_head
from lopd_repro.training.checkpoint import save_model
from lopd_repro.training.tiny_base import BaseTraining, Document, TinyShape, train
from lopd_repro.training.tiny_code_base import build_code_model

ROOT = Path(__file__).resolve().parents[2]
RIGHT = "n = int(input())\nprint(n + n)"
WRONG = "n = int(input())\nprint(n)"
METHODS = {
    "baselines/vanilla.py": [],
    "baselines/grpo.py": [],
    "baselines/sdpo.py": [],
    "baselines/sdft.py": ["demonstrations"],
    "baselines/opsd.py": ["demonstrations"],
    "baselines/skill_sd.py": ["skills"],
    "lopd_repro/lopd/method.py": ["bank", "retrieved", "composer"],
}  # fmt: skip
NOTHING = {"system": "", "user": "{task}", "skill_request": ""}
FRAMES = ("latent", "reference", "demonstration", "sibling")
PROMPTS = {
    **NOTHING,
    **{f"{frame}_{side}": "\nSee:\n" for frame in FRAMES for side in ("before", "after")},
    **{f"skill_{part}": "\nSee:\n" for part in ("works", "avoid", "workflow", "after")},
    "composer_task": "See:\n",
    "composer_trace": "\nSee:\n",
}
SETTINGS: dict[str, Any] = {
    "domain": "coding",
    "prompts": PROMPTS,
    "environment": {"extraction": "last_fence", "workers": 1},
    "sampling": {
        "rollout": {"temperature": 1.0, "max_turn_tokens": 20, "max_tail_tokens": 24},
        "evaluation": {"temperature": 0.7, "max_turn_tokens": 20, "max_tail_tokens": 24},
    },
    "base_rollouts": {"seed": 0, "per_task": 8},
    "bank": {"threshold": 1.0, "per_task": 2},
    "embedder": "tfidf",
    "retrieval": {
        "key": "task_and_trace", "query_prompt": "", "self_retrieval": False, "depth": 2,
    },
    "composer": {"n_latents": 2, "depth": 1, "ff_mult": 1, "lora_rank": 1, "lora_alpha": 1},
    "seed": 0,
    "n_retrieved": 1,
    "cold_start": {"steps": 2, "batch": 2, "lr": 0.001, "weight_decay": 0.0, "clip": 1.0},
    "demonstrations": {"missing": "none", "threshold": 1.0},
    "skills": {"groups": 1, "group_size": 4, "writer": "offline"},
    "train": {
        "steps": 1, "rollouts_per_step": 8, "group_size": 4, "validate_every": 1,
        "checkpoint_every": 1, "teacher_check_tasks": 2, "keep_candidates": True,
    },
    "optimiser": {"lr": 0.001, "weight_decay": 0.0, "clip": 1.0, "micro_batch": 8},
    "validation": {"repeats": 1, "seed": 100},
    "evaluation": {"repeats": 2, "seed": 200},
    "data_label": "a test's own tasks",
}  # fmt: skip


def doubling(name: str) -> CodeTask:
    cases = tuple(CodeCase(f"{n}\n", f"{n + n}\n") for n in (3, len(name) + ord(name[-1])))
    return CodeTask(name, f"Double the number of {name}.", "stdin", cases, topic="t", family="f")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tasks, splits and a model that writes the right program about half of the time."""
    torch.set_num_threads(1)
    out = tmp_path_factory.mktemp("coding")
    tasks = [doubling(f"thing{'abcdefghijkl'[i]}") for i in range(12)]
    write_code_tasks(tasks, out / "given.jsonl")
    settings = {
        "domain": "coding", "source": "files", "files": [str(out / "given.jsonl")], "seed": 0,
        "sizes": {"validation": 3, "test": 3},
    }  # fmt: skip
    assert run("tasks", "--settings", json.dumps(settings), "--out", out / "tasks") == 0
    words = ["```python\n", "\n```", "n = int(input())", "print(n + n)", "print(n)", "See:",
             "Double the number of ", *(task.task_id for task in tasks)]  # fmt: skip
    tokenizer = build_tokenizer(words, 512)
    codec = ChatCodec(tokenizer, (tokenizer.eos_token_id,))
    documents = []
    for task in tasks:
        for program in (RIGHT, WRONG):
            head = build_head(codec, code_opening(task, CodePrompts(""))).head.ids
            reply = [*codec.encode(fenced(program)), tokenizer.eos_token_id]
            marks = (False,) * len(head) + (True,) * len(reply)
            documents.append(Document((*head, *reply), marks))
    model = build_code_model("olmo3", TinyShape(32, 1, 64, 512), tokenizer, 0)
    special = [tokenizer.convert_tokens_to_ids(t) for t in tokenizer.all_special_tokens]
    plan = BaseTraining(steps=90, batch=16, lr=0.01, drill_share=0.0)
    train(model, documents, plan, tokenizer.pad_token_id, special, 0, lambda row: None)
    save_model(out / "model", model, tokenizer)
    return out


def run(*arguments: object) -> int:
    return main([str(a) for a in arguments])


def job(
    made: Path, command: str, changed: dict[str, Any] | None = None, /, **options: object
) -> None:
    given = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
    settings = json.dumps({**SETTINGS, **(changed or {})})
    splits = made / "tasks/splits.json"
    assert run(command, "--settings", settings, "--splits", splits, *given) == 0


@pytest.fixture(scope="module")
def inputs(made: Path) -> Path:
    """What the methods read: bank, composer, demonstrations, skills."""
    model, bank, retrieved = made / "model", made / "bank.jsonl", made / "retrieved.json"
    rollouts = made / "rollouts.jsonl"
    job(made, "base-rollouts", backbone=model, out=rollouts)
    job(made, "bank", rollouts=rollouts, out=bank)
    job(made, "retrieve", backbone=model, bank=bank, out=retrieved)
    job(made, "cold-start", backbone=model, bank=bank, retrieved=retrieved,
        out=made / "composer.safetensors", report=made / "report.json")  # fmt: skip
    job(made, "demonstrations", backbone=model, bank=bank, out=made / "demonstrations.jsonl")
    job(made, "skills", rollouts=rollouts, out=made / "skills.jsonl")
    return made


def test_task_files(made: Path) -> None:
    ids = split_ids(made / "tasks/splits.json")
    assert {name: len(found) for name, found in ids.items()} == {
        "train": 6, "validation": 3, "test": 3,
    }  # fmt: skip
    floor = read_json(made / "tasks/noop.json")["noop_reward"]
    assert set(floor.values()) == {0.0} and len(floor) == 12
    assert read_json(made / "tasks/dropped.json") == []


def test_experiences_demonstrations_and_skills_are_programs_that_passed(inputs: Path) -> None:
    training = set(split_ids(inputs / "tasks/splits.json")["train"])
    bank = read_bank(inputs / "bank.jsonl", training)
    traces = {entry.trace for entry in bank}
    assert RIGHT in traces and all("print(n + n)" in trace for trace in traces)
    footer = read_jsonl_with_footer(inputs / "bank.jsonl")[1]
    assert footer["rollouts"] == 48 and 0.1 < footer["base_success"] < 0.9
    assert {row["text"] for row in read_jsonl(inputs / "demonstrations.jsonl")} <= traces
    skills = [skill for _, skill in read_skills(inputs / "skills.jsonl")]
    assert any(
        s.works == "n = int(input()), print(n + n)" and s.avoid == "print(n)" for s in skills
    )
    skills_footer = read_jsonl_with_footer(inputs / "skills.jsonl")[1]
    assert skills_footer["rollouts"] == 24 and skills_footer["tasks"] == 6
    report = read_json(inputs / "report.json")
    assert set(report) == {"none", "retrieved", "shuffled"}
    found = read_json(inputs / "retrieved.json")
    assert set(found["groups"].values()) == {"t"} and found["same_family_at_1"]["train"] == 1.0


def test_retrieval_is_a_job_of_its_own(inputs: Path, tmp_path: Path) -> None:
    bank = read_bank(inputs / "bank.jsonl")
    texts = {entry.task_id: entry.task for entry in bank}
    given = {"backbone": inputs / "model", "bank": inputs / "bank.jsonl"}
    changed = {"retrieval": {**SETTINGS["retrieval"], "self_retrieval": True}}
    for own, settings in ((False, {}), (True, changed)):
        job(inputs, "retrieve", settings, **given, out=tmp_path / "retrieved.json")
        found = read_json(tmp_path / "retrieved.json")
        retrieval = RetrievalSettings(self_retrieval=own, depth=2)
        expected = retrieve_for(bank, texts, TfidfEmbedder(), retrieval)
        assert {task: found["train"][task] for task in texts} == expected
        assert (f"{bank[0].task_id}#1" in found["train"][bank[0].task_id]) == own
        assert set(found["train"]) == set(split_ids(inputs / "tasks/splits.json")["train"])
        assert set(found["validation"]) == set(
            split_ids(inputs / "tasks/splits.json")["validation"]
        )
    job(inputs, "retrieve", **given, out=tmp_path / "retrieved.json")
    again = (tmp_path / "retrieved.json").read_bytes()
    assert again == (inputs / "retrieved.json").read_bytes()


def test_a_cold_start_can_hide_the_task_from_the_composer(
    inputs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = {
        "bank": inputs / "bank.jsonl",
        "retrieved": inputs / "retrieved.json",
        "backbone": inputs / "model",
        "out": tmp_path / "composer.safetensors",
        "report": tmp_path / "report.json",
    }
    job(
        inputs, "cold-start", {"composer": {**SETTINGS["composer"], "task_text": "hidden"}}, **given
    )
    assert read_json(tmp_path / "composer.json")["task_text"] == "hidden"
    assert read_json(inputs / "composer.json")["task_text"] == "shown"
    first, other = (read_jsonl(folder / "report.jsonl")[0]["nll"] for folder in (inputs, tmp_path))
    assert first != pytest.approx(other, rel=1e-6)
    changed = json.dumps({**SETTINGS, "cold_start": {"pairing": "mixed"}})
    splits = inputs / "tasks/splits.json"
    options = [f"--{name}={value}" for name, value in given.items()]
    assert run("cold-start", "--settings", changed, "--splits", splits, *options) == 2
    assert "cold_start.pairing: found 'mixed', allowed: retrieved" in capsys.readouterr().err


def test_retrieval_refuses_a_bank_with_other_tasks(
    inputs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    test_task = split_ids(inputs / "tasks/splits.json")["test"][0]
    stray = dataclasses.replace(read_bank(inputs / "bank.jsonl")[0], task_id=test_task)
    write_bank(tmp_path / "bank.jsonl", [stray])
    assert run(
        "retrieve", "--settings", json.dumps(SETTINGS), "--splits", inputs / "tasks/splits.json",
        "--backbone", inputs / "model", "--bank", tmp_path / "bank.jsonl",
        "--out", tmp_path / "retrieved.json",
    ) == 2  # fmt: skip
    assert f"is of task {test_task}, which is not in the training" in capsys.readouterr().err
    assert not (tmp_path / "retrieved.json").exists()


@pytest.mark.parametrize("file", METHODS)
def test_every_method_trains_and_is_scored(inputs: Path, file: str) -> None:
    suffix = {"bank": "jsonl", "retrieved": "json", "composer": "safetensors"}
    given = [
        f"--input={name}={inputs / name}.{suffix.get(name, 'jsonl')}" for name in METHODS[file]
    ]
    out = inputs / "runs" / Path(file).stem
    settings = {**SETTINGS, "method": {"n_retrieved": 1} if "lopd" in file else {}}
    assert run(
        "train", "--settings", json.dumps(settings), "--method-file", ROOT / file, "--seed", 0,
        "--splits", inputs / "tasks/splits.json", "--backbone", inputs / "model",
        "--out", out, "--state", inputs / "state" / out.name, *given,
    ) == 0  # fmt: skip
    steps = [row for row in read_jsonl(out / "metrics.jsonl") if row["kind"] == "train"]
    assert len(steps) == (0 if "vanilla" in file else 1)
    job(inputs, "evaluate", checkpoint=out / "checkpoint", noop=inputs / "tasks/noop.json",
        seed=0, out=out / "test.jsonl")  # fmt: skip
    rows, footer = read_jsonl_with_footer(out / "test.jsonl")
    assert (footer["benchmark"], footer["scorer"]) == ("taco", "lopd_repro.sandbox")
    assert footer["expected"] == len(rows) == 6
    assert {row["task_id"] for row in rows} == set(split_ids(inputs / "tasks/splits.json")["test"])
    for row in rows:
        record = row["records"][0]
        assert (row["score"] == 1.0) == (record["verdict"] == "passed")
        assert record.get("program") != WRONG or record["verdict"] == "wrong"
    assert (out / "composer.safetensors").is_file() == ("lopd" in file)
    if "grpo" in file:
        job(inputs, "evaluate", candidates=out / "candidates", noop=inputs / "tasks/noop.json",
            seed=0, out=out / "candidates.jsonl")  # fmt: skip
        every, footer = read_jsonl_with_footer(out / "candidates.jsonl")
        assert (footer["benchmark"], footer["expected"]) == ("taco_candidates", 6)
        assert every == [{**row, "step": 1} for row in rows]


def test_unknown_domains_and_other_split_files_are_refused(
    made: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    splits = made / "tasks/splits.json"
    for domain, message in (
        ("chess", "domain: found 'chess', allowed: tool_use, coding"),
        ("tool_use", "is not a split file of tool-use scenarios"),
    ):
        settings = json.dumps({**SETTINGS, "domain": domain})
        code = run("skills", "--settings", settings, "--splits", splits,
                   "--rollouts", made / "x.jsonl", "--out", made / "y.jsonl")  # fmt: skip
        assert code == 2 and message in capsys.readouterr().err
