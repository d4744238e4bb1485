"""What a request may say, and how everything else is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lopd_repro.errors import UserError
from lopd_repro.serving import ServerSettings
from lopd_repro.serving.requests import RequestError, answer_room, read_request
from lopd_repro.serving.tool_calls import read_tool_calls

USER = {"role": "user", "content": "hi"}
TOOL = {"type": "function", "function": {"name": "ls", "parameters": {}}}
BROKEN_CALL = {"function": {"name": "ls", "arguments": "{"}}


def read(body: dict[str, Any], chat: bool = True) -> Any:
    return read_request(json.dumps(body).encode(), chat, "policy")


def test_honoured_fields() -> None:
    wanted = read(
        {
            "model": "policy",
            "messages": [USER],
            "tools": [TOOL],
            "tool_choice": "auto",
            "max_completion_tokens": 7,
            "temperature": 0,
            "top_p": 1,
            "top_k": -1,
            "stop": "x",
            "stop_token_ids": [3],
            "seed": 5,
            "n": 1,
            "stream": False,
            "store": False,
            "user": "somebody",
            "logprobs": None,
            "chat_template_kwargs": {"enable_thinking": False},
        }
    )
    assert wanted.messages == [USER] and wanted.tools == [TOOL] and wanted.parse_tools
    assert (wanted.max_tokens, wanted.temperature, wanted.top_p, wanted.top_k) == (7, 0.0, 1.0, 0)
    assert wanted.stop == ("x",) and wanted.stop_token_ids == {3} and wanted.seed == 5
    assert wanted.template_options == {"enable_thinking": False}
    assert wanted.skip_special_tokens and not wanted.add_special_tokens
    assert not read({"messages": [USER], "tools": [TOOL], "tool_choice": "none"}).parse_tools
    plain = read({"prompt": "hi"}, chat=False)
    assert plain.prompt == "hi" and plain.max_tokens is plain.temperature is plain.seed is None
    assert plain.add_special_tokens
    assert read({"prompt": [[1, 2]]}, chat=False).prompt == [1, 2]
    assert read({"prompt": ["hi"]}, chat=False).prompt == "hi"


def test_messages_in_the_forms_that_clients_send() -> None:
    call = {"id": "a", "type": "function", "function": {"name": "ls", "arguments": '{"a": 1}'}}
    bare = {"id": "b", "type": "function", "function": {"name": "ls", "arguments": ""}}
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    wanted = read(
        {
            "messages": [
                {"role": "user", "content": parts},
                {"role": "assistant", "content": None, "tool_calls": [call, bare]},
                {"role": "tool", "content": "done", "tool_call_id": "a"},
            ]
        }
    )
    assert wanted.messages is not None
    assert wanted.messages[0]["content"] == "one\ntwo"
    calls = wanted.messages[1]["tool_calls"]
    assert [c["function"]["arguments"] for c in calls] == [{"a": 1}, {}]


@pytest.mark.parametrize(
    ("extra", "field"),
    [
        ({"n": 2}, "n"),
        ({"n": True}, "n"),
        ({"stream": True}, "stream"),
        ({"logprobs": True}, "logprobs"),
        ({"top_logprobs": 3}, "top_logprobs"),
        ({"tools": [TOOL], "tool_choice": "required"}, "tool_choice"),
        ({"tools": [TOOL], "tool_choice": {"type": "function"}}, "tool_choice"),
        ({"tool_choice": "auto"}, "tool_choice"),
        ({"parallel_tool_calls": False}, "parallel_tool_calls"),
        ({"frequency_penalty": 0.5}, "frequency_penalty"),
        ({"logit_bias": {"3": 1}}, "logit_bias"),
        ({"min_p": 0.1}, "min_p"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"guided_json": {}}, "guided_json"),
        ({"prompt": "x"}, "prompt"),
        ({"temperature": -1}, "temperature"),
        ({"temperature": "0"}, "temperature"),
        ({"temperature": True}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"top_p": 1.1}, "top_p"),
        ({"top_k": -2}, "top_k"),
        ({"top_k": 1.5}, "top_k"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": 5, "max_completion_tokens": 6}, "max_tokens"),
        ({"stop": [""]}, "stop"),
        ({"stop": 3}, "stop"),
        ({"stop_token_ids": ["a"]}, "stop_token_ids"),
        ({"seed": 0.5}, "seed"),
        ({"tools": {}}, "tools"),
        ({"skip_special_tokens": 1}, "skip_special_tokens"),
        ({"messages": []}, "messages"),
        ({"messages": ["hi"]}, "messages"),
        ({"messages": [{"role": "user", "content": 3}]}, "messages"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages"),
        ({"messages": [{"role": "assistant", "tool_calls": [BROKEN_CALL]}]}, "messages"),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_name(extra: dict[str, Any], field: str) -> None:
    with pytest.raises(RequestError, match=field) as caught:
        read({"messages": [USER], **extra})
    error = caught.value.body()["error"]
    assert error["code"] == 400 and error["param"] == field and error["type"] == "BadRequestError"


def test_bodies_that_are_no_requests_and_unknown_models() -> None:
    for raw in (b"", b'{"a"', b"[]", b"\xff"):
        with pytest.raises(RequestError, match="body is not"):
            read_request(raw, True, "policy")
    with pytest.raises(RequestError, match="`other` does not exist") as caught:
        read({"model": "other", "messages": [USER]})
    assert caught.value.status == 404 and caught.value.body()["error"]["type"] == "NotFoundError"
    for prompt in (None, [], ["a", "b"], [1, "a"], [-1], [True]):
        with pytest.raises(RequestError, match="prompt"):
            read({"prompt": prompt}, chat=False)


def test_room_for_the_answer() -> None:
    assert answer_room(100, None, True, 128) == 28  # a chat may fill the context
    assert answer_room(100, None, False, 128) == 16  # completions have OpenAI's default
    assert answer_room(100, 20, True, 128) == 20
    assert answer_room(100, 40, True, 128) == 28
    for prompt in (128, 200):
        with pytest.raises(RequestError, match="maximum context length is 128 tokens") as caught:
            answer_room(prompt, 1, True, 128)
        assert caught.value.status == 400 and caught.value.param == "input_tokens"
    with pytest.raises(RequestError, match="found 129"):
        answer_room(1, 129, True, 128)


def test_tool_calls_in_a_reply() -> None:
    one = '<tool_call>\n{"name": "ls", "arguments": {"a": "é"}}\n</tool_call>'
    two = '<tool_call>{"arguments": {}, "name": "cd"}</tool_call>'
    content, calls = read_tool_calls(f"I look.{one}\n{two}", "salt")
    assert content == "I look."
    assert [c["function"] for c in calls] == [
        {"name": "ls", "arguments": '{"a": "é"}'},
        {"name": "cd", "arguments": "{}"},
    ]
    assert calls[0]["id"] != calls[1]["id"] and calls[0]["type"] == "function"
    assert read_tool_calls(one, "other")[1][0]["id"] != calls[0]["id"]
    assert read_tool_calls(one, "salt")[0] is None


@pytest.mark.parametrize(
    "text",
    [
        "plain words",
        "",
        '<tool_call>{"name": "ls"}</tool_call>',
        '<tool_call>{"name": 3, "arguments": {}}</tool_call>',
        '<tool_call>{"name": "ls", "arguments": "{}"}</tool_call>',
        '<tool_call>{"name": "ls", "arguments": {}</tool_call>',
        '<tool_call>{"name": "ls", "arguments": {}}',
        '<tool_call>{"name": "ls", "arguments": {}}</tool_call><tool_call>oops</tool_call>',
        "<tool_call>[1]</tool_call>",
    ],
)
def test_replies_that_stay_text(text: str) -> None:
    assert read_tool_calls(text, "salt") == (text, [])


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"engine": "sglang"}, "serve.engine"),
        ({"dtype": "int8"}, "serve.dtype"),
        ({"engine": "vllm", "dtype": "float64"}, "serve.dtype"),
        ({"temperature": -0.1}, "serve.temperature"),
        ({"top_p": 0.0}, "serve.top_p"),
        ({"top_k": -1}, "serve.top_k"),
        ({"max_batch": 0}, "serve.max_batch"),
        ({"max_length": -1}, "serve.max_length"),
        ({"prefix_cache_mb": -1}, "serve.prefix_cache_mb"),
        ({"startup_seconds": 0.0}, "serve.startup_seconds"),
        ({"tool_call_parser": "olmo3"}, "serve.tool_call_parser"),
        ({"arguments": ("--x",)}, "serve.arguments"),
    ],
)
def test_settings_that_are_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        ServerSettings(**values)
