"""Official verdicts on given calls or replies; runs inside the v4 environment of bfcl-eval.

    python check_cases.py < CASES.json > VERDICTS.json

A case has an official task's `id` and either `model_calls_decoded` (calls turn by turn and step by
step, for the checker) or `model_result_raw` and `handler` (replies, for the evaluation of one
entry). A verdict is `valid` and, of a failed case, what `recorded` keeps.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from types import SimpleNamespace
from typing import Any


def recorded(result: dict[str, Any]) -> dict[str, Any]:
    """The parts of an official result that golden cases hold."""
    if result["valid"]:
        return {"valid": True}
    error = result.get("error", result)
    details = error.get("details", {})
    kept = {"valid": False, "error_type": error["error_type"]}
    kept["error_message"] = error["error_message"]
    if "differences" in details:
        kept["differing_attributes"] = sorted(details["differences"])
    if "missing_items" in details:
        kept["missing_items"] = details["missing_items"]
    return kept


def verdicts(cases: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One verdict per case; each under a model name of its own, since backends are global."""
    from bfcl_eval.eval_checker import eval_runner
    from bfcl_eval.eval_checker.multi_turn_eval.multi_turn_checker import multi_turn_checker
    from bfcl_eval.model_handler.utils import default_decode_execute_prompting
    from bfcl_eval.utils import load_dataset_entry, load_ground_truth_entry

    handlers = {
        "qwen_fc": eval_runner.get_handler("Qwen/Qwen3-8B-FC"),
        "prompting": SimpleNamespace(decode_execute=default_decode_execute_prompting),
    }
    categories = {case["id"].rpartition("_")[0] for case in cases}
    entries = {e["id"]: e for c in sorted(categories) for e in load_dataset_entry(c)}
    truths = {e["id"]: e for c in sorted(categories) for e in load_ground_truth_entry(c)}
    found = []
    for index, case in enumerate(cases):
        entry, truth = entries[case["id"]], truths[case["id"]]["ground_truth"]
        category, name = case["id"].rpartition("_")[0], f"case_{index}"
        if "model_calls_decoded" in case:
            result = multi_turn_checker(case["model_calls_decoded"], truth, entry, category, name)
        else:
            result = eval_runner._evaluate_single_multi_turn_entry(
                handlers[case["handler"]],
                case["id"],
                case["model_result_raw"],
                truth,
                dict(entry),
                name,
                category,
            )
        found.append(recorded(result))
    return found


if __name__ == "__main__":
    os.environ["BFCL_PROJECT_ROOT"] = os.environ.get("TMPDIR", ".")
    with contextlib.redirect_stdout(sys.stderr):
        answer = verdicts(json.load(sys.stdin))
    json.dump(answer, sys.stdout)
