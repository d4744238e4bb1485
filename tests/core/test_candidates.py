"""Candidates of a run on disk, and the method's files of the selected step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from small import make_model, tokenizer
from test_loop import Interrupted, build, same

from lopd_repro.errors import UserError
from lopd_repro.lopd.composer import Composer
from lopd_repro.lopd.saved import composer_settings
from lopd_repro.models.backbone import copy_model, freeze, load_backbone
from lopd_repro.training import loop
from lopd_repro.training.candidates import Candidates, candidate_folders, step_folder


def files(folder: Path) -> dict[str, bytes]:
    """Every file below a folder."""
    return {
        str(f.relative_to(folder)): f.read_bytes() for f in sorted(folder.rglob("*")) if f.is_file()
    }


@pytest.mark.parametrize("name", ["grpo", "lopd"])
def test_a_resumed_run_has_the_candidates_of_an_uninterrupted_one(
    name: str, tmp_path: Path
) -> None:
    whole = build(name, tmp_path / "whole", keep_candidates=True)
    whole.run()
    whole.candidates.publish(tmp_path / "out")
    folders = candidate_folders(tmp_path / "out/candidates")
    assert list(folders) == [2, 4]
    weights = {step: dict(load_backbone(f).model.state_dict()) for step, f in folders.items()}
    assert not same(weights[2], weights[4])
    chosen = whole.selection.report()["selected_step"]
    assert same(weights[chosen], dict(whole.model.state_dict()))
    expected = files(tmp_path / "out/candidates")
    assert "step000002/model.safetensors" in expected and "step000002/tokenizer.json" in expected
    # Engine runs: validation 0, steps 1-2, validation 2, [state], step 3, step 4, validation 4.
    for stop_at in (2, 4, 5):
        folder = tmp_path / f"stopped{stop_at}"
        with pytest.raises(Interrupted):
            build(name, folder, stop_at, keep_candidates=True).run()
        again = build(name, folder, keep_candidates=True)
        again.run()
        again.candidates.publish(folder / "out")
        assert files(folder / "out/candidates") == expected


def test_a_run_keeps_no_candidates_unless_asked_to(tmp_path: Path) -> None:
    run = build("grpo", tmp_path)
    run.run()
    assert not run.candidates.folder.exists()
    with pytest.raises(UserError, match=r"no candidates .*keep_candidates: true"):
        candidate_folders(run.candidates.folder)


def test_a_new_run_starts_without_the_candidates_of_an_earlier_one(tmp_path: Path) -> None:
    stale = tmp_path / "candidates" / step_folder(3)
    stale.mkdir(parents=True)
    (stale / "config.json").write_text("{}")
    (tmp_path / "candidates" / ".step000007.half").mkdir()
    run = build("grpo", tmp_path, keep_candidates=True, steps=2)
    run.run()
    assert [f.name for f in run.candidates.folder.iterdir()] == ["step000002"]


def test_a_resumed_run_drops_later_candidates_and_misses_none(tmp_path: Path) -> None:
    candidates = Candidates(tmp_path)
    for step in (10, 20, 30):
        candidates.add(step, make_model(), tokenizer())
    candidates.begin([10, 20])
    assert list(candidate_folders(candidates.folder)) == [10, 20]
    with pytest.raises(UserError, match="step000015: missing"):
        candidates.begin([10, 15])


def test_published_candidates_replace_those_of_an_earlier_run(tmp_path: Path) -> None:
    candidates, out = Candidates(tmp_path / "state"), tmp_path / "out"
    (out / "candidates" / step_folder(99)).mkdir(parents=True)
    candidates.add(10, make_model(), tokenizer())
    candidates.publish(out)
    candidates.publish(out)
    assert [f.name for f in out.iterdir()] == ["candidates"]
    assert list(candidate_folders(out / "candidates")) == [10]
    # The run may still be interrupted before its result is whole.
    assert list(candidate_folders(candidates.folder)) == [10]
    expected = files(out / "candidates")
    candidates.begin()
    assert list(candidates.folder.iterdir()) == []
    assert files(out / "candidates") == expected


def falling(monkeypatch: pytest.MonkeyPatch) -> None:
    """Validation scores that fall from one validation to the next, so that the first is chosen."""
    scores: dict[int, float] = {}

    def summary(trajectories: list[Any]) -> dict[str, float]:
        scores[len(scores)] = 1.0 - len(scores) / 10
        return {"reward_mean": scores[len(scores) - 1]}

    monkeypatch.setattr(loop, "summary", summary)


def test_the_composer_kept_is_that_of_the_selected_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    falling(monkeypatch)
    short = build("lopd", tmp_path / "short", steps=2)
    short.run()
    after_two = short.method.artifacts()
    whole = build("lopd", tmp_path / "whole")
    whole.run()
    assert whole.selection.best_step == 2
    assert whole.artifacts() == after_two != whole.method.artifacts()
    # The state that a resumed run starts from holds them: the last validation adds none.
    with pytest.raises(Interrupted):
        build("lopd", tmp_path / "stopped", 4).run()
    again = build("lopd", tmp_path / "stopped")
    again.run()
    assert again.artifacts() == after_two
    for file, data in after_two.items():
        (tmp_path / file).write_bytes(data)
    weights = tmp_path / "composer.safetensors"
    shape = composer_settings(weights)
    loaded = Composer(freeze(copy_model(make_model())), tokenizer(), shape, 5, "again")
    loaded.load(weights)
    trained = short.method._source.composer.state_dict()  # type: ignore[attr-defined]
    assert same(loaded.state_dict(), trained)
    start = Composer(freeze(copy_model(make_model())), tokenizer(), shape, 5, "start")
    start.load(tmp_path / "whole/composer.safetensors")
    assert not same(start.state_dict(), trained), "the run must have trained the composer"


def test_a_method_without_files_gives_none(tmp_path: Path) -> None:
    run = build("grpo", tmp_path, steps=1)
    run.run()
    assert run.artifacts() == {}
