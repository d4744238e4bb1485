"""Runs the official EvalPlus package inside its own environment; called through official.py.

    python launch.py JOB.json

JOB.json holds a step and its parts (see `Part`); every part is one dataset.

- `prompts` writes `prompts.json`: for each task the messages that the package's own code generation
  sends to an OpenAI endpoint. Its client library is replaced by one that writes the messages down.
- `sanitize` writes `programs.json`: what the package's sanitizer makes of every answer.
- `score` writes `scores.json`: the package's sanitizer on every answer, then its `evaluate` on the
  distinct programs, then once more, alone, on those that ran out of time or died.

The package is imported once, and each part runs in a forked child that calls `evaluate`: the
official command would wait for a thread that sleeps 20 seconds, a child need not. The package's
code is not changed, with these exceptions, made from here: the paths of its data and its cache are
constants that are set before anything reads them; `datasets`, which only its other benchmark needs,
is not imported; and its checks are wrapped so that each one's details and the time limits that it
ran into are noted, which its result file does not hold.

This file imports nothing of this project: it runs where only evalplus is installed.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import importlib
import json
import marshal
import multiprocessing
import os
import signal
import sys
import time
import traceback
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

VERSION = "0.3.1"


@dataclass(frozen=True)
class Part:
    """One dataset of a job.

    dataset: `humaneval` or `mbpp`, the package's name of the form.
    data: JSON Lines file in the official form that takes the place of the package's.
    answers: JSON Lines file with `task_id`, `text` and `entry_point` ("" leaves text as it is: it
    is the program). prefix, suffix: code by task id around every program when it is scored.
    base_only, min_time_limit, gt_time_limit_factor, test_details: arguments of `evaluate`.
    rerun: whether programs that ran out of time or died are judged once more, alone.
    """

    name: str
    dataset: str
    data: str
    answers: str = ""
    prefix: dict[str, str] = field(default_factory=dict)
    suffix: dict[str, str] = field(default_factory=dict)
    base_only: bool = False
    min_time_limit: float = 1.0
    gt_time_limit_factor: float = 4.0
    test_details: bool = False
    rerun: bool = True


def main(arguments: list[str]) -> int:
    """Run a job; the exit status is that of the first part that fails."""
    job = json.loads(Path(arguments[0]).read_text())
    folder = Path(job["folder"])
    if "EVALPLUS_TIMEOUT_PER_TASK" in os.environ:
        raise SystemExit("EVALPLUS_TIMEOUT_PER_TASK is set, which evalplus 0.3.1 cannot bear")
    found = version("evalplus")
    if found != VERSION:
        raise SystemExit(f"evalplus {found} is installed, allowed: {VERSION}")
    # Ground truth is pickled in the package's cache: a fresh one, so that none is ever stale.
    os.environ["XDG_CACHE_HOME"] = str(folder / "cache")
    stand_in("datasets", load_dataset=None)
    steps = {"prompts": prompts, "sanitize": extract, "score": score}
    importlib.import_module("evalplus.evaluate")
    for values in job["parts"]:
        part = Part(**values)
        place = folder / part.name
        place.mkdir()
        status = in_child(place, lambda p=part, f=place: steps[job["step"]](p, f, job["parallel"]))
        if status:
            log = (place / "log.txt").read_text(errors="replace").strip().splitlines()
            print(f"{part.name}: {log[-1] if log else f'status {status}'}", file=sys.stderr)
            return 1
    return 0


def stand_in(name: str, **members: Any) -> types.ModuleType:
    """A module of that name that holds these members and nothing else."""
    module = types.ModuleType(name)
    module.__dict__.update(members)
    sys.modules[name] = module
    return module


def use_data(part: Part) -> None:
    """Set the package's override path, which it reads from the environment when imported."""
    name = "HUMANEVAL_OVERRIDE_PATH" if part.dataset == "humaneval" else "MBPP_OVERRIDE_PATH"
    module = importlib.import_module(f"evalplus.data.{part.dataset}")
    setattr(module, name, part.data)
    os.environ[name] = part.data


def read_problems(part: Part) -> dict[str, Any]:
    """The package's own reading of the data."""
    data = importlib.import_module("evalplus.data")
    load = data.get_human_eval_plus if part.dataset == "humaneval" else data.get_mbpp_plus
    problems: dict[str, Any] = load()
    return problems


# --- prompts ---------------------------------------------------------------------------------


def prompts(part: Part, folder: Path, parallel: int) -> None:
    """The messages of every task, and the inputs as the package converts them."""
    use_data(part)
    sent: list[list[dict[str, str]]] = []

    def create(**request: Any) -> Any:
        sent.append(request["messages"])
        message = types.SimpleNamespace(content="")
        choices = [types.SimpleNamespace(message=message)] * request["n"]
        return types.SimpleNamespace(choices=choices)

    completions = types.SimpleNamespace(create=create)
    client = types.SimpleNamespace(chat=types.SimpleNamespace(completions=completions))
    stand_in(
        "openai",
        OpenAI=lambda **_: client,
        Client=object,
        **{name: type(name, (Exception,), {}) for name in _ERRORS},
    )
    stand_in("openai.types")
    stand_in("openai.types.chat", ChatCompletion=object)
    problems = read_problems(part)
    importlib.import_module("evalplus.codegen").run_codegen(
        model="recorded",
        dataset=part.dataset,
        backend="openai",
        greedy=True,
        root=str(folder / "generated"),
    )
    if len(sent) != len(problems):
        raise SystemExit(f"{len(sent)} requests for {len(problems)} tasks")
    by_task = dict(zip(problems, sent, strict=True))
    (folder / "prompts.json").write_text(json.dumps(by_task))
    inputs = {task: [p["base_input"], p["plus_input"]] for task, p in problems.items()}
    (folder / "inputs.marshal").write_bytes(marshal.dumps(inputs))


_ERRORS = ("RateLimitError", "APIConnectionError", "APIError")


# --- sanitize --------------------------------------------------------------------------------


def extract(part: Part, folder: Path, parallel: int) -> None:
    """Programs out of answers; here an empty entry point is none given."""
    answers = [json.loads(line) for line in Path(part.answers).read_text().splitlines()]
    importlib.import_module("evalplus.sanitize")
    found = [sanitize((answer["text"], answer["entry_point"] or None)) for answer in answers]
    (folder / "programs.json").write_text(json.dumps(found))


# --- score -----------------------------------------------------------------------------------


def score(part: Part, folder: Path, parallel: int) -> None:
    """Programs out of answers, their official verdicts, and what was noted on the way."""
    use_data(part)
    answers = [json.loads(line) for line in Path(part.answers).read_text().splitlines()]
    programs = sanitized(answers, parallel)
    # Equal programs of one task have equal verdicts: each is scored once.

    def whole(task: str, program: str) -> str:
        return part.prefix.get(task, "") + program + part.suffix.get(task, "")

    distinct: dict[tuple[str, str], int] = {}
    for answer, (program, _) in zip(answers, programs, strict=True):
        task = answer["task_id"]
        distinct.setdefault((task, whole(task, program)), len(distinct))
    samples = folder / "samples.jsonl"
    rows = [{"task_id": task, "solution": program} for task, program in distinct]
    samples.write_text("".join(json.dumps(row) + "\n" for row in rows))
    verdicts = evaluate(part, folder, samples, rows, parallel)
    found = []
    for answer, (program, problem) in zip(answers, programs, strict=True):
        task = answer["task_id"]
        number = distinct[task, whole(task, program)]
        found.append({"program": program, "refused": problem, "verdict": number})
    (folder / "scores.json").write_text(json.dumps({"answers": found, **verdicts}))


def sanitized(answers: list[dict[str, str]], parallel: int) -> list[tuple[str, str]]:
    """The official sanitizer on each answer: the program, and why there is none, if so."""
    texts = list(dict.fromkeys((a["text"], a["entry_point"]) for a in answers))
    work = [text for text in texts if text[1]]
    known = {text: (text[0], "") for text in texts if not text[1]}
    importlib.import_module("evalplus.sanitize")
    if sum(text[0].count("\n") ** 2 for text in work) < 10_000:
        known.update(zip(work, map(sanitize, work), strict=True))
    else:
        with concurrent.futures.ProcessPoolExecutor(parallel) as pool:
            known.update(zip(work, pool.map(sanitize, work), strict=True))
    return [known[a["text"], a["entry_point"]] for a in answers]


def sanitize(given: tuple[str, str | None], seconds: float = 120.0) -> tuple[str, str]:
    """One text; what the sanitizer cannot bear is no program, for the reason that is returned."""

    def stop(*_: Any) -> None:
        raise TimeoutError(f"the sanitizer took more than {seconds:g} s")

    signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        return sys.modules["evalplus.sanitize"].sanitize(*given), ""
    except (ValueError, RecursionError, TimeoutError, MemoryError) as error:
        return "", f"{type(error).__name__}: {error}"[:200]
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def evaluate(
    part: Part, folder: Path, samples: Path, rows: list[dict[str, str]], parallel: int
) -> dict[str, Any]:
    """The package's `evaluate` on a file of samples, and the reruns."""
    package = importlib.import_module("evalplus.evaluate")
    results = Path(str(samples).replace(".jsonl", "_eval_results.json"))
    if results.exists():
        raise SystemExit(f"{results.name} exists, which evalplus would use instead of scoring")
    notes = Notes(folder / "notes.jsonl", package)
    began = time.perf_counter()
    package.evaluate(
        dataset=part.dataset,
        samples=str(samples),
        base_only=part.base_only,
        parallel=parallel,
        test_details=part.test_details,
        min_time_limit=part.min_time_limit,
        gt_time_limit_factor=part.gt_time_limit_factor,
    )
    official = json.loads(results.read_text())
    lines = {f"{row['task_id']} (line {i + 1} in {samples})": i for i, row in enumerate(rows)}
    noted = {lines[note["identifier"]]: note for note in notes.read()}
    check_results(official, rows, noted)
    seconds = time.perf_counter() - began
    slow = [i for i, note in sorted(noted.items()) if note["late"] or "timeout" in statuses(note)]
    slow = slow if part.rerun else []
    factor = stall() if slow else 1.0
    notes.stretched = factor
    problems = read_problems(part)
    for i in slow:
        task = rows[i]["task_id"]
        package.check_correctness(
            part.dataset,
            0,
            problems[task],
            rows[i]["solution"],
            notes.expected[task],
            part.base_only,
            not part.test_details,
            str(i),
            part.min_time_limit * factor,
            part.gt_time_limit_factor * factor,
        )
    again = {int(note["identifier"]): note for note in notes.read()[len(noted) :]}
    verdicts = [
        {**again.get(i, noted[i]), "alone": i in again, "first": statuses(noted[i])}
        for i in range(len(rows))
    ]
    return {
        "verdicts": verdicts,
        "hash": official["hash"],
        "stall": factor,
        "seconds": [seconds, time.perf_counter() - began - seconds],
    }


def statuses(note: dict[str, Any]) -> list[str]:
    """Status of the base run and, where there was one, of the plus run."""
    return [note[kind]["status"] for kind in ("base", "plus") if note[kind]]


def check_results(
    official: dict[str, Any], rows: list[dict[str, str]], noted: dict[int, dict[str, Any]]
) -> None:
    """The official result file must say of every sample what was noted."""
    if sorted(noted) != list(range(len(rows))):
        raise SystemExit(f"{len(noted)} of {len(rows)} samples were scored")
    place: dict[str, int] = {}
    for i, row in enumerate(rows):
        task = row["task_id"]
        entry = official["eval"][task][place.setdefault(task, 0)]
        place[task] += 1
        plus = noted[i]["plus"]
        said = (entry["solution"], entry["base_status"], entry["plus_status"])
        if said != (row["solution"], noted[i]["base"]["status"], plus and plus["status"]):
            raise SystemExit(f"{task}: the official result file says otherwise than its check")


class Notes:
    """Wraps the package's checks: what each one found goes to a file, one JSON line each.

    A forked worker appends to the file; the line is one write, so that lines do not mix.
    stretched: how much longer than usual the limits now are that the checks are given; above 0,
    the limit of an input is the usual one, but does not count the time that others took.
    """

    def __init__(self, path: Path, package: types.ModuleType) -> None:
        self.path = path
        self.expected: dict[str, Any] = {}
        self.stretched = 0.0
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._late = multiprocessing.Value("i", 0)
        self._runs: list[dict[str, Any]] = []
        self._wrap(package, importlib.import_module("evalplus.eval"))

    def read(self) -> list[dict[str, Any]]:
        """All lines so far."""
        return [json.loads(line) for line in self.path.read_text().splitlines()]

    def _wrap(self, package: types.ModuleType, checks: types.ModuleType) -> None:
        truth, check, one = (
            package.get_groundtruth,
            package.check_correctness,
            package.untrusted_check,
        )
        limit, late_error = checks.time_limit, checks_error()

        def get_groundtruth(*arguments: Any) -> Any:
            self.expected = truth(*arguments)
            return self.expected

        @contextlib.contextmanager
        def time_limit(seconds: float) -> Iterator[None]:
            try:
                with limit(seconds):
                    if self.stretched:
                        be_patient(seconds / self.stretched)
                    yield
            except late_error:
                self._late.value = 1
                raise

        def untrusted_check(*arguments: Any, **named: Any) -> Any:
            self._late.value = 0
            began = time.perf_counter()
            status, details = one(*arguments, **named)
            self._runs.append(
                {
                    "status": status,
                    "details": "".join("1" if ok else "0" for ok in details),
                    "late": bool(self._late.value),
                    "seconds": round(time.perf_counter() - began, 4),
                }
            )
            return status, details

        def check_correctness(*arguments: Any, **named: Any) -> Any:
            # A worker takes one sample at a time, so its counter belongs to this sample.
            self._late, self._runs = multiprocessing.Value("i", 0), []
            result = check(*arguments, **named)
            runs = [*self._runs, None]
            note = {
                "identifier": result["_identifier"],
                "base": runs[0],
                "plus": runs[1],
                "late": any(run["late"] for run in self._runs),
            }
            os.write(self._file, (json.dumps(note) + "\n").encode())
            return result

        # The pool finds its function by this name.
        check_correctness.__qualname__ = check_correctness.__name__
        check_correctness.__module__ = package.__name__
        package.get_groundtruth = get_groundtruth
        package.untrusted_check = untrusted_check
        package.check_correctness = check_correctness
        checks.time_limit = time_limit


def checks_error() -> type[BaseException]:
    """The exception of the package's time limit."""
    error: type[BaseException] = importlib.import_module("evalplus.eval.utils").TimeoutException
    return error


def stall() -> float:
    """How much longer to wait for a check: 1 on a machine that others leave alone.

    Otherwise twice the wall time over the processor time of a short busy loop, since the load may
    grow. Where `be_patient` knows better, this only decides when a process is given up.
    """
    wall, cpu = time.perf_counter(), time.process_time()
    while time.process_time() - cpu < 0.1:
        pass
    found = (time.perf_counter() - wall) / (time.process_time() - cpu)
    return 2.0 * found if found > 1.25 else 1.0


# Taken before the package's guard and programs replace what is in these modules.
_monotonic, _open, _read, _close = time.monotonic, os.open, os.read, os.close
_getsignal, _signal, _setitimer = signal.getsignal, signal.signal, signal.setitimer


def be_patient(seconds: float) -> None:
    """Make the alarm that is set ring after `seconds` of running or sleeping.

    The time in which this process was ready to run and others had all processors does not count.
    Where the system does not tell, the alarm stays.
    """
    ring, began, waited = _getsignal(signal.SIGALRM), _monotonic(), waiting()
    if waited is None or not callable(ring):
        return

    def again(number: int, frame: Any) -> None:
        left = seconds - (_monotonic() - began) + ((waiting() or 0.0) - waited)
        if left > 0.001:
            _setitimer(signal.ITIMER_REAL, left)
        else:
            ring(number, frame)

    _signal(signal.SIGALRM, again)
    _setitimer(signal.ITIMER_REAL, seconds)


def waiting() -> float | None:
    """Seconds so far that this process's first thread was ready to run and did not."""
    try:
        descriptor = _open("/proc/self/schedstat", os.O_RDONLY)
        try:
            return int(_read(descriptor, 100).split()[1]) / 1e9
        finally:
            _close(descriptor)
    except (OSError, ValueError, IndexError):
        return None


# --- processes -------------------------------------------------------------------------------


def in_child(folder: Path, work: Callable[[], None]) -> int:
    """Run `work` in a forked child whose output goes nowhere; the child's exit status.

    Model programs may write without end; only what the child raises is kept, in `log.txt`.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            null = os.open(os.devnull, os.O_RDWR)
            for descriptor in (0, 1, 2):
                os.dup2(null, descriptor)
            os.chdir(folder)
            work()
            status = 0
        except BaseException:
            (folder / "log.txt").write_text(traceback.format_exc())
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
