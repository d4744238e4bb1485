"""The conformance command: verdicts, exit codes, folders of other names, planted errors."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lopd_repro.conformance.framework import Registry, load_registry, main
from lopd_repro.conformance.golden import Golden
from lopd_repro.conformance.outcome import Outcome

GOLDEN = Path(__file__).resolve().parents[2] / ".." / "shared" / "golden"
needs_golden = pytest.mark.skipif(
    not (GOLDEN / "manifest.json").is_file(),
    reason="no golden vectors at ../shared/golden beside this repository",
)

SOURCE = "github:someone/OPSD@0 opsd_trainer.py:OPSDTrainer.generalized_jsd_loss"


def opsd_arrays() -> dict[str, Any]:
    """Forward KL by hand: student (1/2, 1/2), teacher (1/4, 3/4), one of two tokens masked."""
    student = np.log(np.array([[[0.5, 0.5], [0.9, 0.1]]]))
    teacher = np.log(np.array([[[0.25, 0.75], [0.2, 0.8]]]))
    loss = 0.25 * math.log(0.5) + 0.75 * math.log(1.5)
    # gradient of the logits: student minus teacher probabilities at the token that counts
    gradient = np.array([[[0.25, -0.25], [0.0, 0.0]]])
    return {
        "student": student,
        "teacher": teacher,
        "labels": np.array([[1, -100]]),
        "loss": np.array(loss),
        "grad_student": gradient,
    }


def write_folder(folder: Path, name: str = "opsd_hand", **changes: Any) -> Path:
    arrays = {**opsd_arrays(), **changes}
    np.savez(folder / "data.npz", **{k: v for k, v in arrays.items() if v is not None})
    entry = {
        "name": name,
        "file": "data.npz",
        "source": SOURCE,
        "settings": {
            "beta": 0,
            "temperature": 1.0,
            "top_k": None,
            "reduction": "batchmean",
            "labels": True,
            "logits_are_probs": False,
        },
        "tolerance": {"rtol": 1e-9, "atol": 1e-11},
    }
    uncovered = {"name": "unheard_of", "file": "data.npz", "source": "nowhere"}
    manifest = {"environment": "by hand", "entries": [entry, uncovered]}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder


def test_a_folder_made_by_hand(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(write_folder(tmp_path))]) == 0
    first, second, total = capsys.readouterr().out.splitlines()
    assert first.split()[0] == "opsd_hand"
    assert first.endswith("ok")
    assert second.split() == ["unheard_of", "not", "covered"]
    assert total == "total: 2 entries, 1 ok, 0 differ, 1 not covered"


def test_an_entry_of_another_name_is_found_by_its_source(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(write_folder(tmp_path, name="case_17"))]) == 0
    assert "1 ok, 0 differ" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"loss": np.array(0.1308)}, "loss differs"),
        ({"loss": np.array(math.nan)}, "loss differs"),
        ({"loss": np.zeros(2)}, "loss: shape (), recorded (2,)"),
        ({"grad_student": np.zeros((1, 2, 2))}, "grad_student differs"),
        ({"grad_teacher": np.zeros((1, 2, 2))}, "grad_teacher was not compared"),
        ({"student": None}, "KeyError: 'student'"),
    ],
)
def test_planted_errors_are_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], changes: dict[str, Any], complaint: str
) -> None:
    assert main([str(write_folder(tmp_path, **changes))]) == 1
    out = capsys.readouterr().out
    assert complaint in out
    assert "0 ok, 1 differ, 1 not covered" in out


def test_files_that_are_missing_broken_or_elsewhere_differ(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_folder(tmp_path)
    (folder / "data.npz").write_bytes(b"not an archive")
    assert main([str(folder)]) == 1
    (folder / "data.npz").unlink()
    assert main([str(folder)]) == 1
    assert "data.npz is missing" in capsys.readouterr().out
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["entries"][0]["file"] = "../data.npz"
    (folder / "manifest.json").write_text(json.dumps(manifest))
    assert main([str(folder)]) == 1
    assert "outside the folder" in capsys.readouterr().out


@pytest.mark.parametrize("text", [None, "{", "[]", '{"entries": 3}', '{"entries": [{"name": 1}]}'])
def test_an_unreadable_folder_is_one_line_and_exit_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str | None
) -> None:
    if text is not None:
        (tmp_path / "manifest.json").write_text(text)
    assert main([str(tmp_path)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: ")
    assert captured.err.count("\n") == 1
    assert str(tmp_path) in captured.err


def test_the_longest_prefix_wins_and_names_go_before_sources() -> None:
    def adapter(_: dict[str, Any], __: Path) -> Outcome:
        return Outcome(0.0, None, True)

    def other(_: dict[str, Any], __: Path) -> Outcome:
        return Outcome(1.0, None, False)

    registry = Registry({"a": other, "a_b": adapter}, {"x.py": other, "x.py:f": adapter})
    assert registry.find({"name": "a_b_0"}) is adapter
    assert registry.find({"name": "a_c", "source": "x.py:f"}) is other
    assert registry.find({"name": "z", "source": "at x.py:f there"}) is adapter
    assert registry.find({"name": "z", "source": "y.py"}) is None


def test_modules_that_are_missing_cover_nothing() -> None:
    registry = load_registry(["lopd_repro.conformance.losses", "lopd_repro.conformance.nothing"])
    assert "opsd" in registry.entries
    assert load_registry(["lopd_repro.conformance.nothing"]).entries == {}


def test_an_adapter_that_compares_nothing_is_not_ok(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", a=np.ones(2))
    golden = Golden({"name": "x"}, tmp_path / "x.npz")
    golden.array("a")
    assert golden.outcome() == Outcome(0.0, None, False, "no value was compared")


def test_the_command_runs_as_a_module(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "lopd_repro.conformance", str(tmp_path / "none")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr == f"error: {tmp_path / 'none'}: no such folder\n"


OURS = ("lopd_topk", "lopd_composer_loss", "grpo", "sdpo", "opsd", "sdft", "trl_sdft", "skillsd",
        "pass_at_k")  # fmt: skip


@needs_golden
@pytest.mark.parametrize("prefix", OURS)
def test_losses_and_statistics_conform(prefix: str, capsys: pytest.CaptureFixture[str]) -> None:
    status = main([str(GOLDEN), "--only", prefix])
    out = capsys.readouterr().out
    assert status == 0, out
    assert "0 ok" not in out.splitlines()[-1]
    assert "0 differ, 0 not covered" in out.splitlines()[-1], out


@needs_golden
def test_a_scaled_gradient_is_noticed_in_every_loss_entry(tmp_path: Path) -> None:
    """Every recorded gradient matters: scaling it by 1.001 makes its entry differ."""
    registry = load_registry(["lopd_repro.conformance.losses"])
    entries = json.loads((GOLDEN / "manifest.json").read_text())["entries"]
    scaled = 0
    for entry in entries:
        adapter = registry.find(entry)
        if adapter is None or not entry["file"].endswith(".npz"):
            continue
        with np.load(GOLDEN / entry["file"]) as data:
            arrays = dict(data)
        names = [n for n in arrays if n.startswith("grad_") and np.abs(arrays[n]).max() > 1e-4]
        for name in names:
            changed = {**arrays, name: arrays[name] * 1.001 + 1e-4}
            np.savez(tmp_path / "changed.npz", **changed)
            outcome = adapter(entry, tmp_path / "changed.npz")
            assert not outcome.ok, f"{entry['name']}: {name}"
            scaled += 1
    assert scaled > 50
