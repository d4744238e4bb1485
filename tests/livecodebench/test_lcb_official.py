"""The official suite's parts: pinned data and repository, and, where it is there, its scorer."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from lopd_repro.benchmarks.lcb import mini, official_data
from lopd_repro.benchmarks.lcb.grader import GraderSettings, Sample, grade
from lopd_repro.benchmarks.lcb.official import REPOSITORY, OfficialSample, Package, find_python
from lopd_repro.benchmarks.lcb.official_data import FILES, SourceFile
from lopd_repro.benchmarks.lcb.questions import WINDOWS, parse_question
from lopd_repro.benchmarks.lcb.suite import LiveCodeBench, Settings
from lopd_repro.data.tiny_coding import solution
from lopd_repro.errors import UserError

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "eval" / "livecodebench"


def source_files(folder: Path) -> tuple[SourceFile, ...]:
    """Two small files as the data set has them: some rows inside the windows, some not."""
    tasks = mini.suite_tasks()
    files = []
    for name, window, day in (("a.jsonl", "v5", "2024-07-31"), ("b.jsonl", "v6", "2025-01-31")):
        rows = [mini.official_row(t, window, i) for i, t in enumerate(tasks[window][:3])]
        rows.append({**rows[0], "question_id": "early", "contest_date": f"{day}T23:59:59"})
        data = "".join(json.dumps(row) + "\n" for row in rows).encode()
        (folder / name).write_bytes(data)
        files.append(SourceFile(name, window, 4, len(data), hashlib.sha256(data).hexdigest()))
    return tuple(files)


def test_the_pinned_files_are_the_two_releases() -> None:
    assert sum(file.rows for file in FILES if file.window == "v5") == 880
    assert sum(file.rows for file in FILES) == 1055
    assert (WINDOWS["v5"].count, WINDOWS["v6"].count) == (279, 131)


def test_windows_are_cut_out_and_read_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = source_files(tmp_path)
    said: list[str] = []
    target = tmp_path / "made"
    official_data.prepare(target, str(tmp_path), files, {"v5": 3, "v6": 3}, said.append)
    assert said == ["a.jsonl: 3 problems of window v5", "b.jsonl: 3 problems of window v6"]
    with pytest.raises(UserError, match=r"has 3 problems in window v5 .*, expected 279"):
        official_data.load(target, "v5")
    monkeypatch.setitem(WINDOWS, "v5", replace(WINDOWS["v5"], count=3))
    assert [q.task_id for q in official_data.load(target, "v5")] == [
        task.task_id for task in mini.suite_tasks()["v5"][:3]
    ]
    with (target / "v5.jsonl").open("a") as file:
        file.write("\n")
    with pytest.raises(UserError, match="was changed after it was made"):
        official_data.load(target, "v5")
    manifest = json.loads((target / "manifest.json").read_text())
    (target / "manifest.json").write_text(json.dumps({**manifest, "revision": "main"}))
    with pytest.raises(UserError, match="made from revision 'main'"):
        official_data.load(target, "v5")


@pytest.mark.parametrize("change", ["row", "byte", "count", "missing"])
def test_data_that_is_not_as_pinned_is_refused(tmp_path: Path, change: str) -> None:
    files = source_files(tmp_path)
    path = tmp_path / "a.jsonl"
    counts = {"v5": 3, "v6": 3}
    if change == "row":
        path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))
    elif change == "byte":
        path.write_text(path.read_text().replace("easy", "hard", 1))
    elif change == "count":
        counts["v6"] = 4
    else:
        path.unlink()
    message = {
        "row": "a.jsonl: bytes",
        "byte": "a.jsonl: sha256",
        "count": "has 3 problems in window v6 .*, expected 4",
        "missing": "a.jsonl cannot be read .*fetch.py data",
    }[change]
    with pytest.raises(UserError, match=message):
        official_data.prepare(tmp_path / "made", str(tmp_path), files, counts, lambda _: None)
    assert not (tmp_path / "made").exists()


def test_what_is_missing_is_said_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(REPOSITORY.variable, raising=False)
    with pytest.raises(UserError) as found:
        LiveCodeBench(Settings(repository=str(tmp_path / "none")), FOLDER)
    text = str(found.value)
    assert "\n" not in text
    assert text.startswith(f"benchmark.repository: no official repository at {tmp_path / 'none'}")
    assert f"git clone {REPOSITORY.url}" in text and REPOSITORY.commit in text
    (tmp_path / "lcb_runner").mkdir()
    (tmp_path / "lcb_runner" / "x.py").write_text("")
    with pytest.raises(UserError, match="differs from commit 28fef95"):
        REPOSITORY.check(tmp_path)
    with pytest.raises(UserError, match=r"no environment at .*requirements.txt"):
        find_python(str(tmp_path / "bin" / "python"), ROOT)
    with pytest.raises(UserError, match=r"no data in .*fetch.py data"):
        official_data.load(tmp_path, "v6")


def test_fetching_checks_what_it_gets(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(FOLDER / "fetch.py"), "repository", str(tmp_path / "x"),
         "--source", str(tmp_path)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr.startswith("error: livecodebench: the official repository could not be")
    assert done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_the_official_scorer_takes_whole_seconds(tmp_path: Path) -> None:
    package = Package(Path(sys.executable), tmp_path, FOLDER / "launch.py")
    with pytest.raises(UserError, match=r"found 0\.5, allowed with the official scorer: whole"):
        package.score([], [OfficialSample("k", "q", "")], GraderSettings(timeout_seconds=0.5))


def repository() -> Path | None:
    """The official repository, if this machine has it."""
    named = os.environ.get(REPOSITORY.variable, "")
    folder = Path(named) if named else FOLDER / "official"
    return folder if folder.is_dir() else None


@pytest.mark.skipif(
    repository() is None, reason=f"no official LiveCodeBench; name it in {REPOSITORY.variable}"
)
def test_official_prompts_and_verdicts() -> None:
    found = repository()
    assert found is not None
    package = Package(
        Path(sys.executable), REPOSITORY.locate(str(found), found), FOLDER / "launch.py"
    )
    tasks = mini.suite_tasks()["v5"][:4]
    rows = [mini.official_row(task, "v5", index) for index, task in enumerate(tasks)]
    prompts = package.prompts(rows)
    assert all(task.statement in prompts[task.task_id][1]["content"] for task in tasks)
    replies = [f"```python\n{solution(task)}\n```" for task in tasks]
    replies[1] += "\n```\n1\n```"
    replies[2] = "```python\nimport os\nos._exit(0)\n```"
    replies[3] = "```python\nwhile True:\n    pass\n```"
    samples = [
        OfficialSample(task.task_id, task.task_id, reply)
        for task, reply in zip(tasks, replies, strict=True)
    ]
    settings = GraderSettings(timeout_seconds=1, memory_mb=1024)
    scored = package.score(rows, samples, settings)
    ours = grade(
        [
            Sample(parse_question(row, "v5").problem, scored[str(row["question_id"])].program)
            for row in rows
        ],
        settings,
    )
    for task, our in zip(tasks, ours, strict=True):
        verdict = scored[task.task_id].verdict
        assert verdict.codes == our.codes, task.task_id
        assert (verdict.error_code, verdict.ended) == (our.error_code, our.ended)
        assert (verdict.timed_out, verdict.reruns) == (our.timed_out, our.reruns)
    assert scored[tasks[1].task_id].program == "1"
