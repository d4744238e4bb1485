"""EvalPlus as a benchmark of this project: asks a served model, one row per task and repeat.

Prompts, extraction and scores are the official package's (official.py); generation is ours. Beside
each official verdict stands a strict reading (strict.py); the two are never mixed.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lopd_repro.benchmarks.answers import Answer, Asking, ask_all
from lopd_repro.benchmarks.client import Sampling
from lopd_repro.benchmarks.evalplus.data import make_suite
from lopd_repro.benchmarks.evalplus.environment import (
    VERSION,
    Environment,
    default_python,
    find_environment,
)
from lopd_repro.benchmarks.evalplus.official import Messages, Package, Part, Verdict
from lopd_repro.benchmarks.evalplus.settings import Settings
from lopd_repro.benchmarks.evalplus.strict import Reading, read_strictly, readable_program
from lopd_repro.files import write_json
from lopd_repro.serving.settings import Endpoint
from lopd_repro.settings import build
from lopd_repro.stats.passk import counted, mean_pass_at_k

_THOUGHT = "</think>"
Inputs = dict[str, dict[str, list[Any]]]


class EvalPlus:
    """The benchmark of one group of settings; `folder` is eval/evalplus.

    `report`, after a run, sums up: pass@1 by dataset, and what stands beside the scores: how many
    verdicts a strict reading would change, which of them, time-outs, deaths, reruns.
    """

    name = "evalplus"
    scorer = f"evalplus {VERSION}"

    def __init__(self, settings: Settings, folder: Path) -> None:
        self.settings = settings
        self.folder = folder.resolve()
        sampling = build(Sampling, settings.sampling, "benchmark.sampling")
        self.asking = Asking(
            sampling, settings.repeats, settings.seed, settings.in_flight, settings.overflow
        )
        self.package = Package(
            self._environment(),
            self.folder / "launch.py",
            settings.workers,
            settings.memory_mb,
            settings.wall_seconds,
        )
        self.suite = make_suite(settings, self.folder, self.package.environment)
        self.data = self.suite.label
        self.partial = self.suite.partial
        self.report: dict[str, Any] = {}

    def expected(self) -> list[tuple[str, int]]:
        """Every task and repeat, dataset by dataset."""
        return [
            (problem["task_id"], repeat)
            for part in self.suite.ask
            for repeat in range(self.settings.repeats)
            for problem in part.problems
        ]

    def run(self, endpoint: Endpoint, checkpoint: Path, state: Path) -> list[dict[str, Any]]:
        """Ask, extract, score. Answers in `state` are not asked for again."""
        messages, inputs = self.prompts()
        asked = {task: texts for part in messages.values() for task, texts in part.items()}
        answers = ask_all(self.name, endpoint, asked, self.asking, state / "answers.jsonl")
        rows = self.judge(answers, inputs)
        write_json(state / "report.json", self.report)
        print(f"{self.name}: {_summary(self.report)}", file=sys.stderr, flush=True)
        return rows

    def prompts(self) -> tuple[dict[str, dict[str, Messages]], Inputs]:
        """The official messages by part and task, without their system message unless asked for."""
        messages, inputs = self.package.prompts(self.suite.ask)
        if self.settings.system == "none":
            for part in messages.values():
                for task, texts in part.items():
                    part[task] = [text for text in texts if text["role"] != "system"]
        return messages, inputs

    def judge(
        self, answers: Mapping[tuple[str, int], Answer], inputs: Inputs
    ) -> list[dict[str, Any]]:
        """Rows of answers in the order of `expected`, by the official scorer and read strictly."""
        keys = {
            part.name: [
                (problem["task_id"], repeat)
                for repeat in range(self.settings.repeats)
                for problem in part.problems
            ]
            for part in self.suite.score
        }
        texts = {
            part: [(task, self._answer(answers[task, repeat].text)) for task, repeat in own]
            for part, own in keys.items()
        }
        verdicts = self.package.score(self.suite.score, texts)
        readings = self._strictly(texts, verdicts, inputs) if self.settings.strict else {}
        rows = []
        for part in self.suite.score:
            strict = readings.get(part.name, [None] * len(keys[part.name]))
            for key, verdict, reading in zip(
                keys[part.name], verdicts[part.name], strict, strict=True
            ):
                rows.append(_row(part, key, answers[key], verdict, reading))
        self.report = _report(rows, verdicts, self.settings.strict)
        return rows

    def _answer(self, text: str) -> str:
        if self.settings.thinking == "strip":
            return text.rpartition(_THOUGHT)[2]
        return text

    def _strictly(
        self,
        texts: Mapping[str, list[tuple[str, str]]],
        verdicts: Mapping[str, list[Verdict]],
        inputs: Inputs,
    ) -> dict[str, list[Reading]]:
        programs = {}
        for part in self.suite.score:
            names = {p["task_id"]: part.entry_point(p) for p in part.problems}
            programs[part.name] = [
                (task, readable_program(text, names[task], verdict.program))
                for (task, text), verdict in zip(texts[part.name], verdicts[part.name], strict=True)
            ]
        # Where tests are a function of their own, the inputs of what is asked are none of theirs.
        same = self.suite.ask == self.suite.score
        return read_strictly(
            self.suite.score, programs, inputs if same else None, self.settings.workers
        )

    def _environment(self) -> Environment:
        root = self.folder.parent.parent
        given = self.settings.python
        return find_environment(root / given if given else default_python(root))


def _row(
    part: Part, key: tuple[str, int], answer: Answer, verdict: Verdict, reading: Reading | None
) -> dict[str, Any]:
    status = "ok"
    if answer.overflow or verdict.refused:
        status = "refused"
    elif verdict.late and not verdict.passed:
        status = "timeout"
    row: dict[str, Any] = {
        "task_id": key[0],
        "repeat": key[1],
        "category": part.name,
        "score": float(verdict.passed),
        "base_score": float(verdict.base == "pass"),
        "base_status": verdict.base,
        "plus_status": verdict.plus,
        "status": status,
        "rerun": verdict.alone,
        "died": verdict.died,
        "prompt_tokens": answer.prompt_tokens,
        "new_tokens": answer.tokens,
    }
    if reading is not None:
        row |= {"strict_score": float(reading.right), "strict_reason": reading.reason}
    return row


def _report(
    rows: list[dict[str, Any]], verdicts: Mapping[str, list[Verdict]], strict: bool
) -> dict[str, Any]:
    parts: dict[str, list[tuple[str, bool]]] = {}
    for row in rows:
        parts.setdefault(row["category"], []).append((row["task_id"], row["score"] == 1))
    report: dict[str, Any] = {
        "pass@1": {name: 100 * mean_pass_at_k(counted(own), 1) for name, own in parts.items()},
        "answers": len(rows),
        "right": sum(row["score"] == 1 for row in rows),
        "timeouts": sum(row["status"] == "timeout" for row in rows),
        "died": sum(row["died"] for row in rows),
        "refused": sum(row["status"] == "refused" for row in rows),
        "rerun": sum(row["rerun"] for row in rows),
        "changed_by_rerun": sum(
            verdict.alone and verdict.first != tuple(s for s in (verdict.base, verdict.plus) if s)
            for part in verdicts.values()
            for verdict in part
        ),
    }
    if strict:
        other = [row for row in rows if row["strict_score"] != row["score"]]
        report |= {
            "strictly_right": sum(row["strict_score"] == 1 for row in rows),
            "strict_differs": len(other),
            "differing": [f"{row['task_id']}#{row['repeat']}" for row in other[:50]],
        }
    return report


def _summary(report: dict[str, Any]) -> str:
    names = ("answers", "right", "timeouts", "died", "rerun", "strictly_right", "strict_differs")
    return ", ".join(f"{report[n]} {n.replace('_', ' ')}" for n in names if n in report)
