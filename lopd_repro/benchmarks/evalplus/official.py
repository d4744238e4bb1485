"""The official package at work in its environment: prompts of tasks, and verdicts on answers.

Each call is one small fresh process in the sandbox, without network; see eval/evalplus/launch.py
for what it does there.
"""

from __future__ import annotations

import json
import marshal
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from lopd_repro.benchmarks.evalplus.environment import Environment
from lopd_repro.errors import UserError
from lopd_repro.sandbox import Limits, Outcome, run

Problem = dict[str, Any]
Messages = list[dict[str, str]]

_OFFICIAL_MB = 4096
"""The address space that the package allows each program, which limits around it must allow too."""


@dataclass(frozen=True)
class Part:
    """One dataset to be scored.

    form: `humaneval` or `mbpp`, the package's word for the form of the data.
    problems: rows in the official form, in their order.
    entry_points: what the sanitizer looks for, where it is not the problem's own; prefix, suffix:
    code by task id around the sanitized program when it is scored.
    rerun: whether programs that ran out of time or died are judged once more, alone, with limits
    that are longer by as much as others slow the machine.
    The other fields are the package's own, with its defaults.
    """

    name: str
    form: str
    problems: Sequence[Problem]
    entry_points: Mapping[str, str] = field(default_factory=dict)
    prefix: Mapping[str, str] = field(default_factory=dict)
    suffix: Mapping[str, str] = field(default_factory=dict)
    base_only: bool = False
    min_time_limit: float = 1.0
    gt_time_limit_factor: float = 4.0
    test_details: bool = False
    rerun: bool = True

    def entry_point(self, problem: Problem) -> str:
        """The function that an answer must define."""
        return self.entry_points.get(problem["task_id"], problem["entry_point"])

    def whole(self, task: str, program: str) -> str:
        """What is run for a program."""
        return self.prefix.get(task, "") + program + self.suffix.get(task, "")


@dataclass(frozen=True)
class Verdict:
    """The official word on one answer.

    program: what the sanitizer made of the answer. refused: why it made nothing, "" if it did.
    base, plus: `pass`, `fail` or `timeout` (the official word for a worker that left no status);
    plus is "" where it was not run. details: one character per input, up to the first failure.
    late: it ran into a time limit. died: its process left no status before any limit.
    alone: it was judged a second time, alone, and this is what came out; first: what came before.
    """

    program: str
    refused: str
    base: str
    plus: str
    base_details: str
    plus_details: str
    late: bool
    died: bool
    alone: bool
    first: tuple[str, ...]

    @property
    def passed(self) -> bool:
        """Whether base and, where it was run, plus tests pass."""
        return self.base == "pass" and self.plus in ("pass", "")


@dataclass(frozen=True)
class Package:
    """The installed package and how it is run.

    launcher: eval/evalplus/launch.py. parallel: workers of its pool. memory_mb: for all processes
    together; the package itself allows each program 4 GiB.
    """

    environment: Environment
    launcher: Path
    parallel: int = 2
    memory_mb: int = 10240
    wall_seconds: float = 86400.0

    def __post_init__(self) -> None:
        if self.memory_mb < _OFFICIAL_MB + 1024:
            raise UserError(
                f"benchmark.memory_mb: found {self.memory_mb}, allowed: {_OFFICIAL_MB + 1024} or "
                "more, since the package gives every program 4 GiB"
            )

    def prompts(
        self, parts: Sequence[Part]
    ) -> tuple[dict[str, dict[str, Messages]], dict[str, dict[str, list[Any]]]]:
        """By part's name and task id: the official messages, and the converted inputs.

        Inputs are [base, plus], lists of arguments with the types that the package gives them.
        """
        with self._launched("prompts", parts, {}) as (folder, _):
            messages = {p.name: _read(folder / p.name / "prompts.json") for p in parts}
            inputs = {
                p.name: marshal.loads((folder / p.name / "inputs.marshal").read_bytes())
                for p in parts
            }
        return messages, inputs

    def sanitize(self, texts: Sequence[tuple[str, str]]) -> list[str]:
        """What the sanitizer makes of (text, entry point) pairs; "" is no entry point."""
        names = {f"text/{i}": name for i, (_, name) in enumerate(texts)}
        problems = [{"task_id": task, "entry_point": name} for task, name in names.items()]
        answers = [(f"text/{i}", text) for i, (text, _) in enumerate(texts)]
        part = Part("texts", "humaneval", problems)
        with self._launched("sanitize", [part], {"texts": answers}) as (folder, _):
            return [program for program, _ in _read(folder / "texts" / "programs.json")]

    def score(
        self, parts: Sequence[Part], answers: Mapping[str, Sequence[tuple[str, str]]]
    ) -> dict[str, list[Verdict]]:
        """Verdicts by part's name on (task id, text) pairs; every task needs at least one.

        An empty entry point leaves a text as it is: it is the program.
        """
        for part in parts:
            missing = {p["task_id"] for p in part.problems} - {t for t, _ in answers[part.name]}
            if missing:
                raise UserError(f"evalplus: no answer for {part.name} {min(missing)}")
        verdicts: dict[str, list[Verdict]] = {}
        with self._launched("score", parts, answers) as (folder, _):
            for part in parts:
                scores = _read(folder / part.name / "scores.json")
                verdicts[part.name] = [
                    _verdict(answer, scores["verdicts"][answer["verdict"]])
                    for answer in scores["answers"]
                ]
        return verdicts

    @contextmanager
    def _launched(
        self,
        step: str,
        parts: Sequence[Part],
        answers: Mapping[str, Sequence[tuple[str, str]]],
    ) -> Iterator[tuple[Path, Outcome]]:
        """Run a step; yields its folder, which is fresh and removed afterwards."""
        given = Path(tempfile.mkdtemp(prefix="lopd-evalplus-"))
        work = Path(tempfile.mkdtemp(prefix="lopd-evalplus-"))
        try:
            jobs = [_write(part, given, answers.get(part.name, ())) for part in parts]
            job = {"step": step, "folder": str(work), "parts": jobs, "parallel": self.parallel}
            (given / "job.json").write_text(json.dumps(job))
            given.chmod(0o755)
            outcome = run(
                [str(self.environment.python), str(self.launcher), str(given / "job.json")],
                Limits(
                    memory_mb=self.memory_mb,
                    cpu_seconds=int(self.wall_seconds),
                    wall_seconds=self.wall_seconds,
                    processes=64 + 8 * self.parallel,
                    open_files=1024,
                    file_mb=4096,
                    output_kb=1024,
                ),
                readable=[self.environment.root, self.launcher.parent, given],
                writable=[work],
                environment={"PYTHONDONTWRITEBYTECODE": "1"},
            )
            if outcome.verdict != "ok" or outcome.code != 0:
                said = outcome.stderr.decode(errors="replace").strip().splitlines()
                raise UserError(
                    f"evalplus: {step} stopped ({outcome.verdict}, status {outcome.code}): "
                    f"{said[-1] if said else 'no message'}"
                )
            yield work, outcome
        finally:
            shutil.rmtree(given, ignore_errors=True)
            shutil.rmtree(work, ignore_errors=True)


def _write(part: Part, folder: Path, answers: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """A part's files, and its entry in the job."""
    data, texts = folder / f"{part.name}.jsonl", folder / f"{part.name}.answers.jsonl"
    data.write_text("".join(json.dumps(problem) + "\n" for problem in part.problems))
    wanted = {p["task_id"]: part.entry_point(p) for p in part.problems}
    rows = [{"task_id": t, "text": text, "entry_point": wanted[t]} for t, text in answers]
    texts.write_text("".join(json.dumps(row) + "\n" for row in rows))
    names = ("name", "base_only", "min_time_limit", "gt_time_limit_factor", "test_details", "rerun")
    values = asdict(part)
    return {
        **{name: values[name] for name in names},
        "dataset": part.form,
        "data": str(data),
        "answers": str(texts),
        "prefix": dict(part.prefix),
        "suffix": dict(part.suffix),
    }


def _verdict(answer: dict[str, Any], found: dict[str, Any]) -> Verdict:
    base, plus = found["base"], found["plus"] or {"status": "", "details": "", "late": False}
    return Verdict(
        program=answer["program"],
        refused=answer["refused"],
        base=base["status"],
        plus=plus["status"],
        base_details=base["details"],
        plus_details=plus["details"],
        late=found["late"] or any(_hung(run) for run in (base, plus)),
        died=any(run["status"] == "timeout" and not _hung(run) for run in (base, plus)),
        alone=found["alone"],
        first=tuple(found["first"]),
    )


def _hung(run: dict[str, Any]) -> bool:
    """Whether a worker without a status was ended at its limit, which is above 2 s, or left."""
    return bool(run["status"] == "timeout" and run["seconds"] > 2.0)


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise UserError(f"evalplus: {path.name} cannot be read ({error})") from None
