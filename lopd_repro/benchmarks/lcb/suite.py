"""LiveCodeBench code generation as a benchmark: ask, extract, grade, one row per task and repeat.

Suite `mini` is this project's own small tasks in the official form, graded by our grader under the
official rules. Suite `official` is the official problems with the official repository's prompts,
extraction and scorer. Beside every official verdict stands a strict reading of the same reply; it
changes no score.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from lopd_repro.benchmarks.answers import Answer, Asking, Key, Messages, ask_all
from lopd_repro.benchmarks.client import Sampling
from lopd_repro.benchmarks.journal import Journal
from lopd_repro.benchmarks.lcb import extract, official_data
from lopd_repro.benchmarks.lcb.grader import GraderSettings, Sample, Verdict, grade
from lopd_repro.benchmarks.lcb.official import (
    COMMIT,
    REPOSITORY,
    OfficialSample,
    Package,
    find_python,
)
from lopd_repro.benchmarks.lcb.questions import WINDOWS, Question, read_questions
from lopd_repro.benchmarks.lcb.strict import strict_verdicts
from lopd_repro.errors import UserError
from lopd_repro.files import digest_json
from lopd_repro.serving.settings import Endpoint
from lopd_repro.stats.passk import counted, mean_pass_at_k

SUITES = ("mini", "official")
NO_PROGRAM = "no program"
_CHUNK, _OFFICIAL_CHUNK = 256, 24  # official tests can take megabytes a problem


@dataclass(frozen=True)
class Settings:
    """How LiveCodeBench is run.

    windows: which of v5 and v6. limit: first problems of each window only, 0 for all; such a run
    is marked `partial`. repeats: samples per problem. system, user: prompt of the mini-suite, with
    slots `{task}` and `{starter}`; the official suite has its own prompts. overflow: a prompt
    beyond the model's context is an error (`refuse`) or a failed task (`zero`).
    strict: make the strict reading too. data_folder, repository, python: of the official suite
    (see docs/livecodebench.md).
    """

    suite: str = "official"
    windows: tuple[str, ...] = tuple(WINDOWS)
    repeats: int = 1
    seed: int = 0
    limit: int = 0
    system: str = ""
    user: str = "{task}"
    sampling: Sampling = field(default_factory=Sampling)
    in_flight: int = 64
    overflow: str = "refuse"
    grader: GraderSettings = field(default_factory=GraderSettings)
    strict: bool = True
    data_folder: str = ""
    repository: str = ""
    python: str = ""

    def __post_init__(self) -> None:
        if self.suite not in SUITES:
            raise UserError(f"benchmark.suite: found {self.suite!r}, allowed: {', '.join(SUITES)}")
        unknown = [name for name in self.windows if name not in WINDOWS]
        if unknown or len(set(self.windows)) != len(self.windows) or not self.windows:
            raise UserError(
                f"benchmark.windows: found {list(self.windows)!r}, allowed: {', '.join(WINDOWS)}"
            )
        if self.limit < 0:
            raise UserError(f"benchmark.limit: found {self.limit}, allowed: 0 or more")
        try:
            self.user.format(task="", starter="")
        except (KeyError, IndexError, ValueError) as error:
            raise UserError(f"benchmark.user: {error!r}, allowed slots: task, starter") from None


@dataclass(frozen=True)
class _Graded:
    verdict: Verdict
    strict: str


class LiveCodeBench:
    """The benchmark of one group of settings; `folder` holds launch.py and the mini-suite.

    `report`, after a run, is the rows' `summary`.
    """

    name = "livecodebench"

    def __init__(self, settings: Settings, folder: Path) -> None:
        self.settings = settings
        self.folder = folder.resolve()
        root = self.folder.parent.parent
        self.package: Package | None = None
        self.report: dict[str, Any] = {}
        if settings.suite == "official":
            repository = REPOSITORY.locate(settings.repository, self.folder / "official")
            python = find_python(settings.python, root)
            self.package = Package(python, repository, self.folder / "launch.py")
        everything: dict[str, list[Question]] = {}
        for window in settings.windows:
            everything[window] = self._load(window, root)
        limit = settings.limit or None
        self.questions = {q.task_id: q for qs in everything.values() for q in qs[:limit]}
        self._digests = {name: digest_json(q.row) for name, q in self.questions.items()}
        counts = {w: len(qs[:limit]) for w, qs in everything.items()}
        if len(self.questions) != sum(counts.values()):
            raise UserError("livecodebench: the windows share a question_id")
        shown = ", ".join(f"{w} {n}" for w, n in counts.items())
        commit = COMMIT[:7]
        if self.package is None:
            self.data = f"mini-suite (LiveCodeBench form; {shown})"
            self.scorer = f"lopd-repro grader by the rules of LiveCodeBench {commit}"
        else:
            revision = official_data.REVISION[:7]
            self.data = f"LiveCodeBench code_generation_lite {revision} ({shown})"
            self.scorer = f"LiveCodeBench {commit}"
        self.partial = any(counts[w] < len(qs) for w, qs in everything.items())
        if self.partial:
            self.data = f"partial: {self.data}"

    def expected(self) -> list[tuple[str, int]]:
        """Every problem once a repeat, repeat by repeat."""
        return [(name, r) for r in range(self.settings.repeats) for name in self.questions]

    def run(self, endpoint: Endpoint, checkpoint: Path, state: Path) -> list[dict[str, Any]]:
        """Ask and grade; what `state` holds is neither asked nor graded again."""
        s = self.settings
        asking = Asking(s.sampling, s.repeats, s.seed, s.in_flight, s.overflow)
        answers = ask_all(self.name, endpoint, self.messages(), asking, state / "answers.jsonl")
        graded = self.grade(answers, state / "verdicts.jsonl")
        rows = [self._row(key, answers[key], graded[key]) for key in self.expected()]
        self.report = summary(rows)
        return rows

    def messages(self) -> dict[str, Messages]:
        """What each problem's model is asked."""
        questions = self.questions.values()
        if self.package is not None:
            nothing = {"public_test_cases": "[]", "private_test_cases": "[]"}
            official = self.package.prompts([question.row | nothing for question in questions])
            return {question.task_id: official[question.task_id] for question in questions}
        made: dict[str, Messages] = {}
        for question in questions:
            user = self.settings.user.format(task=question.content, starter=question.starter_code)
            system = [{"role": "system", "content": self.settings.system}]
            made[question.task_id] = [
                *(system if self.settings.system else []),
                {"role": "user", "content": user},
            ]
        return made

    def grade(self, answers: dict[Key, Answer], path: Path) -> dict[Key, _Graded]:
        """Verdicts of all replies. Equal replies to a problem are graded once."""
        journal = Journal(path)
        marks = {key: self._mark(key[0], answer.text) for key, answer in answers.items()}
        distinct = {marks[key]: (key[0], answer.text) for key, answer in answers.items()}
        waiting = [
            (mark, *what) for mark, what in distinct.items() if (mark, 0) not in journal.rows
        ]
        for chunk in _chunks(waiting, _OFFICIAL_CHUNK if self.package else _CHUNK):
            verdicts = self._faithful(chunk)
            strict = self._strict(chunk)
            for mark, _, _ in chunk:
                kept = {**asdict(verdicts[mark]), "strict": strict.get(mark, "")}
                journal.add({"task_id": mark, "repeat": 0, **kept})
        return {key: _graded(journal.rows[mark, 0]) for key, mark in marks.items()}

    def _faithful(self, chunk: Sequence[tuple[str, str, str]]) -> dict[str, Verdict]:
        grader = self.settings.grader
        if self.package is None:
            samples = [
                Sample(self.questions[task].problem, extract.official(text) or "")
                for _, task, text in chunk
            ]
            return dict(zip((mark for mark, _, _ in chunk), grade(samples, grader), strict=True))
        rows = {task: self.questions[task].row for _, task, _ in chunk}
        given = [OfficialSample(mark, task, text) for mark, task, text in chunk]
        scored = self.package.score(list(rows.values()), given, grader)
        return {mark: scored[mark].verdict for mark, _, _ in chunk}

    def _strict(self, chunk: Sequence[tuple[str, str, str]]) -> dict[str, str]:
        if not self.settings.strict:
            return {}
        programs = [(mark, task, extract.strict(text)) for mark, task, text in chunk]
        found = {mark: NO_PROGRAM for mark, _, program in programs if not program.strip()}
        left = [one for one in programs if one[0] not in found]
        samples = [Sample(self.questions[task].problem, program) for _, task, program in left]
        verdicts = strict_verdicts(samples, self.settings.grader) if samples else []
        return found | dict(zip((mark for mark, _, _ in left), verdicts, strict=True))

    def _mark(self, task_id: str, text: str) -> str:
        # What does not change a verdict may change between two attempts.
        grader = asdict(self.settings.grader) | {"workers": 0, "batch": 0}
        settings = [self.scorer, self.settings.strict, grader]
        return digest_json([self._digests[task_id], text, settings])[:24]

    def _row(self, key: Key, answer: Answer, graded: _Graded) -> dict[str, Any]:
        verdict = graded.verdict
        status = "refused" if answer.overflow else "timeout" if verdict.timed_out else "ok"
        row: dict[str, Any] = {
            "task_id": key[0],
            "repeat": key[1],
            "category": self.questions[key[0]].window,
            "score": int(verdict.passed and not answer.overflow),
            "status": status,
            "verdict": _word(verdict),
            "codes": list(verdict.codes),
            "error_code": verdict.error_code,
            "reruns": verdict.reruns,
            "tokens": answer.tokens,
            "prompt_tokens": answer.prompt_tokens,
        }
        if self.settings.strict:
            right = graded.strict == "passed" and not answer.overflow
            row |= {"strict": graded.strict, "strict_score": int(right)}
            row["strict_differs"] = bool(row["score"]) != right
        return row

    def _load(self, window: str, root: Path) -> list[Question]:
        if self.settings.suite == "mini":
            return read_questions(self.folder / "data" / "mini" / f"{window}.jsonl", window)
        named = self.settings.data_folder
        return official_data.load(root / named if named else self.folder / "official-data", window)


def summary(rows: Sequence[dict[str, Any]], k: int = 1) -> dict[str, dict[str, float]]:
    """By category, and `all` (so weighted by tasks): pass@k in percent by the unbiased estimator,
    problems, time-outs, and how many verdicts the strict reading changes.

    ValueError for k above the number of repeats.
    """
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault(row["category"], []).append(row)
    groups["all"] = list(rows)
    found = {}
    for name, members in groups.items():
        counts = counted((row["task_id"], row["score"] == 1) for row in members)
        found[name] = {
            f"pass@{k}": 100 * mean_pass_at_k(counts, k),
            "problems": len(counts),
            "timeouts": sum(row["status"] == "timeout" for row in members),
            "strict_differs": sum(row.get("strict_differs", False) for row in members),
        }
    return found


def _word(verdict: Verdict) -> str:
    """The verdict in one word: passed, wrong, timeout, error or died."""
    if verdict.passed:
        return "passed"
    if verdict.timed_out or verdict.error_code == -3:
        return "timeout"
    return {-2: "wrong", -4: "error", -5: "died"}.get(verdict.error_code or 0, "error")


def _graded(row: dict[str, Any]) -> _Graded:
    fields = {name: row[name] for name in Verdict.__dataclass_fields__}
    return _Graded(Verdict(**{**fields, "codes": tuple(row["codes"])}), row["strict"])


def _chunks(
    waiting: Sequence[tuple[str, str, str]], size: int
) -> Iterator[Sequence[tuple[str, str, str]]]:
    for start in range(0, len(waiting), size):
        yield waiting[start : start + size]
