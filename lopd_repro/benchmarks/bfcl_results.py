"""Result and score files of one official BFCL run: what has finished, what failed, the rows.

Layout under the project root: `result/MODEL/[multi_turn/]BFCL_v3_CATEGORY_result.json` and
`score/...`, one JSON object a line; `finished.jsonl` is the launcher's list of finished tasks.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lopd_repro.benchmarks.bfcl_data import Release, read_lines
from lopd_repro.errors import UserError
from lopd_repro.files import write_text

Entry = dict[str, Any]
FINISHED = "finished.jsonl"
OVERFLOW = ("maximum context length", "context_length_exceeded")
"""Parts of the error text of an endpoint to which a prompt is too long."""


def failed(entry: Entry) -> bool:
    """Whether the request failed: the harness stores its error text in place of the turns."""
    return not isinstance(entry.get("result"), list)


def overflowed(entry: Entry) -> bool:
    """Whether the request failed because the conversation is longer than the model's context."""
    return failed(entry) and any(part in str(entry.get("result")) for part in OVERFLOW)


@dataclass(frozen=True)
class Results:
    """The files of one project root.

    overflow: `refuse` makes a conversation beyond the context an error like any other; `zero`
    keeps it as a finished task, which the official checker counts as failed.
    """

    project: Path
    release: Release
    model: str
    overflow: str = "refuse"

    def folder(self, kind: str) -> Path:
        """Folder of `result` or `score` files."""
        return self.project / kind / self.model.replace("/", "_") / self.release.group

    def file(self, kind: str, category: str) -> Path:
        """Path of a category's `result` or `score` file."""
        return self.folder(kind) / f"{self.release.prefix}_{category}_{kind}.json"

    def entries(self, ids: Sequence[str]) -> dict[str, Entry]:
        """What is known of each task: a finished entry where there is one, else a failed one.

        A last line that a crash cut short is no entry; neither is one of a task not asked for.
        """
        known: dict[str, Entry] = {}
        wanted = set(ids)
        files = [self.project / FINISHED, *sorted(self.folder("result").glob("*_result.json"))]
        for line in (line for path in files if path.is_file() for line in _lines(path)):
            task = line.get("id")
            if task in wanted and (task not in known or self.unfinished(known[task])):
                known[str(task)] = line
        return known

    def unfinished(self, entry: Entry) -> bool:
        """Whether the task must be asked again."""
        return failed(entry) and not (self.overflow == "zero" and overflowed(entry))

    def resume(self, ids: Sequence[str]) -> list[str]:
        """Put the finished tasks, and nothing else, into the result files; their ids.

        The official command then asks for the others alone.
        """
        known = self.entries(ids)
        finished = [task for task in ids if task in known and not self.unfinished(known[task])]
        shutil.rmtree(self.project / "score", ignore_errors=True)
        if self.folder("result").is_dir():
            for path in self.folder("result").glob("*_result.json"):
                path.unlink()
        by_category: dict[str, list[Entry]] = {}
        for task in finished:
            by_category.setdefault(_category(task), []).append(known[task])
        lines = {c: "".join(json.dumps(e) + "\n" for e in rows) for c, rows in by_category.items()}
        # The list of finished tasks is rewritten first: a crash in between loses nothing.
        write_text(self.project / FINISHED, "".join(lines.values()))
        for category, text in lines.items():
            write_text(self.file("result", category), text)
        return finished

    def refuse_failures(self, ids: Sequence[str]) -> None:
        """`UserError` that names the tasks whose requests failed, with one of the reasons."""
        known = self.entries(ids)
        bad = [task for task in ids if task in known and self.unfinished(known[task])]
        if bad:
            done = sum(task in known for task in ids) - len(bad)
            reason = " ".join(str(known[bad[0]].get("result")).split())[:200]
            named = ", ".join(bad[:5]) + (f" and {len(bad) - 5} more" if len(bad) > 5 else "")
            hint = ""
            if overflowed(known[bad[0]]):
                hint = "; benchmark.overflow: zero would count such tasks as failed"
            raise UserError(
                f"bfcl: the endpoint failed in {len(bad)} of {len(ids)} tasks ({named}): "
                f"{reason}; {done} finished tasks are kept for the next attempt{hint}"
            )

    def rows(self, ids: Sequence[str]) -> list[dict[str, Any]]:
        """One row per task, its score from the official checker's file."""
        known = self.entries(ids)
        missing = [task for task in ids if task not in known]
        if missing:
            raise UserError(
                f"bfcl: {len(missing)} of {len(ids)} tasks have no result, the first is "
                f"{missing[0]}; the others are kept for the next attempt"
            )
        categories = list(dict.fromkeys(map(_category, ids)))
        verdicts: dict[str, str] = {}
        for category in categories:
            verdicts |= self.verdicts(category, [t for t in ids if _category(t) == category])
        return [_row(known[task], verdicts[task]) for task in ids]

    def verdicts(self, category: str, ids: Sequence[str]) -> dict[str, str]:
        """Error type per task, "" where the official checker passed it.

        The score file holds a summary and one entry per failed task; the two must agree.
        """
        path = self.file("score", category)
        summary, *failures = read_lines(path) or [{}]
        errors: dict[str, str] = {}
        for failure in failures:
            errors.setdefault(str(failure["id"]), str(failure["error"]["error_type"]))
        right, total = summary.get("correct_count"), summary.get("total_count")
        if total != len(ids) or not set(errors) <= set(ids) or right != total - len(errors):
            raise UserError(
                f"{path}: {right} of {total} right and {len(errors)} failures do not fit the "
                f"{len(ids)} tasks that were asked"
            )
        return {task: errors.get(task, "") for task in ids}


def _lines(path: Path) -> list[Entry]:
    found = []
    for line in path.read_text(errors="replace").splitlines():
        try:
            value = json.loads(line)
        except ValueError:
            continue  # cut short by a crash
        if isinstance(value, dict):
            found.append(value)
    return found


def _category(task: str) -> str:
    return task.rpartition("_")[0]


def _row(entry: Entry, error_type: str) -> dict[str, Any]:
    turns = entry["result"] if isinstance(entry["result"], list) else []
    refused = overflowed(entry)
    return {
        "task_id": entry["id"],
        "repeat": 0,
        "category": _category(entry["id"]),
        "score": 0.0 if error_type else 1.0,
        "status": "refused" if refused else "ok",
        "error_type": "context overflow" if refused else error_type,
        "turns": len(turns),
        "steps": sum(len(turn) for turn in turns),
        "calls": _calls(entry),
        "prompt_tokens": _total(entry.get("input_token_count")),
        "new_tokens": _total(entry.get("output_token_count")),
    }


def _calls(entry: Entry) -> int:
    """Calls that were run, by the harness's own log of each step."""
    steps = [
        log
        for turn in entry.get("inference_log", [])
        if isinstance(turn, dict)
        for name, step in turn.items()
        if name.startswith("step_")
        for log in step
    ]
    return sum(
        len(log["model_response_decoded"])
        for log in steps
        if log.get("role") == "handler_log" and str(log.get("content")).startswith("Success")
    )


def _total(counts: Any) -> int:
    if isinstance(counts, list):
        return sum(_total(count) for count in counts)
    return int(counts or 0)
