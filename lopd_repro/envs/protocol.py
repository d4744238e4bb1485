"""What an assistant turn asks the environment to do: text in, one `Action` out.

Two call formats: `qwen3` (`<tool_call>{"name": ..., "arguments": {...}}</tool_call>`) and
`olmo3` (`<function_calls>name(arg=value)</function_calls>`, one call a line). The rules of
the first are those of EnvScaler's `parse_response` and `parse_action`: the first complete
think block is set aside, an unclosed one is an error; the first call counts, wherever it
stands; without a call the text left over speaks to the user, which ends an episode. The
variants `envscaler` and `lopd` read alike and differ only in the texts that answer a turn
that cannot be read.

`olmo3` follows vLLM's parser for that model (JSON names `null`, `true`, `false` beside
Python's, no calls without a plain name) with these differences: reasoning is cut off at
`</think>` first, since the chat template opens the block itself; calls need their tags; a
call may span lines; signed numbers are read; and a block that cannot be read is an error
the model is told about, as in the JSON format, not a final answer.
"""

from __future__ import annotations

import ast
import json
import re
import warnings
from dataclasses import dataclass
from typing import Any, Literal

from lopd_repro.errors import UserError

Protocol = Literal["qwen3", "olmo3"]
Variant = Literal["envscaler", "lopd"]

PROTOCOLS: tuple[Protocol, ...] = ("qwen3", "olmo3")
VARIANTS: tuple[Variant, ...] = ("envscaler", "lopd")
CHAT = "chat_with_user"

_THINK = re.compile(r"(?:<|@)think(?:>|@)\s*(.*?)(?:<|@)/think(?:>|@)", re.DOTALL | re.IGNORECASE)
_THINK_OPEN = re.compile(r"(?:<|@)think(?:>|@)", re.IGNORECASE)
_JSON_CALL = re.compile(r"<tool_call>\s*(\{.*?\})\s*</tool_call>", re.DOTALL)
_PYTHONIC_BLOCK = re.compile(r"<function_calls>(.*?)</function_calls>", re.DOTALL)
_JSON_NAMES: dict[str, Any] = {
    "null": None,
    "true": True,
    "false": False,
    "NaN": float("nan"),
    "Infinity": float("inf"),
}


@dataclass(frozen=True)
class Action:
    """One parsed assistant turn.

    kind: `call` (run tool `name` with `arguments`), `text` (plain words to the user; `name` is
    `chat_with_user`) or `error` (nothing to run; `error` is the answer the model gets).
    arguments: what the call carried; a dict unless the model wrote something else.
    text: the words beside reasoning and call.
    calls: (name, arguments) of every well-formed call in the turn, of which only the first is run;
    arguments that are JSON in a text are decoded.
    reasoning: content of the think block, or None.
    """

    kind: Literal["call", "text", "error"]
    name: str = ""
    arguments: Any = None
    text: str = ""
    calls: tuple[tuple[Any, Any], ...] = ()
    reasoning: str | None = None
    error: str = ""

    @property
    def n_calls(self) -> int:
        """Number of well-formed calls in the whole turn."""
        return len(self.calls)


def parse_action(text: str, protocol: Protocol = "qwen3", variant: Variant = "envscaler") -> Action:
    """Parse one assistant turn, special tokens of the turn's end already removed.

    Never raises on model text; an unknown protocol or variant is a `UserError`.
    """
    if variant not in VARIANTS:
        raise UserError(f"variant: found {variant!r}, allowed are {', '.join(VARIANTS)}")
    if protocol == "qwen3":
        return _parse_json(text.strip(), variant)
    if protocol == "olmo3":
        return _parse_pythonic(text.strip(), variant)
    raise UserError(f"protocol: found {protocol!r}, allowed are {', '.join(PROTOCOLS)}")


def _parse_json(text: str, variant: Variant) -> Action:
    reasoning, problem = None, ""
    think = _THINK.search(text)
    if think:
        reasoning = think.group(1).strip()
    elif _THINK_OPEN.search(text):
        problem = "Missing closing think tag"

    calls = list(_JSON_CALL.finditer(text))
    start = think.end() if think else 0
    # A call inside the think block starts before `start`: the slice, and the text, is empty.
    content = text[start : calls[0].start() if calls else len(text)].strip()

    call: dict[str, Any] | None = None
    found: list[dict[str, Any]] = []
    if calls:
        found, call = _read_json_call(calls[0].group(1))
    elif "<tool_call>" in text and "</tool_call>" not in text:
        found = [{"error": "Unclosed tool_call tag"}]
    whole = [_read_json_call(match.group(1))[1] for match in calls]
    written = tuple((c["name"], _decoded(c["arguments"])) for c in whole if c is not None)

    if problem or (found and call is None):
        error = _struct_error(variant, found or {"error": problem})
        return Action("error", text=content, calls=written, reasoning=reasoning, error=error)
    if call is not None:
        arguments = call["arguments"]
        if isinstance(arguments, str):
            try:
                arguments = json.loads(arguments)
            except (ValueError, RecursionError):
                return _no_action(variant, content, written, reasoning)
        return Action("call", call["name"], arguments, content, written, reasoning)
    if content:
        return Action("text", CHAT, {"content": content}, content, (), reasoning)
    return _no_action(variant, content, written, reasoning)


def _decoded(arguments: Any) -> Any:
    """Arguments given as a text of JSON; a text that is none stays as it is."""
    if not isinstance(arguments, str):
        return arguments
    try:
        return json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments


def _read_json_call(payload: str) -> tuple[list[dict[str, Any]], dict[str, Any] | None]:
    """The `tool_calls` entry as the reference would show it, and the call if it is whole."""
    try:
        call = json.loads(payload)
    except (ValueError, RecursionError) as error:
        return [{"error": f"Failed to parse tool_call JSON: {error}", "raw": payload}], None
    missing = [field for field in ("name", "arguments") if field not in call]
    if missing:
        return [{"error": f"Missing required field(s): {missing}", "raw": call}], None
    return [{"function": call}], call


def _parse_pythonic(text: str, variant: Variant) -> Action:
    reasoning: str | None = None
    content = text
    head, closed, tail = text.partition("</think>")
    if closed:
        reasoning, content = head.removeprefix("<think>").strip(), tail.strip()
    elif "<think>" in text:
        return Action("error", error=_struct_error(variant, {"error": "Missing closing think tag"}))

    blocks = list(_PYTHONIC_BLOCK.finditer(content))
    if not blocks:
        if "<function_calls>" in content:
            found = [{"error": "Unclosed function_calls tag"}]
            error = _struct_error(variant, found)
            return Action("error", text=content, reasoning=reasoning, error=error)
        if not content:
            return _no_action(variant, content, (), reasoning)
        return Action("text", CHAT, {"content": content}, content, (), reasoning)

    said = content[: blocks[0].start()].strip()
    written: list[tuple[str, dict[str, Any]]] = []
    for index, block in enumerate(blocks):
        try:
            calls = _read_pythonic_calls(block.group(1))
        except (SyntaxError, ValueError, RecursionError, MemoryError) as problem:
            if index == 0:
                reason = problem.msg if isinstance(problem, SyntaxError) else str(problem)
                found = [{"error": f"Failed to parse function_calls: {reason}"}]
                error = _struct_error(variant, found)
                return Action("error", text=said, reasoning=reasoning, error=error)
            continue
        written += calls
    name, arguments = written[0]
    return Action("call", name, arguments, said, tuple(written), reasoning)


def _read_pythonic_calls(block: str) -> list[tuple[str, dict[str, Any]]]:
    """Calls of a block as (name, arguments); ValueError or SyntaxError if it is anything else."""
    # Each line is stripped: a model may indent, which Python would refuse between statements.
    source = "\n".join(line.strip() for line in block.splitlines())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # odd escapes in a model's strings
        module = ast.parse(source)
    calls = []
    for statement in module.body:
        call = statement.value if isinstance(statement, ast.Expr) else None
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
            raise ValueError("each line must be one call name(argument=value)")
        if call.args or any(keyword.arg is None for keyword in call.keywords):
            raise ValueError("arguments must be given by name")
        arguments = {str(keyword.arg): _literal(keyword.value) for keyword in call.keywords}
        calls.append((call.func.id, arguments))
    if not calls:
        raise ValueError("no call between the tags")
    return calls


def _literal(node: ast.expr) -> Any:
    """Value of a literal, in the types JSON has."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str | int | float | bool | None):
        return node.value
    if isinstance(node, ast.Name) and node.id in _JSON_NAMES:
        return _JSON_NAMES[node.id]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
        value = _literal(node.operand)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return -value if isinstance(node.op, ast.USub) else value
    if isinstance(node, ast.List | ast.Tuple):
        return [_literal(item) for item in node.elts]
    if isinstance(node, ast.Dict) and all(key is not None for key in node.keys):
        keys = [_literal(key) for key in node.keys if key is not None]
        if all(isinstance(key, str) for key in keys):
            return dict(zip(keys, map(_literal, node.values), strict=True))
    raise ValueError("arguments must be literals")


def _struct_error(variant: Variant, found: Any) -> str:
    if variant == "envscaler":
        return "Error: Failed to parse response to struct response"
    return f"Error: malformed response. {found}"


def _no_action(
    variant: Variant, text: str, calls: tuple[tuple[Any, Any], ...], reasoning: str | None
) -> Action:
    error = (
        "Error: Failed to parse response to action"
        if variant == "envscaler"
        else "Error: could not parse a valid action."
    )
    return Action("error", text=text, calls=calls, reasoning=reasoning, error=error)
