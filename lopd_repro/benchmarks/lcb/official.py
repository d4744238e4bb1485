"""The official repository at work: its prompts, extraction and scores, in the sandbox.

    Official(Package(...)).score(rows, samples, settings) -> {key: Scored, ...}

The official scorer has no limit on memory and files a global time-out like a crash, as [-2] with
error code -5 ('compile error' in its summaries): here it is told by the time it took, and time-outs
of every kind are scored once more, alone, before they count; on a busy machine with a time limit
that is longer by as much as others slow it.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lopd_repro.benchmarks.lcb.grader import DIED, REQUIRED, WRONG, GraderSettings, Verdict
from lopd_repro.benchmarks.repository import Repository
from lopd_repro.errors import UserError
from lopd_repro.files import read_json, write_json, write_text
from lopd_repro.sandbox import Limits, Outcome, run

COMMIT = "28fef95ea8c9f7a547c8329f2cd3d32b92c1fa24"
REPOSITORY = Repository(
    name="livecodebench",
    url="https://github.com/LiveCodeBench/LiveCodeBench.git",
    commit=COMMIT,
    digest="8798477f7e8dfedca4385af1872a4a9a6f67a23a964e411c02368632eeed861d",
    parts=("lcb_runner",),
    suffixes=(".py", ".json"),
    option="benchmark.repository",
    variable="LOPD_LIVECODEBENCH_REPO",
)
_TIME, _ERROR = -3, -4
_EMPTY = "Error during testing: "
_REMEDY = (
    "make it with: python -m venv .environments/livecodebench && "
    ".environments/livecodebench/bin/pip install -r eval/livecodebench/requirements.txt"
)


@dataclass(frozen=True)
class OfficialSample:
    """A model's text for a question, or a program as it is (`is_program`)."""

    key: str
    question_id: str
    text: str
    is_program: bool = False
    timeout_seconds: float | None = None


@dataclass(frozen=True)
class Scored:
    """The official verdict, and the program that the official extraction made of the text."""

    verdict: Verdict
    program: str


@dataclass(frozen=True)
class Package:
    """launcher: eval/livecodebench/launch.py. wall_seconds: of one run of it, beyond which
    samples are scored one by one."""

    python: Path
    repository: Path
    launcher: Path
    wall_seconds: float = 86400.0

    def prompts(self, rows: Sequence[dict[str, Any]]) -> dict[str, list[dict[str, str]]]:
        """Official messages by question_id."""
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch)
            write_text(folder / "rows.jsonl", _lines(rows))
            job = {"do": "prompts", "rows": str(folder / "rows.jsonl")}
            outcome = self._launch(folder, job, GraderSettings())
            if not (folder / "out.json").is_file():
                raise UserError(f"livecodebench: the official prompts failed: {_said(outcome)}")
            made: dict[str, list[dict[str, str]]] = read_json(folder / "out.json")
            return made

    def score(
        self,
        rows: Sequence[dict[str, Any]],
        samples: Sequence[OfficialSample],
        settings: GraderSettings,
    ) -> dict[str, Scored]:
        """Verdicts by key. `rows` are official rows, or `{question_id, input_output}`."""
        found = self._scored(rows, samples, settings)
        for sample in samples:
            if sample.key not in found:
                found[sample.key] = self._alone(rows, sample, settings)
        if settings.rerun_timeouts:
            for sample in samples:
                if found[sample.key].verdict.timed_out:
                    again = self._alone(rows, sample, settings)
                    found[sample.key] = replace(again, verdict=replace(again.verdict, reruns=1))
        return found

    def _alone(
        self, rows: Sequence[dict[str, Any]], sample: OfficialSample, settings: GraderSettings
    ) -> Scored:
        own = [row for row in rows if str(row["question_id"]) == sample.question_id]
        found = self._scored(own, [sample], replace(settings, workers=1), stretch=True)
        if sample.key in found:
            return found[sample.key]
        died = Verdict((WRONG,), DIED, "ended without a verdict", "died", False, 0.0)
        return Scored(died, sample.text if sample.is_program else "")

    def _scored(
        self,
        rows: Sequence[dict[str, Any]],
        samples: Sequence[OfficialSample],
        settings: GraderSettings,
        stretch: bool = False,
    ) -> dict[str, Scored]:
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch)
            write_text(folder / "rows.jsonl", _lines(rows))
            write_json(folder / "samples.json", [_given(sample) for sample in samples])
            job = {
                "do": "score",
                "rows": str(folder / "rows.jsonl"),
                "samples": str(folder / "samples.json"),
                "timeout": _whole(settings.timeout_seconds),
                "workers": settings.workers,
                "stretch": stretch,
            }
            outcome = self._launch(folder, job, settings)
            path = folder / "out.json"
            if not path.is_file():
                raise UserError(f"livecodebench: the official scorer failed: {_said(outcome)}")
            return {row["key"]: _scored(row) for row in _complete_lines(path)}

    def _launch(self, folder: Path, job: dict[str, Any], settings: GraderSettings) -> Outcome:
        job |= {"repository": str(self.repository), "out": str(folder / "out.json")}
        write_json(folder / "job.json", job)
        limits = Limits(
            memory_mb=settings.memory_mb,
            cpu_seconds=self.wall_seconds,
            wall_seconds=self.wall_seconds,
            processes=256,
            open_files=1024,
            file_mb=1024,
            output_kb=1024,
        )
        command = [str(self.python), "-B", str(self.launcher), str(folder / "job.json")]
        return run(
            command,
            limits,
            readable=[self.repository, self.launcher.parent],
            writable=[folder],
            require=REQUIRED,
        )


def find_python(named: str, root: Path) -> Path:
    """The environment's interpreter; `UserError` says how to make it where it is missing."""
    made = root / ".environments" / "livecodebench" / "bin" / "python"
    chosen = named or os.environ.get("LOPD_LIVECODEBENCH_PYTHON", "")
    python = root / chosen if chosen else made
    if not python.exists():
        raise UserError(f"livecodebench: no environment at {python.parent.parent}; {_REMEDY}")
    return python.absolute()


def _given(sample: OfficialSample) -> dict[str, Any]:
    given: dict[str, Any] = {"key": sample.key, "question_id": sample.question_id}
    given["program" if sample.is_program else "text"] = sample.text
    if sample.timeout_seconds is not None:
        given["timeout"] = _whole(sample.timeout_seconds)
    return given


def _whole(seconds: float) -> int:
    """Seconds as the official alarm takes them."""
    if seconds != int(seconds) or seconds < 1:
        raise UserError(
            f"benchmark.grader.timeout_seconds: found {seconds}, allowed with the official "
            "scorer: whole seconds"
        )
    return int(seconds)


def _scored(row: dict[str, Any]) -> Scored:
    codes = tuple(row["codes"])
    error = row["metadata"].get("error_code")
    ended = "reported"
    if error == DIED:
        ended = "global_timeout" if row["seconds"] >= row["limit"] else "died"
    # A time-out before the first test is filed as an error with an empty text.
    loading = (
        error == _ERROR
        and row["metadata"].get("error_message") == _EMPTY
        and row["seconds"] >= row["timeout"]
    )
    late = ended == "global_timeout" or error == _TIME or loading
    detail = str(row["metadata"].get("error", ""))[:300]
    return Scored(Verdict(codes, error, detail, ended, late, row["seconds"]), row["program"])


def _complete_lines(path: Path) -> list[dict[str, Any]]:
    whole = path.read_text().rpartition("\n")[0]
    return [json.loads(line) for line in whole.splitlines()]


def _lines(rows: Sequence[dict[str, Any]]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def _said(outcome: Outcome) -> str:
    lines = outcome.stderr.decode(errors="replace").strip().splitlines()
    return f"{outcome.verdict}, status {outcome.code}: {lines[-1] if lines else 'no message'}"
