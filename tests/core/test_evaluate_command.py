"""`lopd-repro evaluate` on the bundled tasks: selected checkpoint, candidates, base + composer."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from small import make_model, tokenizer
from small_lopd import make_composer

from lopd_repro.cli import main
from lopd_repro.data.splits import open_split, split_ids
from lopd_repro.experience.bank import Experience, write_bank
from lopd_repro.files import digest_file, read_json, read_jsonl_with_footer
from lopd_repro.lopd.saved import save_composer
from lopd_repro.models.backbone import copy_model, freeze
from lopd_repro.training.checkpoint import save_model

METHOD = '''
from lopd_repro.training.method import Loss, Method


class Away(Method):
    """Makes what the policy wrote less likely, and counts its steps in a file."""

    name = "away"
    steps = 0

    def loss(self, batch):
        return Loss(batch.student.logp(batch.tokens).mean())

    def after_step(self, metrics):
        self.steps += 1
        return {}

    def artifacts(self):
        return {"steps.txt": str(self.steps).encode()}

    def state_dict(self):
        return {"steps": self.steps}

    def load_state_dict(self, state):
        self.steps = state["steps"]


METHOD = Away
'''
FRAMES = ("latent", "reference", "demonstration", "sibling")
SAMPLING = {"temperature": 1.0, "max_turn_tokens": 6, "max_tail_tokens": 40}
SETTINGS: dict[str, Any] = {
    "domain": "tool_use",
    "prompts": {
        **{f"{frame}_{side}": "\nReference:\n" for frame in FRAMES for side in ("before", "after")},
        **{f"skill_{part}": "" for part in ("works", "avoid", "workflow", "after", "request")},
        "system": "{introduction}", "user": "{task}",
        "composer_task": "Task to solve:\n", "composer_trace": "\n\nReference:\n",
    },
    "environment": {"protocol": "qwen3", "max_steps": 3},
    "sampling": {"rollout": SAMPLING, "evaluation": SAMPLING},
    "train": {
        "steps": 3, "rollouts_per_step": 4, "group_size": 1, "validate_every": 1,
        "checkpoint_every": 1, "keep_candidates": True,
    },
    "optimiser": {"lr": 0.03, "weight_decay": 0.0},
    "validation": {"repeats": 1, "seed": 100},
    "evaluation": {"repeats": 2, "seed": 200},
    "data_label": "bundled tiny tasks",
    "retrieval": {"depth": 4},
    "embedder": "tfidf",
    "n_retrieved": 2,
}  # fmt: skip


def run(command: str, *arguments: object, **changed: Any) -> int:
    settings = json.dumps({**SETTINGS, **changed})
    return main([command, "--settings", settings, *(str(a) for a in arguments)])


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tasks, a small model, and a run that kept its candidates."""
    out = tmp_path_factory.mktemp("evaluate")
    sizes = {"train": 48, "validation": 12, "test": 6}
    settings = {"source": "tiny", "seed": 0, "sizes": sizes}
    assert main(["tasks", "--settings", json.dumps(settings), "--out", str(out / "tasks")]) == 0
    save_model(out / "model", make_model(), tokenizer())
    (out / "away.py").write_text(METHOD)
    assert train(out, "run") == 0
    return out


def train(made: Path, out: str, **changed: Any) -> int:
    return run("train", "--method-file", made / "away.py", "--seed", 1,
               "--splits", made / "tasks/splits.json", "--backbone", made / "model",
               "--out", made / out, "--state", made / f"{out}_state",
               train={**SETTINGS["train"], **changed})  # fmt: skip


def evaluate(made: Path, out: str, *arguments: object, **changed: Any) -> int:
    return run("evaluate", "--splits", made / "tasks/splits.json", "--noop",
               made / "tasks/noop.json", "--seed", 1, "--out", made / out, *arguments,
               **changed)  # fmt: skip


def test_candidates_on_test_are_scored_as_the_selected_checkpoint_is(made: Path) -> None:
    assert evaluate(made, "selected.jsonl", "--checkpoint", made / "run/checkpoint") == 0
    assert evaluate(made, "all.jsonl", "--candidates", made / "run/candidates") == 0
    chosen, plain = read_jsonl_with_footer(made / "selected.jsonl")
    rows, footer = read_jsonl_with_footer(made / "all.jsonl")
    # 3 validated steps after step 0, 6 test tasks, 2 repeats.
    assert footer["expected"] == len(rows) == 36 and plain["expected"] == len(chosen) == 12
    assert (plain["benchmark"], footer["benchmark"]) == ("envscaler", "envscaler_candidates")
    assert footer["purpose"] == "candidates on test; never used for a choice"
    assert footer["steps"] == [1, 2, 3] and "purpose" not in plain
    by_step: dict[int, list[dict[str, Any]]] = {1: [], 2: [], 3: []}
    for row in rows:
        by_step[row.pop("step")].append(row)
    assert by_step[read_json(made / "run/selected.json")["selected_step"]] == chosen
    assert by_step[1] != by_step[2] != by_step[3]
    assert {r["task_id"] for r in chosen} == set(split_ids(made / "tasks/splits.json")["test"])


def test_a_run_folder_holds_the_methods_files_of_the_selected_step_and_no_state(
    made: Path,
) -> None:
    assert sorted(f.name for f in (made / "run").iterdir()) == [
        "candidates", "checkpoint", "manifest.json", "metrics.jsonl", "selected.json", "steps.txt",
    ]  # fmt: skip
    selected = read_json(made / "run/selected.json")["selected_step"]
    assert (made / "run/steps.txt").read_text() == str(selected)
    assert [f.name for f in (made / "run_state").rglob("*") if f.is_file()] == ["lock"]


def test_missing_candidates_are_refused(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    partial = made / "partial"
    shutil.copytree(made / "run", partial)
    shutil.rmtree(partial / "candidates/step000002")
    assert evaluate(made, "x.jsonl", "--candidates", partial / "candidates") == 2
    message = capsys.readouterr().err
    assert "candidates of steps [1, 3], but the run validated [1, 2, 3]" in message
    assert evaluate(made, "x.jsonl", "--candidates", partial / "checkpoint") == 2
    assert "no candidates" in capsys.readouterr().err


def test_a_run_without_candidates_removes_those_of_an_earlier_one(made: Path) -> None:
    out = made / "again"
    (out / "candidates/step000009").mkdir(parents=True)
    assert train(made, "again", steps=1, keep_candidates=False) == 0
    assert list((out / "candidates").iterdir()) == [] and (out / "checkpoint").is_dir()


def experiences(made: Path, split: str, purpose: str, count: int) -> list[Experience]:
    tasks = list(open_split(made / "tasks/splits.json", split, purpose).tasks.values())[:count]
    return [
        Experience(f"{t.task_id}#1", t.task_id, t.task, f"1. look -> {i}", 1.0, (1,), (True,))
        for i, t in enumerate(tasks)
    ]


def test_base_and_composer_reads_latents_of_what_test_tasks_retrieve(made: Path) -> None:
    bank, weights = made / "bank.jsonl", made / "composer.safetensors"
    write_bank(bank, experiences(made, "train", "training", 5))
    save_composer(make_composer(freeze(copy_model(make_model()))), weights)
    with_latents = ("--checkpoint", made / "model", "--composer", weights, "--bank", bank)
    assert evaluate(made, "base.jsonl", "--checkpoint", made / "model") == 0
    assert evaluate(made, "latents.jsonl", *with_latents) == 0
    assert evaluate(made, "again.jsonl", *with_latents) == 0
    assert evaluate(made, "one.jsonl", *with_latents, n_retrieved=1) == 0
    base, _ = read_jsonl_with_footer(made / "base.jsonl")
    rows, footer = read_jsonl_with_footer(made / "latents.jsonl")
    assert [(r["task_id"], r["repeat"]) for r in rows] == [
        (r["task_id"], r["repeat"]) for r in base
    ]
    assert rows == read_jsonl_with_footer(made / "again.jsonl")[0]
    fewer, other = read_jsonl_with_footer(made / "one.jsonl")
    # The same draws, another head: only the latents can make the difference.
    assert [r["records"] for r in rows] != [r["records"] for r in base]
    assert [r["records"] for r in rows] != [r["records"] for r in fewer]
    assert footer["benchmark"] == "envscaler" and footer["expected"] == len(rows) == 12
    assert footer["composer"] == str(weights)
    assert footer["composer_sha256"] == digest_file(weights)
    assert (footer["n_retrieved"], other["n_retrieved"], footer["without_latents"]) == (2, 1, 0)
    assert "illustrative" in footer["purpose"]


def test_a_bank_of_test_tasks_and_half_given_options_are_refused(
    made: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_bank(made / "leak.jsonl", experiences(made, "test", "evaluation", 1))
    weights = made / "some.safetensors"
    save_composer(make_composer(freeze(copy_model(make_model()))), weights)
    leak = ("--checkpoint", made / "model", "--composer", weights, "--bank", made / "leak.jsonl")
    write_bank(made / "good.jsonl", experiences(made, "train", "training", 2))
    good = (*leak[:-1], made / "good.jsonl")
    for arguments, changed, message in (
        (leak, {}, "which is not in the training split"),
        (leak[:4], {}, "--composer and --bank: found one of them"),
        (("--candidates", made / "run/candidates", *leak[2:]), {}, "allowed: with --checkpoint"),
        ((*good[:3], made / "none.safetensors", *good[4:]), {}, "no such composer"),
        (good, {"retrieval": {"depth": 2, "key": "trace"}}, "retrieval.key: found 'trace'"),
    ):
        assert evaluate(made, "x.jsonl", *arguments, **changed) == 2
        assert message in capsys.readouterr().err
    settings = {key: value for key, value in SETTINGS.items() if key != "n_retrieved"}
    arguments = ["evaluate", "--settings", json.dumps(settings), "--splits",
                 str(made / "tasks/splits.json"), "--noop", str(made / "tasks/noop.json"),
                 "--seed", "1", "--out", str(made / "x.jsonl"), *map(str, good)]  # fmt: skip
    assert main(arguments) == 2
    assert "n_retrieved: missing, but --composer needs it" in capsys.readouterr().err
    assert not (made / "x.jsonl").exists()
