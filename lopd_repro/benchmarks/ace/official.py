"""The official agent tasks through the official code, inside the sandbox.

Every repeat has its own working folder and processes, since the official code keeps its apps in
module globals. What is finished stays in that folder; the official code skips it next time.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from lopd_repro.benchmarks.ace import repository
from lopd_repro.benchmarks.ace.relay import Agent, RelayLog, relay
from lopd_repro.benchmarks.ace.scorer import Unmatched, check_option, score, unchecked_tasks
from lopd_repro.benchmarks.client import Client, Sampling
from lopd_repro.errors import UserError
from lopd_repro.experience.endpoint import ChatEndpoint, EndpointSettings
from lopd_repro.files import digest_json, read_json, write_json, write_text
from lopd_repro.sandbox import Limits, Outcome, run
from lopd_repro.serving.settings import Endpoint

MODEL = "gpt-served"  # as launch.py calls the checkpoint
LANGUAGES = ("zh", "en")
# What the official code fixes; a cell made with other values names them.
_FIXED = ("temperature", "max_tokens", "top_p", "top_k", "strip_think", "max_dialog_turns")
_LIMITS = Limits(
    memory_mb=4096,
    cpu_seconds=3600,
    wall_seconds=24 * 3600,
    processes=128,
    open_files=512,
    file_mb=256,
    output_kb=64 * 1024,
)


@dataclass(frozen=True)
class OfficialSettings:
    """Options of the official suite; the defaults are what the official code does.

    repository: folder with the pinned commit (see `Repository.locate`).
    python: interpreter of the environment made from `requirements.txt`,
    `.environments/acebench/bin/python` if empty.
    user: `served` for the checkpoint itself as
    user simulator, empty where the settings name an endpoint. multi_step_language: language of
    the system prompt in multi-step tasks; the official code passes none on, which makes it
    Chinese. temperature, max_tokens, top_p: of the agent; the official code asks for 0.001,
    1,000 and 1. strip_think: take reasoning out of agent texts, which breaks the official parser
    otherwise. max_dialog_turns: messages per conversation. overflow: a conversation that no
    longer fits the model's context is ended (`end`) or refuses the cell (`refuse`).
    request_seconds: bound on one answer of the checkpoint. task_seconds: bound on a task that is
    run alone because all together ended badly; what exceeds it, or the memory, then scores 0
    with status `timeout` or `error`.
    """

    repository: str = ""
    python: str = ""
    user: str = ""
    multi_step_language: str = "zh"
    temperature: float | None = None
    max_tokens: int | None = None
    top_p: float | None = None
    top_k: int | None = None
    strip_think: bool = False
    max_dialog_turns: int = 40
    threads: int = 8
    overflow: str = "end"
    request_seconds: float = 1800.0
    task_seconds: float = 3600.0

    def __post_init__(self) -> None:
        for name, allowed in (
            ("multi_step_language", LANGUAGES),
            ("overflow", ("end", "refuse")),
            ("user", ("", "served")),
        ):
            if getattr(self, name) not in allowed:
                raise UserError(
                    f"acebench.official.{name}: found {getattr(self, name)!r}, "
                    f"allowed: {', '.join(map(repr, allowed))}"
                )
        for name in ("max_dialog_turns", "threads"):
            if getattr(self, name) < 1:
                raise UserError(f"acebench.official.{name}: allowed: 1 or more")
        for name in ("request_seconds", "task_seconds"):
            if getattr(self, name) <= 0:
                raise UserError(f"acebench.official.{name}: allowed: above 0")


class OfficialSuite:
    """Runs the official code at the pinned commit."""

    name = "acebench"

    def __init__(
        self,
        folder: Path,
        settings: OfficialSettings,
        user: EndpointSettings | None,
        *,
        repeats: int = 1,
        seed: int = 0,
        limit: int = 0,
        unmatched: Unmatched = "unchecked",
        only: Collection[str] = (),
    ) -> None:
        """`only` names the tasks to run, all by default; `limit` is per category."""
        check_option(unmatched)
        if repeats < 1 or limit < 0:
            raise UserError("acebench: allowed: repeats 1 or more, limit 0 or more")
        if user is None and not settings.user:
            raise UserError(
                "acebench.user: the official multi-turn tasks need a user simulator: name an "
                "OpenAI-compatible endpoint (url, model), or set acebench.official.user to served"
            )
        self.settings, self._user = settings, user
        self._repeats, self._seed, self._unmatched = repeats, seed, unmatched
        self._launcher = folder / "launch.py"
        self._python = _interpreter(settings.python, folder)
        self._repository = repository.REPOSITORY.locate(settings.repository, folder / "official")
        self._tasks, self._answers = _read_data(self._repository, limit, only)
        self.unchecked = unchecked_tasks(
            self._answers, {name: task["involved_classes"] for name, task in self._tasks.items()}
        )
        commit = repository.REPOSITORY.commit[:7]
        self.partial = len(self._tasks) < sum(repository.COUNTS.values())
        part = f"partial: {len(self._tasks)} tasks of " if self.partial else ""
        self.data = (
            f"{part}ACEBench agent, English, {commit}, multi-step prompt in "
            f"{settings.multi_step_language}, user: {_described(user) if user else 'served model'}"
        )
        changed = "".join(
            f", {name} {getattr(settings, name)}"
            for name in _FIXED
            if getattr(settings, name) != getattr(OfficialSettings, name)
        )
        touched = "count as wrong" if unmatched == "wrong" else "are in part unchecked"
        self.scorer = (
            f"ACEBench agent_eval {commit}{changed}; {len(self.unchecked)} ground truths that "
            f"name a class wrongly {touched}"
        )
        # What does not change a result may change between two attempts.
        free = ("repository", "python", "threads", "task_seconds", "request_seconds")
        kept = {name: value for name, value in asdict(settings).items() if name not in free}
        person = asdict(user) if user else None
        self._kept = [kept, person, seed, list(self._tasks), repository.REPOSITORY.digest]

    def expected(self) -> list[tuple[str, int]]:
        """(task_id, repeat) of every row, in order."""
        return [(name, repeat) for repeat in range(self._repeats) for name in self._tasks]

    def run(self, endpoint: Endpoint, checkpoint: Path, state: Path) -> list[dict[str, Any]]:
        """Rows in the order of `expected`; what `state` holds is not asked again."""
        base = state / f"official-{digest_json(self._kept)[:16]}"
        rows = []
        for repeat in range(self._repeats):
            rows += self._repeat(endpoint, repeat, base / f"repeat{repeat}")
        return rows

    def _repeat(self, endpoint: Endpoint, repeat: int, work: Path) -> list[dict[str, Any]]:
        work.mkdir(parents=True, exist_ok=True)
        killed_file = work / "killed.json"
        killed: dict[str, str] = read_json(killed_file) if killed_file.exists() else {}
        finished = _repair(work)
        open_tasks = [name for name in self._tasks if name not in {*finished, *killed}]
        if open_tasks:
            outcome, log = self._generate(endpoint, repeat, work, open_tasks)
            left = [name for name in open_tasks if name not in _repair(work)]
            for name in left if not log.failures else ():
                outcome, log = self._generate(endpoint, repeat, work, [name], alone=True)
                if name in _repair(work):
                    continue
                if log.failures or outcome.verdict not in ("timeout", "memory"):
                    break
                killed[name] = outcome.verdict
                write_json(killed_file, killed)
            finished = _repair(work)
            missing = [name for name in self._tasks if name not in {*finished, *killed}]
            if missing:
                raise UserError(_unfinished(missing, len(self._tasks), log, outcome, work))
        return self._rows(endpoint, repeat, work, killed)

    def _generate(
        self,
        endpoint: Endpoint,
        repeat: int,
        work: Path,
        names: Sequence[str],
        alone: bool = False,
    ) -> tuple[Outcome, RelayLog]:
        s = self.settings
        sampling = Sampling(timeout_seconds=s.request_seconds)
        agent = Agent(
            Client(endpoint.url, endpoint.model, sampling),
            endpoint.model,
            s.temperature,
            s.max_tokens,
            s.top_p,
            s.top_k,
            f"{self._seed}/{repeat}",
            s.strip_think,
            s.overflow,
        )
        user = ChatEndpoint(self._user_settings(endpoint))
        limits = _LIMITS
        if alone:
            limits = Limits(**{**asdict(_LIMITS), "wall_seconds": s.task_seconds})
        self._write_data(work, names)
        with relay(agent, user) as (url, log):
            job = {
                "do": "generate",
                "agent_url": f"{url}/agent/v1",
                "user_url": f"{url}/user/v1",
                "threads": s.threads,
                "alone": alone,
                "max_dialog_turns": s.max_dialog_turns,
                "multi_step_language": s.multi_step_language,
            }
            outcome = self._launch(job, work, limits, url)
        return outcome, log

    def _rows(
        self, endpoint: Endpoint, repeat: int, work: Path, killed: dict[str, str]
    ) -> list[dict[str, Any]]:
        scored = [name for name in self._tasks if name not in killed]
        self._write_data(work, scored)
        limits = Limits(**{**asdict(_LIMITS), "wall_seconds": 600.0})
        outcome = self._launch({"do": "score"}, work, limits, None)
        if outcome.verdict != "ok":
            raise UserError(
                f"acebench: the official scorer ended with {outcome.verdict}, see {work}/score.log"
            )
        official = {row["id"]: row for row in read_json(work / "scores.json")["tasks"]}
        results = _repair(work)
        counts = {row["id"]: row for row in _lines(work / "counts.jsonl")}
        user = self._user_settings(endpoint)
        rows = []
        for name, task in self._tasks.items():
            category = "multi_turn" if "multi_turn" in name else "multi_step"
            row: dict[str, Any] = {
                "task_id": name,
                "repeat": repeat,
                "category": category,
                "unchecked": name in self.unchecked,
                "user": "" if category == "multi_step" else _described(user),
            }
            if name in killed:
                status = "timeout" if killed[name] == "timeout" else "error"
                rows.append(row | {"score": 0.0, "process": 0.0, "status": status})
                continue
            result = results[name]
            ours = score(result["result"], result["process"], self._answers[name])
            theirs = official[name]
            if [ours.end_to_end, round(ours.process, 3)] != [
                theirs["end_to_end"],
                theirs["process"],
            ]:
                raise UserError(
                    f"acebench: {task['id']} has official scores {theirs['end_to_end']} and "
                    f"{theirs['process']}, this project's are {ours.end_to_end} and {ours.process}"
                )
            verdict = score(
                result["result"], result["process"], self._answers[name], self._unmatched
            )
            count = counts.get(name, {})
            rows.append(
                row
                | {
                    "score": verdict.end_to_end,
                    "process": verdict.process,
                    "status": "ok",
                    "error_type": verdict.error_type,
                    "harness_error": count.get("harness_error", ""),
                    "steps": count.get("steps", 0),
                    "calls": len(result["process"]),
                }
            )
        return rows

    def _launch(
        self, job: dict[str, Any], work: Path, limits: Limits, endpoint: str | None
    ) -> Outcome:
        job_file = work / "job.json"
        where = {"repository": str(self._repository), "work": str(work.resolve())}
        write_json(job_file, {**job, **where})
        outcome = run(
            [str(self._python), str(self._launcher.resolve()), str(job_file.resolve())],
            limits,
            scratch=work,
            readable=[self._repository, self._launcher.resolve()],
            environment={
                "PYTHONDONTWRITEBYTECODE": "1",
                "PYTHONUTF8": "1",
                "TQDM_DISABLE": "1",
            },
            endpoint=endpoint,
            require=("network",),
        )
        write_text(
            work / f"{job['do']}.log",
            (outcome.stdout + b"\n" + outcome.stderr).decode(errors="replace"),
        )
        write_json(work / f"{job['do']}.sandbox.json", {"isolation": outcome.isolation})
        return outcome

    def _write_data(self, work: Path, names: Sequence[str]) -> None:
        for path in repository.data_files():
            rows = [
                json.dumps(row, ensure_ascii=False)
                for name, row in (self._answers if "possible" in path else self._tasks).items()
                if name in names and name.startswith(_prefix(path))
            ]
            write_text(work / path, "".join(row + "\n" for row in rows))
        for category in repository.COUNTS:  # the official code sorts a file that may not exist yet
            file = _result_file(work, category)
            if not file.exists():
                write_text(file, "")

    def _user_settings(self, endpoint: Endpoint) -> EndpointSettings:
        if self._user is not None:
            return self._user
        return EndpointSettings(endpoint.url, endpoint.model, temperature=0.001, max_tokens=1000)


def _described(user: EndpointSettings) -> str:
    return f"{user.model} at temperature {user.temperature:g}"


def _interpreter(named: str, folder: Path) -> Path:
    """The named interpreter, or that of the environment which the workflow's rule makes."""
    made = folder.resolve().parent.parent / ".environments" / "acebench" / "bin" / "python"
    chosen = Path(named) if named else made
    if not chosen.is_file():
        raise UserError(
            f"acebench.official.python: {chosen} is not there; make it with: snakemake "
            ".environments/acebench/installed, or: python -m venv DIR && DIR/bin/pip install -r "
            f"{folder / 'requirements.txt'}, and name DIR/bin/python"
        )
    return chosen.absolute()


def _read_data(
    folder: Path, limit: int, only: Collection[str]
) -> tuple[dict[str, dict[str, Any]], dict[str, dict[str, Any]]]:
    read: dict[str, dict[str, dict[str, Any]]] = {}
    for path in repository.data_files():
        rows = _lines(folder / path)
        wanted = repository.COUNTS[_prefix(path).removeprefix("agent_")]
        if len(rows) != wanted:
            raise UserError(f"{folder / path}: found {len(rows)} tasks, expected {wanted}")
        kind = "answers" if "possible" in path else "tasks"
        chosen = [row for row in rows[: limit or None] if not only or row["id"] in only]
        read.setdefault(kind, {}).update({row["id"]: row for row in chosen})
    return read["tasks"], read["answers"]


def _prefix(path: str) -> str:
    return path.rsplit("/data_", 1)[1].removesuffix(".json")


def _result_file(work: Path, category: str) -> Path:
    return work / f"result_all/result_en/{MODEL}/data_agent_{category}_result.json"


def _repair(work: Path) -> dict[str, dict[str, Any]]:
    """Finished results by id; a line cut off by a crash is taken out, doubles too."""
    finished: dict[str, dict[str, Any]] = {}
    for category in repository.COUNTS:
        file = _result_file(work, category)
        if not file.exists():
            continue
        rows: dict[str, dict[str, Any]] = {}
        for line in file.read_text(encoding="utf-8").splitlines():
            try:
                row = json.loads(line)
                rows.setdefault(row["id"], row)
            except (ValueError, KeyError, TypeError):
                continue
        ordered = sorted(rows.values(), key=lambda row: int(row["id"].rsplit("_", 1)[1]))
        write_text(file, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in ordered))
        finished |= {row["id"]: row for row in ordered}
    return finished


def _lines(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    rows = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            rows.append(json.loads(line))
        except ValueError:
            continue  # cut off by a crash
    return rows


def _unfinished(
    missing: Sequence[str], total: int, log: RelayLog, outcome: Outcome, work: Path
) -> str:
    shown = ", ".join(missing[:5]) + (" ..." if len(missing) > 5 else "")
    reason = log.failures[0] if log.failures else f"it ended with {outcome.verdict}"
    return (
        f"acebench: {len(missing)} of {total} official tasks are unfinished ({shown}): {reason}; "
        f"see {work}/generate.log"
    )
