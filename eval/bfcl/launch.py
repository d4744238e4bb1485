"""Runs the official `bfcl` command inside its own environment; called by adapter.py.

    python launch.py JOB.json

JOB.json holds (see `Job`): the project root, the steps (`generate`, `evaluate`), the model key,
the categories, and what is not the package's own: a data folder in the official form, a model to
register, limits other than the official ones. The package is imported once; each step then
runs in a forked child, because the simulated backends live in module globals and would leak from
one step into the next. The package's code is not changed, with these exceptions, made from here:
its paths and its step limit are constants that are set before anything reads them; each finished
task is also written to `finished.jsonl` at once, where the v3 release would wait for all tasks
before it; and the leaderboard's table over all categories is not written.

This file imports nothing of this project: it runs where only bfcl-eval is installed.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import threading
import traceback
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

RELEASES = {"2025.7.17": "v3", "2026.3.23": "v4"}
FINISHED = "finished.jsonl"


@dataclass(frozen=True)
class Job:
    """What to run.

    project: BFCL_PROJECT_ROOT, also the working directory.
    model: key of the package's model table; handler: `qwen_fc` or `olmo3` (see handlers.py).
    url, served: where the model answers (up to and with /v1) and its name there.
    model_path: folder with config.json and the tokenizer, for handlers that render prompts.
    data: folder in the official form that takes the place of the package's data, or "".
    threads: requests at once, for handlers that let it be set.
    steps_per_turn, max_new_tokens, history, tools_in: see `Settings` in adapter.py.
    """

    project: str
    steps: list[str]
    model: str
    categories: list[str]
    url: str = ""
    served: str = ""
    model_path: str = ""
    data: str = ""
    handler: str = "qwen_fc"
    temperature: float = 0.001
    threads: int = 100
    steps_per_turn: int = 20
    max_new_tokens: int = 4096
    history: str = "official"
    tools_in: str = "template"


def main(arguments: list[str]) -> int:
    """Run a job's steps one after the other; the first that fails decides the exit status."""
    job = Job(**json.loads(Path(arguments[0]).read_text()))
    prepare(job)
    for step in job.steps:
        status = in_child(Path(job.project) / f"{step}.log", lambda step=step: run(step, job))
        if status:
            print(f"{step} failed with status {status}, see {step}.log", file=sys.stderr)
            return status
    return 0


def prepare(job: Job) -> str:
    """Set the package's constants, import it, register the job's model; returns the release."""
    os.environ["BFCL_PROJECT_ROOT"] = job.project
    # Both releases take their endpoint from the environment, under different names.
    host, _, port = job.url.removeprefix("http://").removesuffix("/v1").partition(":")
    os.environ.update(
        VLLM_ENDPOINT=host,
        VLLM_PORT=port,
        REMOTE_OPENAI_BASE_URL=job.url,
        OPENAI_BASE_URL=job.url,
        OPENAI_API_KEY="EMPTY",
        HF_HUB_OFFLINE="1",
        TRANSFORMERS_OFFLINE="1",
        TOKENIZERS_PARALLELISM="false",
        TQDM_DISABLE="1",
    )
    found = version("bfcl-eval")
    if found not in RELEASES:
        raise SystemExit(f"bfcl-eval {found} is installed, allowed: {', '.join(RELEASES)}")
    if job.data:
        paths = importlib.import_module("bfcl_eval.constants.eval_config")
        paths.PROMPT_PATH = Path(job.data)
        paths.MULTI_TURN_FUNC_DOC_PATH = Path(job.data) / "multi_turn_func_doc"
        paths.POSSIBLE_ANSWER_PATH = Path(job.data) / "possible_answer"
    prompts = importlib.import_module("bfcl_eval.constants.default_prompts")
    prompts.MAXIMUM_STEP_LIMIT = job.steps_per_turn
    importlib.import_module("bfcl_eval.__main__")
    sys.path.insert(0, str(Path(__file__).resolve().parent))
    importlib.import_module("handlers").register(job, RELEASES[found])
    return RELEASES[found]


def run(step: str, job: Job) -> None:
    """One official command with this job's arguments."""
    cli = importlib.import_module("bfcl_eval.__main__").cli
    chosen = ["--model", job.model, "--test-category", ",".join(job.categories)]
    if step == "generate":
        keep_finished(Path(job.project) / FINISHED)
        options = ["--temperature", repr(job.temperature), "--num-threads", str(job.threads)]
        options += ["--skip-server-setup", "--exclude-state-log"]
        if job.model_path:
            options += ["--local-model-path", job.model_path]
        cli(["generate", *chosen, *options], standalone_mode=False)
    else:
        # The leaderboard's table reads the data of all categories, of which only some are here.
        runner = importlib.import_module("bfcl_eval.eval_checker.eval_runner")
        runner.generate_leaderboard_csv = lambda *arguments, **named: None
        cli(["evaluate", *chosen], standalone_mode=False)


def keep_finished(path: Path) -> None:
    """Have every task's result appended to `path` as soon as the task ends."""
    generation = importlib.import_module("bfcl_eval._llm_response_generation")
    local = importlib.import_module("bfcl_eval.model_handler.local_inference.base_oss_handler")
    lock = threading.Lock()

    def kept(ask: Any) -> Any:
        def ask_and_keep(*arguments: Any, **named: Any) -> Any:
            result = ask(*arguments, **named)
            line = json.dumps(result, default=str) + "\n"
            with lock, path.open("a") as file:
                file.write(line)
            return result

        return ask_and_keep

    generation.multi_threaded_inference = kept(generation.multi_threaded_inference)
    if hasattr(local.OSSHandler, "_multi_threaded_inference"):  # v3 asks local models here
        ask = local.OSSHandler._multi_threaded_inference
        local.OSSHandler._multi_threaded_inference = kept(ask)


def in_child(log: Path, work: Any) -> int:
    """Run `work` in a forked child with its output in `log`; the child's exit status."""
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
            os.dup2(output, 1)
            os.dup2(output, 2)
            os.chdir(log.parent)
            work()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
