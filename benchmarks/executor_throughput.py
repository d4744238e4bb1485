"""Programs a second: the executor and the grader here, EvalPlus's scorer, LiveCodeBench's own.

    python benchmarks/executor_throughput.py --livecodebench DIR [--python PYTHON] [--out FILE]

The same programs, tests, time limits and number of workers for all; repetitions take turns, so that
what else the machine does falls on each alike. Two mixes: right programs alone, and what a model
writes (about half of it right, the rest wrong, crashing, slow, endless, memory-hungry, exiting,
flooding). Tests as few as the mini-suites have, or more (`--tests`). Forms and who scores them:

    evalplus        `evalplus.evaluate` on functions; our executor by the strict reading
    livecodebench   `evaluate_generations` on functions and scripts; our grader by the same rules;
                    our executor by the strict reading

Official seconds are those of the official function alone, measured inside its process, without the
start of the interpreter and imports; ours are of the whole call, starts included. Official code
runs in this project's sandbox, since it has no walls of its own. "once": no time-out is tried
again, as in the official scorers. "twice": a time-out only counts if it comes again when the
program runs alone, which is our rule; the official function is then called once more for every
endless program, and told which those are. Each is compared with its like.

Prints medians, ratios (above 1: ours is faster) and how many verdicts (passed or not) are equal;
the exit status is 1 if one differs. DIR holds LiveCodeBench's repository, PYTHON has its
requirements; without --livecodebench that form is left out.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lopd_repro.benchmarks.evalplus.environment import default_python, find_environment
from lopd_repro.benchmarks.evalplus.mini import problem
from lopd_repro.benchmarks.evalplus.official import Part
from lopd_repro.benchmarks.evalplus.strict import read_strictly
from lopd_repro.benchmarks.lcb.grader import GraderSettings, Sample, grade
from lopd_repro.benchmarks.lcb.mini import official_row
from lopd_repro.benchmarks.lcb.official import REPOSITORY, find_python
from lopd_repro.benchmarks.lcb.questions import parse_question
from lopd_repro.benchmarks.lcb.strict import strict_verdicts
from lopd_repro.data.coding.schema import CodeCase, CodeTask
from lopd_repro.data.tiny_coding import (
    FAMILIES,
    CodeNoise,
    noisy_solution,
    read_statement,
    run_here,
    sample_task,
    solution,
)
from lopd_repro.errors import UserError
from lopd_repro.files import write_json
from lopd_repro.sandbox import Limits, run

ROOT = Path(__file__).resolve().parents[1]
LIMIT = 1.0
"""Seconds for each test; the least that EvalPlus knows by default."""
MEMORY_MB = 4096
NOISE = CodeNoise(pre_omit=0.3, pre_wrong=0.3, post_omit=0.3, post_wrong=0.5, value_wrong=0.3)

# Shares of the model's mix in percent, and lines that stand before a right program's own.
MODEL = {
    "right": (53, []),
    "wrong": (27, []),
    "raises": (6, ["{}['no such key']"]),
    "syntax error": (3, ["if True print(1)"]),
    "slow, in time": (3, ["sum(range(1_000_000))"]),
    "endless": (2, ["while True:", "    pass"]),
    "recursion": (2, ["f = lambda n: f(n + 1)", "f(0)"]),
    "memory": (1, ["hoard = [0] * 10 ** 10"]),
    "exits": (2, ["import sys", "sys.exit(0)"]),
    "prints much": (1, ["print('x' * 10 ** 6)"]),
}


@dataclass(frozen=True)
class Written:
    """A program for a task, and what kind of program it is."""

    kind: str
    task: CodeTask
    program: str


def tasks_with(kinds: Sequence[str], count: int, tests: int) -> list[CodeTask]:
    """Tasks of all families of these kinds; `tests` 0 leaves as many tests as they have."""
    rng = random.Random("executor-throughput")
    families = [name for name, (topic, _) in FAMILIES.items() if topic.kind in kinds]
    made = []
    for index in range(count):
        family = families[index % len(families)]
        task = sample_task(rng, family, f"{family}-{index}")
        value = read_statement(task).value
        more = [_case(task, FAMILIES[family][1].draw(rng, value)) for _ in range(tests)]
        made.append(replace(task, cases=(task.cases + tuple(more))[: tests or None]))
    return made


def _case(task: CodeTask, drawn: Any) -> CodeCase:
    given = " ".join(map(str, drawn)) if task.kind == "stdin" else drawn
    right = run_here(solution(task), task.kind, task.entry_point, given)
    if task.kind == "stdin":
        return CodeCase(input=f"{given}\n", output=str(right))
    return CodeCase(args=(given,), expected=right)


def written(tasks: Sequence[CodeTask], mix: str) -> list[Written]:
    """A program for every task: right, or drawn from the model's mix in a fixed proportion."""
    if mix == "right":
        return [Written("right", task, solution(task)) for task in tasks]
    kinds = [kind for kind, (share, _) in MODEL.items() for _ in range(share)]
    rng = random.Random("executor-throughput-mix")
    kinds = [kinds[index * 100 // len(tasks)] for index in range(len(tasks))]
    rng.shuffle(kinds)
    made = []
    for kind, task in zip(kinds, tasks, strict=True):
        own = (noisy_solution(task, rng, NOISE) if kind == "wrong" else solution(task)).splitlines()
        lines = MODEL[kind][1]
        if task.kind == "stdin":
            whole = [*lines, *own]
        else:
            whole = [own[0], *("    " + line for line in lines), *own[1:]]
        made.append(Written(kind, task, "\n".join(whole)))
    return made


# --- official scorers -------------------------------------------------------------------------

SILENT = """
import importlib, json, os, sys, time
job = json.loads(open(sys.argv[1]).read())
nothing = os.open(os.devnull, os.O_RDWR)
for stream in (0, 1):
    os.dup2(nothing, stream)
sys.path.insert(0, os.path.dirname(job["launcher"]))
import launch
"""
EVALPLUS = (
    SILENT
    + """
os.environ["XDG_CACHE_HOME"] = job["folder"] + "/cache"
launch.stand_in("datasets", load_dataset=None)
official = importlib.import_module("evalplus.evaluate")
launch.use_data(launch.Part("p", "humaneval", job["data"]))
began = time.perf_counter()
official.evaluate(dataset="humaneval", samples=job["samples"], parallel=job["workers"])
seconds = time.perf_counter() - began
found = json.loads(open(job["samples"].replace(".jsonl", "_eval_results.json")).read())["eval"]
passed = [found[t][0]["base_status"] == found[t][0]["plus_status"] == "pass" for t in job["tasks"]]
problems = launch.read_problems(launch.Part("p", "humaneval", job["data"]))
expected = official.get_groundtruth(problems, "again", [])
began = time.perf_counter()
for number in job["again"]:
    task = job["tasks"][number]
    official.check_correctness(
        "humaneval", 0, problems[task], job["programs"][number], expected[task], fast_check=True
    )
again = time.perf_counter() - began
open(job["out"], "w").write(json.dumps({"seconds": seconds, "again": again, "passed": passed}))
os._exit(0)  # a thread of the package sleeps
"""
)
LIVECODEBENCH = (
    SILENT
    + """
os.chdir(job["repository"])
sys.path.insert(0, job["repository"])
sys.argv = ["lcb"]
launch._leave_out("datasets", "load_dataset")
launch._leave_out("anthropic", "HUMAN_PROMPT", "AI_PROMPT")
official = importlib.import_module("lcb_runner.evaluation.compute_code_generation_metrics")
began = time.perf_counter()
found, _ = official.evaluate_generations(
    job["problems"], [[program] for program in job["programs"]],
    num_process_evaluate=job["workers"], timeout=job["timeout"],
)
seconds = time.perf_counter() - began
passed = [all(code > 0 for code in found[i][0]) for i in range(len(found))]
began = time.perf_counter()
for number in job["again"]:
    official.evaluate_generations(
        [job["problems"][number]], [[job["programs"][number]]],
        num_process_evaluate=1, timeout=job["timeout"],
    )
again = time.perf_counter() - began
open(job["out"], "w").write(json.dumps({"seconds": seconds, "again": again, "passed": passed}))
"""
)


def official(script: str, python: Path, job: dict[str, Any], readable: list[Path]) -> Any:
    """Run a script in the scorer's environment; what it wrote."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        (folder / "script.py").write_text(script)
        for name in ("data", "samples"):
            if name in job:
                (folder / f"{name}.jsonl").write_text("\n".join(map(json.dumps, job[name])))
                job = {**job, name: str(folder / f"{name}.jsonl")}
        job |= {"folder": scratch, "out": str(folder / "out.json")}
        (folder / "job.json").write_text(json.dumps(job))
        outcome = run(
            [str(python), "-B", str(folder / "script.py"), str(folder / "job.json")],
            Limits(
                memory_mb=2 * MEMORY_MB + 2048,
                cpu_seconds=7200,
                wall_seconds=7200,
                processes=256,
                open_files=4096,
                file_mb=1024,
                output_kb=16384,
            ),
            readable=readable,
            writable=[folder],
        )
        if not (folder / "out.json").is_file():
            raise SystemExit(f"{python}: {outcome.verdict}, {outcome.stderr.decode()[-800:]}")
        return json.loads((folder / "out.json").read_text())


@dataclass(frozen=True)
class Timed:
    """Seconds by how often time-outs are tried, and what passed."""

    seconds: dict[str, float]
    passed: list[bool]


def timed(rule: str, work: Callable[[], list[bool]]) -> Timed:
    began = time.perf_counter()
    passed = work()
    return Timed({rule: time.perf_counter() - began}, passed)


def of_official(found: dict[str, Any]) -> Timed:
    once, again = found["seconds"], found["again"]
    return Timed({"once": once, "twice": once + again}, found["passed"])


RULES = {"once": False, "twice": True}
Side = Callable[[], Timed]


# --- the two forms ----------------------------------------------------------------------------


def evalplus_sides(programs: list[Written], workers: int) -> dict[str, Side]:
    environment = find_environment(default_python(ROOT))
    rows = [problem(one.task, "humaneval", number) for number, one in enumerate(programs)]
    pairs = [(row["task_id"], one.program) for row, one in zip(rows, programs, strict=True)]
    part = Part("p", "humaneval", rows, min_time_limit=LIMIT)
    launcher = ROOT / "eval" / "evalplus" / "launch.py"
    job = {
        "launcher": str(launcher),
        "workers": workers,
        "data": rows,
        "samples": [{"task_id": task, "solution": program} for task, program in pairs],
        "tasks": [task for task, _ in pairs],
        "programs": [program for _, program in pairs],
        "again": again(programs),
    }

    def theirs() -> Timed:
        readable = [environment.root, launcher.parent]
        return of_official(official(EVALPLUS, environment.python, dict(job), readable))

    def ours(rule: str) -> Side:
        def work() -> list[bool]:
            found = read_strictly([part], {"p": pairs}, None, workers, rerun_timeouts=RULES[rule])
            return [reading.right for reading in found["p"]]

        return lambda: timed(rule, work)

    return {"official": theirs, **{f"executor, {rule}": ours(rule) for rule in RULES}}


def livecodebench_sides(
    programs: list[Written], workers: int, repository: str, python: str
) -> dict[str, Side]:
    folder = ROOT / "eval" / "livecodebench"
    place = REPOSITORY.locate(repository, folder / "official")
    interpreter = find_python(python, ROOT)
    problems = [parse_question(official_row(one.task, "v5", 0), "v5").problem for one in programs]
    samples = [Sample(p, one.program) for p, one in zip(problems, programs, strict=True)]
    job = {
        "launcher": str(folder / "launch.py"),
        "repository": str(place),
        "workers": workers,
        "timeout": int(LIMIT),
        "programs": [one.program for one in programs],
        "again": again(programs),
        "problems": [
            {
                "input_output": json.dumps(
                    {"inputs": p.inputs, "outputs": p.outputs, "fn_name": p.fn_name}
                )
            }
            for p in problems
        ],
    }

    def theirs() -> Timed:
        return of_official(official(LIVECODEBENCH, interpreter, dict(job), [place, folder]))

    def settings(rule: str) -> GraderSettings:
        return GraderSettings(LIMIT, MEMORY_MB, workers, rerun_timeouts=RULES[rule])

    def grader(rule: str) -> Side:
        return lambda: timed(rule, lambda: [one.passed for one in grade(samples, settings(rule))])

    def executor(rule: str) -> Side:
        return lambda: timed(
            rule, lambda: [one == "passed" for one in strict_verdicts(samples, settings(rule))]
        )

    sides = {f"grader, {rule}": grader(rule) for rule in RULES}
    return {"official": theirs, **sides, **{f"executor, {rule}": executor(rule) for rule in RULES}}


def again(programs: list[Written]) -> list[int]:
    """The programs that will run out of time."""
    return [number for number, one in enumerate(programs) if one.kind == "endless"]


# --- side by side -----------------------------------------------------------------------------


def compare(sides: dict[str, Side], programs: list[Written], repeats: int) -> dict[str, Any]:
    """Medians, ratios and equal verdicts; repetitions in turn, backwards every second time."""
    runs: dict[str, list[Timed]] = {name: [] for name in sides}
    for turn in range(repeats):
        for name in list(sides)[:: 1 if turn % 2 == 0 else -1]:
            runs[name].append(sides[name]())
    reference = runs["official"][0].passed
    found: dict[str, Any] = {"samples": len(programs), "passed": sum(reference), "sides": {}}
    for name, own in runs.items():
        other = {
            number
            for one in own
            for number, (mine, theirs) in enumerate(zip(one.passed, reference, strict=True))
            if mine != theirs
        }
        for rule in own[0].seconds:
            seconds = [one.seconds[rule] for one in own]
            theirs = [one.seconds[rule] for one in runs["official"]]
            ratios = [b / a for a, b in zip(seconds, theirs, strict=True)]
            found["sides"][name if name.endswith(rule) else f"{name}, {rule}"] = {
                "seconds": seconds,
                "median": statistics.median(seconds),
                "ratio": statistics.median(ratios),
                "ratios": ratios,
                "equal": len(programs) - len(other),
                "differing": [
                    {"kind": programs[n].kind, "task": programs[n].task.task_id,
                     "program": programs[n].program}
                    for n in sorted(other)
                ],
            }  # fmt: skip
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--livecodebench", default="", help="folder of the official repository")
    parser.add_argument("--python", default="", help="interpreter that has its requirements")
    parser.add_argument("--samples", type=int, default=200)
    parser.add_argument("--tests", type=int, nargs="+", default=[0, 50], help="0: as they have")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    report = []
    differing = 0
    for tests in arguments.tests:
        for form, kinds in (("evalplus", ["function"]), ("livecodebench", ["function", "stdin"])):
            if form == "livecodebench" and not arguments.livecodebench:
                continue
            tasks = tasks_with(kinds, arguments.samples, tests)
            for mix in ("right", "model"):
                programs = written(tasks, mix)
                try:
                    if form == "evalplus":
                        sides = evalplus_sides(programs, arguments.workers)
                    else:
                        sides = livecodebench_sides(
                            programs, arguments.workers, arguments.livecodebench, arguments.python
                        )
                except UserError as error:
                    print(f"error: {error}", file=sys.stderr)
                    return 2
                found = compare(sides, programs, arguments.repeats)
                report.append({"form": form, "mix": mix, "tests": tests, **found})
                count = f"{tests} tests" if tests else "3 or 6 tests"
                print(f"{form}, {mix}, {count}: {found['passed']} of {len(programs)} pass")
                for name, side in found["sides"].items():
                    rate = len(programs) / side["median"]
                    print(
                        f"  {name:<16} {side['median']:7.2f} s {rate:7.0f} a second"
                        f"  ratio {side['ratio']:5.2f}  equal {side['equal']}",
                        flush=True,
                    )
                    differing += len(side["differing"])
                    for one in side["differing"]:
                        print(f"    {one['kind']}, {one['task']}: {one['program']!r}")
    if arguments.out:
        write_json(arguments.out, {"workers": arguments.workers, "limit": LIMIT, "runs": report})
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
