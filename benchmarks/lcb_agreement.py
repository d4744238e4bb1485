"""Our grader and LiveCodeBench's own on the same programs: verdicts, and seconds beside each other.

    python benchmarks/lcb_agreement.py --repository DIR [--python PYTHON] [--recorded FILE]

DIR holds the official repository at the pinned commit (see eval/livecodebench/README.md); PYTHON
has its requirements. Programs are made from the mini-suite's tasks: right, wrong, slow, sleeping,
crashing, memory-hungry, exiting, output-flooding and some more. FILE adds recorded ones (a list of
`{name, input: {inputs, outputs, fn_name, program, timeout}}`). Both graders run in the sandbox with
the same memory, time limits and number of workers. A program on which they differ is graded again
by both, alone: what a busy machine decides is then told from what the graders decide. Prints a
table of kinds, every disagreement, and the ratio of times; the exit status is 1 if a verdict
differs the second time too.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

from lopd_repro.benchmarks.lcb.grader import GraderSettings, Problem, Sample, Verdict, grade
from lopd_repro.benchmarks.lcb.mini import official_row, suite_tasks
from lopd_repro.benchmarks.lcb.official import REPOSITORY, OfficialSample, Package, find_python
from lopd_repro.benchmarks.lcb.questions import parse_question
from lopd_repro.data.coding.schema import CodeTask
from lopd_repro.data.tiny_coding import CodeNoise, noisy_solution, solution
from lopd_repro.errors import UserError

ROOT = Path(__file__).resolve().parents[1]
TIMEOUT = 1.0
# Whether memory or time runs out first must not depend on the machine's load.
PATIENT = {"memory-hungry slowly": 20.0, "flooding for ever": 20.0}
# Lines put before a right program's own (in a function: before its body).
SPOILT = {
    "slow": ["while True:", "    pass"],
    "slow after output": ["print('early', flush=True)", "while True:", "    pass"],
    "sleeping": ["import time", "time.sleep(3)"],
    "crashing": ["1 / 0"],
    "crashing at once": ["import no_such_module_here"],
    "memory-hungry": ["hoard = [0] * 10 ** 9"],
    "memory-hungry slowly": ["hoard = []", "while True:", "    hoard.append(' ' * 10 ** 7)"],
    "exiting": ["import sys", "sys.exit(0)"],
    "exiting with 1": ["import sys", "sys.exit(1)"],
    "exiting hard": ["import os", "os._exit(0)"],
    "exiting by quit": ["quit()"],
    "interrupting": ["raise KeyboardInterrupt"],
    "killed": ["import signal", "signal.raise_signal(signal.SIGKILL)"],
    "flooding": ["for _ in range(60):", "    print('x' * 10 ** 6)"],
    "flooding the descriptor": ["import os", "os.write(1, b'x' * 10 ** 7)"],
    "flooding for ever": ["while True:", "    print('x' * 10 ** 6)"],
    "recursing": ["def deep(n):", "    return deep(n + 1)", "deep(0)"],
    "leaving a thread": [
        "import threading, time",
        "threading.Thread(target=time.sleep, args=(2,)).start()",
    ],
    "swallowing the alarm": [
        "try:",
        "    while True:",
        "        pass",
        "except Exception:",
        "    pass",
    ],
}
NOISE = CodeNoise(pre_omit=0.3, pre_wrong=0.3, post_omit=0.3, post_wrong=0.5, value_wrong=0.3)


def spoilt(task: CodeTask, lines: list[str]) -> str:
    """The right program with lines put before its own."""
    own = solution(task).splitlines()
    if task.kind == "stdin":
        return "\n".join([*lines, *own])
    return "\n".join([own[0], *("    " + line for line in lines), *own[1:]])


def programs(tasks: list[CodeTask], each: int) -> list[tuple[str, CodeTask, str]]:
    """(kind, task, program); `each` programs of every spoilt kind, right and wrong ones of all."""
    rng = random.Random("lcb-agreement")
    made = [("right", task, solution(task)) for task in tasks]
    made += [("noisy", task, noisy_solution(task, rng, NOISE)) for task in tasks]
    for kind, lines in SPOILT.items():
        for task in rng.sample(tasks, each):
            made.append((kind, task, spoilt(task, lines)))
    made += [("empty", task, "") for task in tasks[:2]]
    made += [("no Python", task, "print 'x'") for task in tasks[:2]]
    return made


def recorded(path: Path) -> list[tuple[str, Sample]]:
    """Recorded programs; those that depend on the machine's speed are left out."""
    found = []
    for case in json.loads(path.read_text()):
        if case.get("timing"):
            continue
        given = case["input"]
        problem = Problem(
            case["name"], tuple(given["inputs"]), tuple(given["outputs"]), given["fn_name"]
        )
        sample = Sample(problem, given["program"], float(given["timeout"]))
        found.append(("recorded", sample))
    return found


def official_rows(samples: list[tuple[str, Sample]]) -> list[dict[str, str]]:
    """The samples' problems as the official scorer is given them."""
    problems = {sample.problem.task_id: sample.problem for _, sample in samples}
    return [
        {
            "question_id": name,
            "input_output": json.dumps(
                {"inputs": one.inputs, "outputs": one.outputs, "fn_name": one.fn_name}
            ),
        }
        for name, one in problems.items()
    ]


def same(ours: Verdict, theirs: Verdict) -> bool:
    """Equal codes, error code, and pass or fail."""
    return (
        list(map(repr, ours.codes)) == list(map(repr, theirs.codes))
        and ours.error_code == theirs.error_code
        and ours.passed == theirs.passed
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--repository", default="", help="folder of the official repository")
    parser.add_argument("--python", default="", help="interpreter that has its requirements")
    parser.add_argument("--recorded", type=Path, help="a file of recorded programs")
    parser.add_argument("--each", type=int, default=6, help="programs of every spoilt kind")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--memory-mb", type=int, default=512)
    arguments = parser.parse_args()
    try:
        return compare(arguments)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def compare(arguments: argparse.Namespace) -> int:
    settings = GraderSettings(
        timeout_seconds=TIMEOUT,
        memory_mb=arguments.memory_mb,
        workers=arguments.workers,
        rerun_timeouts=False,
    )
    folder = ROOT / "eval" / "livecodebench"
    package = Package(
        find_python(arguments.python, ROOT),
        REPOSITORY.locate(arguments.repository, folder / "official"),
        folder / "launch.py",
    )
    tasks = suite_tasks()["v5"]
    questions = {
        task.task_id: parse_question(official_row(task, "v5", 0), "v5").problem for task in tasks
    }
    samples = [
        (kind, Sample(questions[task.task_id], program, PATIENT.get(kind, TIMEOUT)))
        for kind, task, program in programs(tasks, arguments.each)
    ]
    if arguments.recorded:
        samples += recorded(arguments.recorded)

    began = time.perf_counter()
    ours = grade([sample for _, sample in samples], settings)
    our_seconds = time.perf_counter() - began
    given = [
        OfficialSample(
            str(number), sample.problem.task_id, sample.program, True, sample.timeout_seconds
        )
        for number, (_, sample) in enumerate(samples)
    ]
    began = time.perf_counter()
    scored = package.score(official_rows(samples), given, settings)
    their_seconds = time.perf_counter() - began
    theirs = [scored[str(number)].verdict for number in range(len(samples))]

    kinds: dict[str, Counter[str]] = {}
    at_first = 0
    for number, (_, sample) in enumerate(samples):
        if not same(ours[number], theirs[number]):
            at_first += 1
            print(f"once more, alone: {sample.problem.task_id}", flush=True)
            alone = replace(settings, workers=1)
            ours[number] = grade([sample], alone)[0]
            rows = official_rows([samples[number]])
            theirs[number] = package.score(rows, [given[number]], alone)[str(number)].verdict
    differing = []
    for (kind, sample), our, their in zip(samples, ours, theirs, strict=True):
        count = kinds.setdefault(kind, Counter())
        count["all"] += 1
        count["passed"] += their.passed
        count["equal"] += same(our, their)
        if not same(our, their):
            differing.append((kind, sample, our, their))
    print(f"{'kind':<26}{'samples':>8}{'passed':>8}{'equal':>8}")
    for kind, count in kinds.items():
        print(f"{kind:<26}{count['all']:>8}{count['passed']:>8}{count['equal']:>8}")
    for kind, sample, our, their in differing:
        print(f"\n{kind}, {sample.problem.task_id}: ours {our}\n  official {their}")
        print("  " + sample.program.replace("\n", "\n  "))
    print(
        f"\n{len(samples) - len(differing)} of {len(samples)} verdicts equal "
        f"({at_first} differed until graded alone); "
        f"{arguments.workers} workers: official {their_seconds:.1f} s, ours {our_seconds:.1f} s, "
        f"ratio {their_seconds / our_seconds:.2f}"
    )
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
