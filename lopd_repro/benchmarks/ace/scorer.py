"""ACEBench's two agent scores: end-to-end and process.

End-to-end is 1 if the final state holds what the ground truth asks for. Process is 1 if
end-to-end is; otherwise the share of milestones, as exact texts in order, up to the first that
the agent never reached.

Official readings kept here: attributes that the state lacks are no error; extra keys inside an
attribute are none either, at one level; of several milestone lists the best counts, rounded to
three places. A ground truth that names a class the state does not have is by default not checked
(`unmatched="unchecked"`), and inherits the verdict of the class before it, as in the official
code; `unmatched="wrong"` makes it an error.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from lopd_repro.errors import UserError

Unmatched = Literal["unchecked", "wrong"]
UNMATCHED: tuple[Unmatched, ...] = ("unchecked", "wrong")
State = Sequence[Mapping[str, Any]]
WRONG_COUNT = "wrong number of class"
WRONG_ATTRIBUTES = "class attributes wrong"


@dataclass(frozen=True)
class Verdict:
    """A task's scores; `errors` holds one list of texts per wrong class."""

    end_to_end: float
    process: float
    error_type: str = ""
    errors: list[list[str]] = field(default_factory=list)


def score(
    state: State,
    texts: Sequence[str],
    answer: Mapping[str, Any],
    unmatched: Unmatched = "unchecked",
) -> Verdict:
    """Scores of a final state and the agent's call texts against an answer row.

    `answer` has `ground_truth` (a list of `{class: attributes}`, or one) and `mile_stone` (a list
    of texts, or a list of such lists).
    """
    error_type, errors = check_state(state, answer["ground_truth"], unmatched)
    if not error_type:
        return Verdict(1.0, 1.0)
    return Verdict(0.0, process_score(texts, answer["mile_stone"]), error_type, errors)


def check_state(
    state: State, ground_truth: State | Mapping[str, Any], unmatched: Unmatched = "unchecked"
) -> tuple[str, list[list[str]]]:
    """What is wrong with a state: an error type, empty if nothing is, and error texts."""
    # Through JSON, where keys are texts: a live state may have whole numbers as keys.
    found: list[dict[str, Any]] = json.loads(json.dumps(list(state)))
    truths = _as_list(ground_truth)
    if len(truths) != len(found):
        return WRONG_COUNT, []
    errors: list[list[str]] = []
    problems: list[str] = []
    for truth in truths:
        match = next((entry for entry in found if set(entry) == set(truth)), None)
        if match:
            problems = _compare(match, truth)
        elif unmatched == "wrong":
            problems = [f"class({', '.join(truth)}) missing in the state."]
        if problems:
            errors.append(problems)
    return (WRONG_ATTRIBUTES if errors else ""), errors


def process_score(texts: Sequence[str], milestones: Sequence[Any]) -> float:
    """Share of milestones reached, in 0..1; the best of several lists.

    `IndexError` for an empty `milestones`, as in the official code.
    """
    if isinstance(milestones[0], list):
        return max(round(_reached(texts, option), 3) for option in milestones)
    return _reached(texts, milestones)


def unchecked_tasks(answers: Mapping[str, Any], classes: Mapping[str, Sequence[str]]) -> list[str]:
    """Tasks whose ground truth names a class that their state cannot have, by id."""
    touched = []
    for task_id, answer in answers.items():
        named = {name for truth in _as_list(answer["ground_truth"]) for name in truth}
        if named - set(classes[task_id]):
            touched.append(task_id)
    return touched


def check_option(unmatched: str) -> None:
    """Refuse an unknown choice."""
    if unmatched not in UNMATCHED:
        raise UserError(f"acebench.unmatched: found {unmatched!r}, allowed: {', '.join(UNMATCHED)}")


def _as_list(ground_truth: Any) -> list[dict[str, Any]]:
    return ground_truth if isinstance(ground_truth, list) else [ground_truth]


def _reached(texts: Sequence[str], milestones: Sequence[str]) -> float:
    if not milestones:
        return 1.0
    at = reached = 0
    for milestone in milestones:
        while at < len(texts):
            at += 1
            if texts[at - 1].strip() == milestone.strip():
                reached += 1
                break
    return reached / len(milestones)


def _compare(found: Mapping[str, Any], truth: Mapping[str, Any]) -> list[str]:
    name, wanted = next(iter(truth.items()))
    problems = []
    for attribute, value in next(iter(found.values())).items():
        where = f"class({name}) attributes({attribute}"
        if attribute not in wanted:
            problems.append(f"{where}) missing in possible_answer.")
            continue
        right = wanted[attribute]
        whole = f"{where}) wrong, [expected: {right}, real: {value}]"
        if not isinstance(right, dict):
            if right != value:
                problems.append(whole)
            continue
        for key, part in right.items():
            if not isinstance(value, dict) or key not in value:
                problems.append(whole)
            elif part != value[key]:
                problems.append(f"{where}.{key}) wrong, [expected: {part}, real: {value[key]}]")
    return problems
