"""Starts the official ACEBench code inside its own environment; needs nothing of this project.

    python launch.py JOB.json

The job names the repository, a working folder (with `data_all/data_en/`), what to do
(`generate` or `score`) and the options. The official code stays as it is; this file makes its
unused imports harmless, enters our model's name in its table, and counts.

Names that the official code sees: `gpt-served` (the checkpoint) and `gpt-user` (the user
simulator), because it picks the endpoint's variables by the word `gpt`.
"""

from __future__ import annotations

import functools
import json
import os
import runpy
import sys
import threading
import types
from pathlib import Path
from typing import Any

MODEL, USER = "gpt-served", "gpt-user"
CATEGORIES = ("multi_step", "multi_turn")


def main(job: dict[str, Any]) -> None:
    work = Path(job["work"])
    os.chdir(work)
    sys.path.insert(0, job["repository"])
    _leave_out("vllm", "LLM", "SamplingParams")
    _leave_out("google", "generativeai")
    _leave_out("google.generativeai")
    if job["do"] == "generate":
        _generate(job)
    else:
        _score(job)


def _leave_out(name: str, *members: str) -> None:
    """An empty module for an import that agent tasks never use."""
    module = types.ModuleType(name)
    for member in members:
        setattr(module, member, None)
    sys.modules[name] = module


def _generate(job: dict[str, Any]) -> None:
    os.environ |= {
        "GPT_AGENT_BASE_URL": job["agent_url"],
        "GPT_BASE_URL": job["user_url"],
        "GPT_AGENT_API_KEY": "none",
        "GPT_API_KEY": "none",
    }
    import openai

    # Waiting and asking again are the relay's business.
    openai.OpenAI = functools.partial(openai.OpenAI, timeout=None, max_retries=0)
    from model_inference import apimodel_inference as official
    from model_inference.inference_map import inference_map

    counts = threading.local()
    lock = threading.Lock()

    def counted(kind: Any) -> Any:
        class Counted(kind):  # type: ignore[misc]
            def respond(self, *given: Any) -> Any:
                counts.steps += 1
                return super().respond(*given)

        return Counted

    official.APIAgent_turn = counted(official.APIAgent_turn)
    step = counted(official.APIAgent_step)
    if job["multi_step_language"] == "zh":
        official.APIAgent_step = step  # the official code passes no language on
    else:
        official.APIAgent_step = functools.partial(step, language=job["multi_step_language"])

    class Inference(official.APIModelInference):  # type: ignore[misc]
        def inference(self, question: Any, functions: Any, time: Any, *rest: Any) -> Any:
            counts.steps = 0
            failure = ""
            try:
                answer = super().inference(question, functions, time, *rest)
            except openai.OpenAIError:
                raise  # the endpoint's failure is never a score
            except Exception as error:
                if not job["alone"]:
                    raise  # may come from another thread's files; the task is tried again alone
                failure, answer = f"{type(error).__name__}: {error}", ([], [])
            row = {"id": rest[-1], "steps": counts.steps, "harness_error": failure}
            with lock, Path("counts.jsonl").open("a") as file:
                file.write(json.dumps(row) + "\n")
            return answer

        def write_result(self, *given: Any) -> None:
            with lock:  # long rows of two threads could mix
                super().write_result(*given)

    inference_map[MODEL] = Inference
    sys.argv = [
        "generate.py", "--model", MODEL, "--category", "agent", "--language", "en",
        "--user-model", USER, "--num-threads", str(job["threads"]),
        "--max-dialog-turns", str(job["max_dialog_turns"]),
    ]  # fmt: skip
    runpy.run_path(str(Path(job["repository"]) / "generate.py"), run_name="__main__")


def _score(job: dict[str, Any]) -> None:
    """Official scores of each task alone, and of all tasks together."""
    import eval_main

    eval_main.OUTPUT_PATH, eval_main.language = "./score_all/score_en/", "en"
    Path("score_all/score_en", MODEL).mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, Any]] = []
    totals: dict[str, Any] = {}
    for category in CATEGORIES:
        name = f"agent_{category}"
        data = Path("data_all/data_en")
        results = _rows(Path(f"result_all/result_en/{MODEL}/data_{name}_result.json"))
        tasks = _rows(data / f"data_{name}.json")
        answers = _rows(data / f"possible_answer/data_{name}.json")
        for entry in zip(results, tasks, answers, strict=True):
            if len({row["id"] for row in entry}) != 1:
                raise SystemExit(f"rows do not match: {[row['id'] for row in entry]}")
            alone = ([row] for row in entry)
            end_to_end, process = eval_main.agent_eval(*alone, name, MODEL)
            rows.append({"id": entry[0]["id"], "end_to_end": end_to_end, "process": process})
        totals[category] = eval_main.agent_eval(results, tasks, answers, name, MODEL)
    Path("scores.json").write_text(json.dumps({"tasks": rows, "totals": totals}))


def _rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text()))
