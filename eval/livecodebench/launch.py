"""Runs the official LiveCodeBench code inside its own environment; needs nothing of this project.

    python launch.py JOB.json

The job names the repository, a step, and files for what goes in and out, all JSON:

- `prompts`: the messages that the official prompt functions make of problems for a generic chat
  model (its style `OpenAIChat`).
- `score`: official extraction, unless a sample is a program already, then the official check of
  every program on all tests, in parallel; each verdict is on disk as soon as it is known. With
  `stretch`, time limits are longer by as much as others slow the machine.

The official code stays as it is. `datasets`, which only its loader of the hub's data needs, and
`anthropic`, which only Claude's prompts need, are not imported. What programs print past the
official capture goes nowhere.
"""

from __future__ import annotations

import json
import math
import multiprocessing
import os
import sys
import time
import types
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

STYLE = "OpenAIChat"


def main(job: dict[str, Any]) -> None:
    os.chdir(job["repository"])  # the official code opens files relative to it
    sys.path.insert(0, job["repository"])
    sys.argv = ["lcb"]
    _leave_out("datasets", "load_dataset")
    _leave_out("anthropic", "HUMAN_PROMPT", "AI_PROMPT")
    if job["do"] == "prompts":
        prompts(job)
    else:
        score(job)


def _leave_out(name: str, *members: str) -> None:
    """An empty module for an import whose content is never used here."""
    module = types.ModuleType(name)
    for member in members:
        setattr(module, member, None)
    sys.modules[name] = module


def prompts(job: dict[str, Any]) -> None:
    """Messages by question_id."""
    from lcb_runner.benchmarks.code_generation import CodeGenerationProblem
    from lcb_runner.lm_styles import LMStyle
    from lcb_runner.prompts.code_generation import format_prompt_generation

    made = {}
    for row in _read(job["rows"]):
        problem = CodeGenerationProblem(**row)
        made[problem.question_id] = format_prompt_generation(problem, LMStyle[STYLE])
    Path(job["out"]).write_text(json.dumps(made))


def score(job: dict[str, Any]) -> None:
    """One line per sample: its key, program, codes, metadata, seconds and the global limit."""
    from lcb_runner.benchmarks.code_generation import CodeGenerationProblem
    from lcb_runner.evaluation import compute_code_generation_metrics as official
    from lcb_runner.lm_styles import LMStyle
    from lcb_runner.utils.extraction_utils import extract_code

    rows = {row["question_id"]: row for row in _read(job["rows"])}
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)
    out = Path(job["out"])
    out.touch()
    factor = stall() if job["stretch"] else 1.0

    def one(sample: dict[str, Any]) -> dict[str, Any]:
        program = sample.get("program")
        if program is None:
            program = extract_code(sample["text"], LMStyle[STYLE])
        timeout = math.ceil(factor * sample.get("timeout", job["timeout"]))
        given = rows[sample["question_id"]]
        if "input_output" not in given:
            given = CodeGenerationProblem(**given).get_evaluation_sample()
        started = time.monotonic()
        codes, metadata = official.evaluate_generations_by_problem(
            ([program], given, False, timeout)
        )
        return {
            "key": sample["key"],
            "program": program,
            "codes": [_plain(code) for code in codes[0]],
            "metadata": {
                name: value if isinstance(value, int | float | str) else str(value)
                for name, value in metadata[0].items()
            },
            "seconds": time.monotonic() - started,
            "timeout": timeout,
            "limit": (timeout + 1) * len(json.loads(given["input_output"])["inputs"]) + 5,
        }

    # One fresh process a sample, as the official pool has it, but started from here: a program
    # that ends its process's parent takes no other sample along.
    def apart(sample: dict[str, Any]) -> None:
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(target=lambda: theirs.send(one(sample)))
        process.start()
        theirs.close()
        try:
            row = ours.recv()
        except (EOFError, OSError):
            row = None
        process.join()
        if row is not None:
            with lock, out.open("a") as file:
                file.write(json.dumps(row) + "\n")

    context = multiprocessing.get_context("fork")
    lock = multiprocessing.Lock()
    with ThreadPoolExecutor(job["workers"]) as pool:
        list(pool.map(apart, json.loads(Path(job["samples"]).read_text())))


def stall() -> float:
    """How much longer to wait: 1 on a machine that others leave alone.

    Otherwise one and a half times the wall time over the processor time of a short busy loop, since
    the load may grow.
    """
    wall, cpu = time.perf_counter(), time.process_time()
    while time.process_time() - cpu < 0.1:
        pass
    found = (time.perf_counter() - wall) / (time.process_time() - cpu)
    return 1.5 * found if found > 1.25 else 1.0


def _plain(code: Any) -> bool | int | float:
    return code if isinstance(code, bool | int | float) else bool(code > 0)


def _read(path: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(path).read_text().split("\n") if line]


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text()))
