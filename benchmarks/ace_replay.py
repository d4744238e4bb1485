"""Replays ACEBench's milestones through the official code, with our wrapper and without it.

    python benchmarks/ace_replay.py --repository DIR --python ENV/bin/python

A scripted endpoint plays each task's milestones, whole and without the last one. Once our
wrapper starts the official code (relay, sandbox, launcher), once the unmodified programs run by
themselves. Final states, agent texts and both scores must be equal, task by task, and equal to
this project's scorer. Tasks with equal questions are run apart, since an endpoint cannot tell
them from each other. Exit status 1 if anything differs.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from lopd_repro.benchmarks.ace import repository
from lopd_repro.benchmarks.ace.official import OfficialSettings, OfficialSuite
from lopd_repro.benchmarks.ace.scorer import score
from lopd_repro.experience.endpoint import EndpointSettings
from lopd_repro.serving.settings import Endpoint

FOLDER = Path(__file__).resolve().parents[1] / "eval" / "acebench"
END = "finish conversation"
DONE = "That was the last step."
BARE_MODEL = "gpt-4o"  # a name in the official table
Rows = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Part:
    """Tasks whose questions all differ."""

    tasks: Rows
    answers: Rows


def read(folder: Path) -> Part:
    tasks: Rows = {}
    answers: Rows = {}
    for name in repository.data_files():
        rows = [json.loads(line) for line in (folder / name).read_text().splitlines()]
        (answers if "possible" in name else tasks).update({row["id"]: row for row in rows})
    return Part(tasks, answers)


def parts(whole: Part) -> list[Part]:
    """The tasks, split so that no two tasks of a part have equal questions."""
    found: list[Part] = []
    for name, task in whole.tasks.items():
        for part in found:
            if all(task["question"] != other["question"] for other in part.tasks.values()):
                break
        else:
            part = Part({}, {})
            found.append(part)
        part.tasks[name] = task
        part.answers[name] = whole.answers[name]
    return found


class Script:
    """The agent's and the user's next texts, from the request alone."""

    def __init__(self, part: Part, drop_last: bool) -> None:
        self._part = part
        self._drop = drop_last

    def agent(self, messages: list[dict[str, str]]) -> str:
        prompt = messages[-1]["content"]
        name = next(
            name
            for name, task in self._part.tasks.items()
            if f"user:{self._opening(name, task)}\n" in prompt
        )
        stones = self._part.answers[name]["mile_stone"]
        stones = stones[0] if isinstance(stones[0], list) else stones
        stones = stones[: len(stones) - self._drop]
        # Multi-step prompts never show the agent its own calls, only their results.
        at = prompt.count("\nagent:" if "multi_turn" in name else "\nexecution result:")
        if at < len(stones):
            return str(stones[at])
        return DONE if "multi_turn" in name else END

    def user(self, messages: list[dict[str, str]]) -> str:
        name, task = next(
            (name, task)
            for name, task in self._part.tasks.items()
            if f"Instruction: {task['question']}\n" in messages[0]["content"]
        )
        if len(messages) == 2:
            return self._opening(name, task)
        return END if messages[-1]["content"] == DONE else "Please go on."

    @staticmethod
    def _opening(name: str, task: dict[str, Any]) -> str:
        return f"This is {name}." if "multi_turn" in name else str(task["question"])


@contextmanager
def serving(script: Script) -> Iterator[str]:
    """The scripted endpoint's address without a path."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            play = script.user if self.path.startswith("/user/") else script.agent
            message = {"role": "assistant", "content": play(body["messages"])}
            choice = {"index": 0, "finish_reason": "stop", "message": message}
            answer = {"id": "x", "object": "chat.completion", "created": 0, "model": "x"}
            text = json.dumps({**answer, "choices": [choice]}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *args: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


def wrapped(url: str, part: Part, folder: Path, python: str, work: Path) -> tuple[Rows, Rows]:
    """Result rows and scores by our wrapper."""
    settings = OfficialSettings(repository=str(folder), python=python)
    user = EndpointSettings(f"{url}/user/v1", "scripted")
    suite = OfficialSuite(FOLDER, settings, user, only=list(part.tasks))
    rows = suite.run(Endpoint(f"{url}/agent/v1", "scripted", {}), work, work)
    results = [
        json.loads(line)
        for file in work.glob("*/repeat0/result_all/result_en/*/*.json")
        for line in file.read_text().splitlines()
    ]
    return {r["id"]: r for r in results}, {r["task_id"]: r for r in rows}


def bare(url: str, part: Part, folder: Path, python: str, work: Path) -> tuple[Rows, Rows]:
    """Result rows and scores by the unmodified programs."""
    for name in repository.data_files():
        rows = part.answers if "possible" in name else part.tasks
        kept = [row for key, row in rows.items() if name.endswith(f"_{key.rsplit('_', 1)[0]}.json")]
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        (work / name).write_text("".join(json.dumps(row) + "\n" for row in kept))
    for module in ("vllm.py", "google/__init__.py", "google/generativeai.py"):
        path = work / "absent" / module
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("LLM = SamplingParams = None\n")
    for category in repository.COUNTS:
        file = work / f"result_all/result_en/{BARE_MODEL}/data_agent_{category}_result.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    (work / f"score_all/score_en/{BARE_MODEL}").mkdir(parents=True)
    environment = {
        **os.environ,
        "PYTHONPATH": str(work / "absent"),
        "PYTHONDONTWRITEBYTECODE": "1",
        "TQDM_DISABLE": "1",
        "GPT_AGENT_BASE_URL": f"{url}/agent/v1",
        "GPT_BASE_URL": f"{url}/user/v1",
        "GPT_AGENT_API_KEY": "none",
        "GPT_API_KEY": "none",
    }

    def official(*arguments: str) -> None:
        subprocess.run(
            [python, *arguments], cwd=work, env=environment, check=True, capture_output=True
        )

    common = ("--model", BARE_MODEL, "--category", "agent", "--language", "en")
    official(str(folder / "generate.py"), *common, "--num-threads", "4")
    results: Rows = {}
    scores: Rows = {}
    for file in sorted((work / "result_all/result_en" / BARE_MODEL).glob("*.json")):
        rows_of_file = [json.loads(line) for line in file.read_text().splitlines()]
        results |= {row["id"]: row for row in rows_of_file}
    # The programs print averages only: one evaluation per task gives the task's own scores.
    alone = work / "alone.py"
    alone.write_text(ALONE)
    official(str(alone), str(folder), BARE_MODEL)
    for row in json.loads((work / "alone.json").read_text()):
        scores[row["id"]] = row
    return results, scores


ALONE = """
import json, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import eval_main
eval_main.OUTPUT_PATH, eval_main.language = "./score_all/score_en/", "en"
scores = []
for name in ("agent_multi_step", "agent_multi_turn"):
    files = (f"result_all/result_en/{sys.argv[2]}/data_{name}_result.json",
             f"data_all/data_en/data_{name}.json",
             f"data_all/data_en/possible_answer/data_{name}.json")
    read = ([json.loads(line) for line in Path(f).read_text().splitlines()] for f in files)
    for result, task, answer in zip(*read, strict=True):
        end, process = eval_main.agent_eval([result], [task], [answer], name, sys.argv[2])
        scores.append({"id": result["id"], "score": end, "process": process})
Path("alone.json").write_text(json.dumps(scores))
"""


def compare(part: Part, ours: tuple[Rows, Rows], theirs: tuple[Rows, Rows]) -> list[str]:
    """Ids of tasks that differ in state, texts, official scores or our scorer's."""
    different = []
    for name in part.tasks:
        mine, plain = ours[0][name], theirs[0][name]
        verdict = score(plain["result"], plain["process"], part.answers[name])
        scores = {
            (ours[1][name]["score"], round(ours[1][name]["process"], 3)),
            (theirs[1][name]["score"], theirs[1][name]["process"]),
            (verdict.end_to_end, round(verdict.process, 3)),
        }
        same = all(mine[field] == plain[field] for field in ("id", "result", "process"))
        if not same or len(scores) != 1:
            print(name, same, scores, mine, plain)
            different.append(name)
    return different


def replay(folder: Path, python: str, drop_last: bool) -> tuple[dict[str, list[float]], list[str]]:
    """Scores by category and measure, and the ids of tasks that differ."""
    different: list[str] = []
    means: dict[str, list[float]] = {}
    for part in parts(read(folder)):
        with serving(Script(part, drop_last)) as url, tempfile.TemporaryDirectory() as scratch:
            mine, plain = Path(scratch, "wrapped"), Path(scratch, "bare")
            for path in (mine, plain):
                path.mkdir()
            ours = wrapped(url, part, folder, python, mine)
            theirs = bare(url, part, folder, python, plain)
        different += compare(part, ours, theirs)
        for name, row in ours[1].items():
            category = name.rsplit("_", 1)[0].removeprefix("agent_")
            means.setdefault(f"{category} end-to-end", []).append(row["score"])
            means.setdefault(f"{category} process", []).append(row["process"])
    return means, different


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repository", default=os.environ.get(repository.REPOSITORY.variable, ""))
    parser.add_argument("--python", required=True, help="interpreter with requirements.txt")
    arguments = parser.parse_args()
    folder = repository.REPOSITORY.locate(arguments.repository, FOLDER / "official")
    status = 0
    for drop_last in (False, True):
        start = time.time()
        means, different = replay(folder, arguments.python, drop_last)
        print("milestones without the last" if drop_last else "all milestones")
        for name, values in sorted(means.items()):
            print(f"  {name}: {sum(values):.3f} of {len(values)}")
        print(
            f"  tasks that differ: {', '.join(different) or 'none'}  ({time.time() - start:.0f} s)"
        )
        status |= bool(different)
    return status


if __name__ == "__main__":
    sys.exit(main())
