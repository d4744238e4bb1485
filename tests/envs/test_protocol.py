from __future__ import annotations

import math

import pytest

from lopd_repro.envs import parse_action
from lopd_repro.errors import UserError

CALL = '<tool_call>\n{"name": "add", "arguments": {"qty": 2}}\n</tool_call>'


def test_the_first_call_counts_and_all_whole_ones_are_counted() -> None:
    bad = "<tool_call>{oops}</tool_call>"
    action = parse_action(f"<think> hm </think> So: {CALL}{bad}{CALL} bye")
    assert (action.kind, action.name, action.arguments) == ("call", "add", {"qty": 2})
    assert (action.text, action.reasoning, action.n_calls) == ("So:", "hm", 2)
    assert action.calls == (("add", {"qty": 2}), ("add", {"qty": 2}))


def test_every_whole_calls_name_and_arguments_are_kept() -> None:
    texts = ('{"name": "a", "arguments": "{\\"n\\": 1}"}', '{"name": "b", "arguments": "no JSON"}',
             '{"name": "c"}', '{"name": "d", "arguments": null}')  # fmt: skip
    text = "".join(f"<tool_call>{t}</tool_call>" for t in texts)
    assert parse_action(text).calls == (("a", {"n": 1}), ("b", "no JSON"), ("d", None))
    unreadable = parse_action(f"<tool_call>{texts[1]}</tool_call>")
    assert (unreadable.kind, unreadable.calls) == ("error", (("b", "no JSON"),))
    assert parse_action("just words").calls == ()
    block = "<function_calls>a(n=1)\nb()</function_calls>"
    assert parse_action(block, "olmo3").calls == (("a", {"n": 1}), ("b", {}))


def test_a_call_that_is_broken_is_an_error_even_if_a_later_one_is_whole() -> None:
    action = parse_action("<tool_call>{oops}</tool_call>" + CALL)
    assert (action.kind, action.calls) == ("error", (("add", {"qty": 2}),))
    assert action.error == "Error: Failed to parse response to struct response"
    lopd = parse_action("<tool_call>{oops}</tool_call>", variant="lopd")
    assert lopd.error.startswith("Error: malformed response. [{'error': 'Failed to parse")


def test_json_that_breaks_a_parser_is_an_error_and_no_exception() -> None:
    deep = '{"name": "a", "arguments": ' + "[" * 100_000 + "}"
    digits = '{"name": "a", "arguments": {"n": ' + "9" * 5000 + "}}"
    nested = '{"name": "a", "arguments": "' + "[" * 100_000 + '"}'
    for payload in (deep, digits, nested):
        assert parse_action(f"<tool_call>{payload}</tool_call>").kind == "error"


@pytest.mark.parametrize(
    ("block", "arguments"),
    [
        ("add(name='bolt', qty=2)", {"name": "bolt", "qty": 2}),
        (
            "add(flag=true, none=null, no=False, x=None)",
            {"flag": True, "none": None, "no": False, "x": None},
        ),
        ("add(n=-5, f=+1.5)", {"n": -5, "f": 1.5}),
        ('add(list=[1, {"a": [true]}], pair=(1, 2))', {"list": [1, {"a": [True]}], "pair": [1, 2]}),
        ("\n  add(\n    name='a',\n    qty=2,\n  )\n", {"name": "a", "qty": 2}),
        ("add()", {}),
        (r'add(text="a\"b\n\d")', {"text": 'a"b\n\\d'}),
    ],
)
def test_pythonic_arguments(block: str, arguments: dict[str, object]) -> None:
    action = parse_action(f"ok\n<function_calls>{block}</function_calls>", "olmo3")
    assert (action.kind, action.name, action.arguments) == ("call", "add", arguments)
    assert (action.text, action.n_calls) == ("ok", 1)


def test_pythonic_lines_are_calls_and_nan_is_read_as_json_has_it() -> None:
    text = "<function_calls>\nget(x=NaN)\n\n  put(y=1)\n</function_calls>"
    action = parse_action(text, "olmo3")
    assert (action.name, action.n_calls) == ("get", 2)
    assert math.isnan(action.arguments["x"])
    assert parse_action(text + text, "olmo3").n_calls == 4


@pytest.mark.parametrize(
    "block",
    [
        "",
        "add(1)",
        "add(**x)",
        "add(name=other)",
        "add(name=f'{x}')",
        "add(name=b'x')",
        "add(n=1+1)",
        "add(n={1: 2})",
        "add(n={**x})",
        "a.b(c=1)",
        "x = 1",
        "add(n=1",
        "import os",
        "add(n=__import__('os'))",
        "add(n=" + "(" * 5000 + ")",
        "add(n=" + "-" * 100_000 + "1)",
        "add(n=\0)",
    ],
)
def test_pythonic_text_that_is_no_call_is_an_error(block: str) -> None:
    action = parse_action(f"<function_calls>{block}</function_calls>", "olmo3")
    assert (action.kind, action.n_calls) == ("error", 0)
    assert action.error == "Error: Failed to parse response to struct response"


def test_pythonic_reasoning_may_lack_its_opening_tag() -> None:
    inside = "<function_calls>bad(x=1)</function_calls>"
    action = parse_action(f"hm {inside}</think>\n<function_calls>good()</function_calls>", "olmo3")
    assert (action.name, action.reasoning) == ("good", f"hm {inside}")
    assert parse_action("<think>hm</think>Task Completed", "olmo3").text == "Task Completed"
    assert parse_action(f"<think>{inside}", "olmo3").kind == "error"
    assert parse_action("<function_calls>good()", "olmo3").kind == "error"
    assert parse_action("hm</think>", "olmo3").kind == "error"
    assert parse_action("get(x=1)", "olmo3").kind == "text"


def test_unknown_names_are_refused() -> None:
    with pytest.raises(UserError, match="protocol: found 'xml', allowed are qwen3, olmo3"):
        parse_action("x", "xml")  # type: ignore[arg-type]
    with pytest.raises(UserError, match="variant: found 'x', allowed are envscaler, lopd"):
        parse_action("x", "qwen3", "x")  # type: ignore[arg-type]
