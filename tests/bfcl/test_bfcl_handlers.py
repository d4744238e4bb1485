"""How the Olmo3 handler reads a reply; the package is not needed for that."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

PATH = Path(__file__).parents[2] / "eval" / "bfcl" / "handlers.py"


@pytest.fixture(scope="module")
def handlers() -> ModuleType:
    spec = importlib.util.spec_from_file_location("bfcl_handlers", PATH)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def reply(content: str | None, **more: object) -> SimpleNamespace:
    return SimpleNamespace(content=content, **{"tool_calls": None, **more})


def test_calls_in_the_text(handlers: ModuleType) -> None:
    text = (
        "<think>\nls first </think>\nLooking.\n<function_calls>\n"
        "ls(a=true)\n  mv(source='a', n=-1.5, to=[null, {'k': False}])\n</function_calls>"
    )
    reasoning, said, calls = handlers.read_reply(reply(text))
    assert (reasoning, said) == ("ls first", "Looking.")
    assert calls == [
        ("call_0", "ls", '{"a": true}'),
        ("call_1", "mv", '{"source": "a", "n": -1.5, "to": [null, {"k": false}]}'),
    ]


def test_calls_that_the_server_has_read(handlers: ModuleType) -> None:
    function = SimpleNamespace(name="ls", arguments='{"a": true}')
    served = [SimpleNamespace(id="x7", function=function)]
    found = handlers.read_reply(reply(None, tool_calls=served, reasoning_content="why"))
    assert found == ("why", "", [("x7", "ls", '{"a": true}')])


@pytest.mark.parametrize(
    "block",
    [
        "ls(",
        "ls('a')",
        "x = 1",
        "os.remove(path='a')",
        "ls(a=b)",
        "ls(a=open('x'))",
        "ls(**{})",
        "",
    ],
)
def test_what_is_no_call_stays_text(handlers: ModuleType, block: str) -> None:
    text = f"<function_calls>{block}</function_calls>"
    _, said, calls = handlers.read_reply(reply(text))
    assert (said, calls) == (text, [])


def test_an_unclosed_thought_is_text_without_calls(handlers: ModuleType) -> None:
    assert handlers.read_reply(reply("<think>hm"))[2] == []
    thought = "<think><function_calls>ls()</function_calls></think>No."
    assert handlers.read_reply(reply(thought))[1:] == ("No.", [])
