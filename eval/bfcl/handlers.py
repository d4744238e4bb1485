"""Models that launch.py adds to the package's table; imported inside the bfcl environment only.

`qwen_fc` is the package's own handler for Qwen3 in function-calling mode (prompts rendered by the
handler, text completions), under a key the release lacks or with other limits than its own.
`olmo3` is made for Olmo3, for which no release has a handler: it speaks to the chat endpoint, so
that tools, calls and results go through the served model's chat template.
"""

from __future__ import annotations

import ast
import json
import re
from importlib import import_module
from typing import Any

_BLOCK = re.compile(r"<function_calls>(.*?)</function_calls>", re.DOTALL)
OFFICIAL_CAP = 4096
_JSON_NAMES = {"null": None, "true": True, "false": False}


def register(job: Any, release: str) -> None:
    """Put the job's model into the table, unless the official entry does what the job asks."""
    table = import_module("bfcl_eval.constants.model_config")
    official = import_module("bfcl_eval.model_handler.local_inference.qwen_fc").QwenFCHandler
    if job.handler == "qwen_fc":
        known = table.MODEL_CONFIG_MAPPING.get(job.model)
        changed = job.max_new_tokens != OFFICIAL_CAP or job.history != "official"
        if known is not None and known.model_handler is official and not changed:
            return
        kind = qwen_fc(job, release, official) if changed else official
    elif job.handler == "olmo3":
        kind = olmo3(job)
    else:
        raise SystemExit(f"handler: found {job.handler!r}, allowed: qwen_fc, olmo3")
    table.MODEL_CONFIG_MAPPING[job.model] = table.ModelConfig(
        model_name=job.model,
        display_name=job.model,
        url="",
        org="",
        license="",
        model_handler=kind,
        input_price=None,
        output_price=None,
        is_fc_model=True,
        underscore_to_dot=False,
    )


def qwen_fc(job: Any, release: str, official: type) -> type:
    """The official Qwen3 handler, with the job's history and cap on new tokens."""

    class Qwen(official):  # type: ignore[misc, valid-type]
        def __init__(self, *arguments: Any, **named: Any) -> None:
            super().__init__(*arguments, **named)
            if job.max_new_tokens != OFFICIAL_CAP:
                self.client = _Capped(self, self.client, job.max_new_tokens)

        def _parse_query_response_prompting(self, api_response: Any) -> dict[str, Any]:
            parsed: dict[str, Any] = super()._parse_query_response_prompting(api_response)
            message = parsed["model_responses_message_for_chat_history"]
            if job.history == "with_calls" and release == "v3" and "tool_calls" in message:
                # v3 renders no call of the past; v4 does. Here the calls become the turn's text.
                calls = [call for call in message["tool_calls"] if isinstance(call, dict)]
                message["content"] = "\n".join(
                    f"<tool_call>\n{json.dumps(call)}\n</tool_call>" for call in calls
                )
            return parsed

        # The mark that the package's base class asks for; its decorator cannot see a base class
        # that is chosen at run time.
        _parse_query_response_prompting.__override__ = True  # type: ignore[attr-defined]

    return Qwen


class _Capped:
    """Stands for the handler's client and puts another cap on new tokens than the official one."""

    def __init__(self, handler: Any, client: Any, cap: int) -> None:
        self._handler, self._client, self._cap = handler, client, cap

    @property
    def completions(self) -> _Capped:
        return self

    def create(self, **request: Any) -> Any:
        """Ask for `cap` tokens, or for what the context has left."""
        used = len(self._handler.tokenizer.tokenize(request["prompt"]))
        left = self._handler.max_context_length - used - 2
        if left > 0:  # otherwise the endpoint refuses the prompt, as it does officially
            request["max_tokens"] = min(self._cap, left)
        return self._client.completions.create(**request)


def olmo3(job: Any) -> type:
    """A handler for Olmo3 on the package's OpenAI chat handler in function-calling mode."""
    base = import_module(
        "bfcl_eval.model_handler.api_inference.openai_completion"
    ).OpenAICompletionsHandler

    class Olmo3(base):  # type: ignore[misc, valid-type]
        def _query_FC(self, inference_data: dict[str, Any]) -> Any:  # noqa: N802
            messages, tools = inference_data["message"], inference_data["tools"]
            request: dict[str, Any] = {
                "model": job.served,
                "messages": messages,
                "temperature": self.temperature,
                "max_tokens": job.max_new_tokens,
                "timeout": 72000,
            }
            if job.tools_in == "system":
                request["messages"] = [system_message(tools), *messages]
            elif tools:
                request["tools"] = tools
            inference_data["inference_input_log"] = {"message": repr(messages), "tools": tools}
            return self.generate_with_backoff(**request)

        def _parse_query_response_FC(self, api_response: Any) -> dict[str, Any]:  # noqa: N802
            message = api_response.choices[0].message
            reasoning, text, calls = read_reply(message)
            history: dict[str, Any] = {"role": "assistant", "content": text}
            if calls:
                history["tool_calls"] = [
                    {"id": key, "type": "function", "function": {"name": n, "arguments": a}}
                    for key, n, a in calls
                ]
            return {
                "model_responses": [{name: arguments} for _, name, arguments in calls] or text,
                "reasoning_content": reasoning,
                "model_responses_message_for_chat_history": history,
                "tool_call_ids": [key for key, _, _ in calls],
                "input_token": api_response.usage.prompt_tokens,
                "output_token": api_response.usage.completion_tokens,
            }

    return Olmo3


def system_message(tools: list[dict[str, Any]]) -> dict[str, str]:
    """Tools as words, for a chat template that shows none."""
    functions = json.dumps([tool["function"] for tool in tools])
    return {
        "role": "system",
        "content": (
            "You can call the functions listed between <functions> and </functions>. Write calls "
            "between <function_calls> and </function_calls>, one a line, as name(argument=value). "
            f"<functions>{functions}</functions>"
        ),
    }


def read_reply(message: Any) -> tuple[str, str, list[tuple[str, str, str]]]:
    """Reasoning, text and calls (id, name, JSON arguments) of a chat reply.

    Calls that the server has read count; without any they are read from the text, which a server
    without a parser for this model leaves as it is. A block that is no list of calls stays text.
    """
    reasoning = getattr(message, "reasoning_content", None) or ""
    before, closed, text = (message.content or "").partition("</think>")
    if closed:
        reasoning = reasoning or before.removeprefix("<think>").strip()
    else:
        text = before
    text = text.strip()
    served = message.tool_calls or []
    if served:
        calls = [(call.id, call.function.name, call.function.arguments) for call in served]
        return reasoning, text, calls
    block = _BLOCK.search(text)
    if not block:
        return reasoning, text, []
    try:
        found = pythonic_calls(block.group(1))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return reasoning, text, []
    return reasoning, _BLOCK.sub("", text).strip(), found


def pythonic_calls(block: str) -> list[tuple[str, str, str]]:
    """Calls `name(argument=value)`, one a line; else ValueError or SyntaxError."""
    calls = []
    for node in ast.parse("\n".join(line.strip() for line in block.splitlines())).body:
        call = node.value if isinstance(node, ast.Expr) else None
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name) or call.args:
            raise ValueError("not a call with named arguments")
        if any(keyword.arg is None for keyword in call.keywords):
            raise ValueError("arguments must be given by name")
        arguments = {str(k.arg): _value(k.value) for k in call.keywords}
        calls.append((f"call_{len(calls)}", call.func.id, json.dumps(arguments)))
    if not calls:
        raise ValueError("no call")
    return calls


def _value(node: ast.expr) -> Any:
    class Names(ast.NodeTransformer):
        def visit_Name(self, name: ast.Name) -> ast.expr:
            if name.id not in _JSON_NAMES:
                raise ValueError(f"unknown name {name.id}")
            return ast.Constant(_JSON_NAMES[name.id])

    return ast.literal_eval(Names().visit(node))
