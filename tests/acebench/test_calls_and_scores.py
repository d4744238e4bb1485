"""Call lists and the two agent scores, with expected values by hand."""

from __future__ import annotations

from typing import Any

import pytest

from lopd_repro.benchmarks.ace.calls import (
    Call,
    call_list,
    looks_like_calls,
    parse_calls,
    strip_thoughts,
)
from lopd_repro.benchmarks.ace.scorer import process_score, score, unchecked_tasks
from lopd_repro.errors import UserError


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        ("[f()]", [Call("f", {})]),
        (" [f(a='x', b=-2)] ", [Call("f", {"a": "x", "b": -2})]),
        ("[f(a=1), g(b=[1, 'y'])]", [Call("f", {"a": 1}), Call("g", {"b": [1, "y"]})]),
        ("f(a={'k': (1, 2)})", [Call("f", {"a": {"k": (1, 2)}})]),
        ("[app.f(a=Oslo, b=True)]", [Call("app.f", {"a": "Oslo", "b": True})]),
        # Arguments without a name are dropped, as in the official parser.
        ("[f(3, a=4)]", [Call("f", {"a": 4})]),
        ("[f(3, **{'a': 4})]", [Call("f", {})]),
        ("[f(a=2)", [Call("f", {"a": 2})]),
    ],
)
def test_call_lists(text: str, calls: list[Call]) -> None:
    assert parse_calls(text) == calls


@pytest.mark.parametrize(
    "text",
    [
        "", "hello", "[x]", "[f(a=)]", "[f(a=1+1)]", "[f(a=lambda: 1)]", "[f(a=9**9**9)]",
        "[f(a=__import__('os').getcwd())]", "[(lambda: 1)()]", "[f(a={[]: 1})]",
        "[f(a=" + "(" * 500 + ")]", "[f(a='" + "x" * 5000 + "')]", "\0[f()]",
    ],
)  # fmt: skip
def test_what_is_no_call_list(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_calls(text)


def test_writing_a_call_list() -> None:
    assert call_list(Call("f", {"a": "x", "n": 3}), Call("g", {})) == "[f(a='x', n=3), g()]"
    assert looks_like_calls("so: [f()]")
    assert not looks_like_calls("Which city?")


def test_thoughts_are_taken_out() -> None:
    assert strip_thoughts("<think>\n[f()]\n</think>\n\n[g()]") == "[g()]"
    assert strip_thoughts("a <think>b") == "a"


TRUTH: list[dict[str, Any]] = [{"A": {"x": 1}}, {"B": {"m": {"1": {"y": 2}}}}]
STONES = ["[f()]", "[g()]", "[h()]"]


def answer(truth: Any = None, stones: Any = None) -> dict[str, Any]:
    return {"ground_truth": truth or TRUTH, "mile_stone": stones or STONES}


def test_a_right_state_scores_one_whatever_the_way() -> None:
    # Whole-number keys become texts, the extra key 2 of m is ignored, B's order is free.
    state = [{"B": {"m": {1: {"y": 2}, 2: {}}}}, {"A": {"x": 1}}]
    verdict = score(state, [], answer())
    assert (verdict.end_to_end, verdict.process, verdict.errors) == (1.0, 1.0, [])
    assert score([{"A": {}}, {"B": {}}], [], answer()).end_to_end == 1.0


@pytest.mark.parametrize(
    ("state", "problems"),
    [
        ([{"A": {"x": 2}}, TRUTH[1]], 1),
        ([{"A": {"x": 1, "z": 0}}, TRUTH[1]], 1),
        ([TRUTH[0], {"B": {"m": {}}}], 1),
        ([TRUTH[0], {"B": {"m": {"1": {"y": 2, "z": 0}}}}], 1),
        ([TRUTH[0], {"B": {"m": 3}}], 1),
        ([], 0),
        ([TRUTH[0]], 0),
    ],
)
def test_a_wrong_state_scores_zero(state: list[Any], problems: int) -> None:
    verdict = score(state, ["[f()]", "[x()]", "[g()]"], answer())
    assert verdict.end_to_end == 0.0
    assert verdict.process == 2 / 3
    assert len(verdict.errors) == problems


def test_the_process_stops_at_the_first_missing_milestone() -> None:
    assert process_score(["[f()]", "[h()]"], STONES) == 1 / 3
    assert process_score(["[h()]", "[g()]", "[f()]"], STONES) == 1 / 3
    assert process_score([" [f()] ", "[g()]\n", "[h()]"], STONES) == 1.0
    assert process_score(['[f(a="x")]'], ["[f(a='x')]"]) == 0.0
    # Of several lists the best, to three places: 2 of 3, 0 of 1.
    assert process_score(["[f()]", "[g()]"], [STONES, ["[z()]"]]) == 0.667
    with pytest.raises(IndexError):
        process_score([], [])


def test_a_wrongly_named_class_is_a_choice() -> None:
    truth = [{"A": {"x": 1}}, {"Bee": {"m": 0}}]
    state = [{"A": {"x": 1}}, {"B": {"m": 5}}]
    assert score(state, [], answer(truth)).end_to_end == 1.0
    assert score(state, [], answer(truth), "wrong").end_to_end == 0.0
    assert unchecked_tasks({"t": answer(truth), "u": answer()}, {"t": "AB", "u": "AB"}) == ["t"]


def test_an_unknown_choice_is_refused() -> None:
    from lopd_repro.benchmarks.ace.scorer import check_option

    with pytest.raises(UserError, match="found 'maybe', allowed: unchecked, wrong"):
        check_option("maybe")
