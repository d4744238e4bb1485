"""Judging programs by tests, the comparison rules, and `lopd-repro execute`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lopd_repro.cli import main
from lopd_repro.errors import UserError
from lopd_repro.sandbox.compare import same_output, same_value
from lopd_repro.sandbox.executor import Executor, ProgramLimits
from lopd_repro.sandbox.programs import Program, judge, parse_tests

SUM = {
    "type": "stdin",
    "cases": [{"input": "1 2\n", "output": "3\n"}, {"input": "2 2\n", "output": "4\n"}],
}
DOUBLE = {
    "type": "function",
    "entry_point": "double",
    "cases": [{"args": [[1, 2]], "expected": [2, 4]}, {"args": [[]], "expected": []}],
}
RIGHT = "a, b = map(int, input().split())\nprint(a + b)"


@pytest.fixture(scope="module")
def executor() -> Iterator[Executor]:
    with Executor(ProgramLimits(cpu_seconds=0.2, memory_mb=256), workers=2) as one:
        yield one


def verdicts(executor: Executor, code: str, tests: Any) -> tuple[str, list[str]]:
    (one,) = judge(executor, [Program(code, parse_tests(tests, "tests"))])
    return one.verdict, list(one.cases)


def test_every_verdict(executor: Executor) -> None:
    programs = {
        RIGHT: ("passed", ["passed", "passed"]),
        "print(3)": ("wrong", ["passed", "wrong"]),
        RIGHT + "\nif a == 2:\n    while True: pass": ("timeout", ["passed", "timeout"]),
        RIGHT + "\nx = [0] * 10 ** 10": ("memory", ["memory", "memory"]),
        "print(3); raise ValueError": ("crash", ["crash", "crash"]),
        "import socket; socket.socket()": ("refused", ["refused", "refused"]),
    }
    tests = parse_tests(SUM, "tests")
    found = judge(executor, [Program(code, tests) for code in programs])
    assert [(one.verdict, list(one.cases)) for one in found] == list(programs.values())
    assert [one.passed for one in found] == [True, *[False] * 5]


def test_functions(executor: Executor) -> None:
    assert verdicts(executor, "def double(x): return [2 * i for i in x]", DOUBLE)[0] == "passed"
    assert (
        verdicts(executor, "def double(x): return tuple(2 * i for i in x)", DOUBLE)[0] == "passed"
    )
    assert verdicts(executor, "def double(x): return {2 * i for i in x}", DOUBLE)[0] == "wrong"
    assert verdicts(executor, "def triple(x): return x", DOUBLE)[0] == "crash"


def test_a_program_cannot_pass_by_being_equal_to_everything(executor: Executor) -> None:
    code = (
        "class Always(list):\n"
        "    def __eq__(self, other): return True\n"
        "    def __len__(self): return 2\n"
        "    def __iter__(self): return iter([2, 4])\n"
        "def double(x): return Always()\n"
    )
    assert verdicts(executor, code, DOUBLE) == ("wrong", ["wrong", "passed"])


def test_a_program_cannot_pass_by_changing_the_runner(executor: Executor) -> None:
    code = (
        "import builtins, gc, json, os, sys\n"
        "for module in list(sys.modules.values()):\n"
        "    for name in list(vars(module)):\n"
        "        if name in ('same_value', 'encode', '_encode', 'dumps', '_send', 'frame'):\n"
        "            setattr(module, name, lambda *a, **k: b'true')\n"
        "builtins.all = builtins.any = lambda *a: True\n"
        "def double(x): return x\n"
    )
    verdict, _ = verdicts(executor, code, DOUBLE)
    assert verdict in ("wrong", "crash", "refused")


@pytest.mark.parametrize(
    ("actual", "expected", "same"),
    [
        ("3", "3\n", True),
        (" 3  4 \r\n\n\n", "3 4", True),
        ("3\n4", "3 4", False),
        ("\n3", "3", False),
        ("3.0", "3", False),
        ("Yes", "YES", False),
        ("", "\n\n", True),
        ("", "0", False),
    ],
)
def test_outputs(actual: str, expected: str, same: bool) -> None:
    assert same_output(actual, expected) is same


@pytest.mark.parametrize(
    ("actual", "expected", "same"),
    [
        (1, 1, True),
        (1, 1.0, True),
        (True, 1, False),
        (1, True, False),
        (0.1 + 0.2, 0.3, True),
        (1e9 + 0.5, 1e9, True),  # within 1e-9 of the larger
        (1.000001, 1, False),
        (10**18 + 1, 10**18, False),  # integers are exact
        (float("nan"), float("nan"), True),
        (float("inf"), 10**400, False),
        ("a", ["a"], False),
        ((1, (2,)), [1, [2]], True),
        ([1, 2], [2, 1], False),
        ({1: "x"}, {"1": "x"}, True),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, True),
        ({"a": 1}, {"a": 1, "b": None}, False),
        ({1: "x", "1": "x"}, {"1": "x"}, False),
        ({1, 2}, [1, 2], False),
        (None, None, True),
        (None, False, False),
        (b"a", "a", False),
    ],
)
def test_values(actual: Any, expected: Any, same: bool) -> None:
    assert same_value(actual, expected) is same


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ([], "t.json: type: found [], allowed: stdin, function"),
        ({"type": "file"}, "t.json: type: found 'file'"),
        ({"type": "stdin", "cases": []}, "t.json: cases: found []"),
        ({"type": "stdin", "cases": [{"input": "1"}]}, r"t.json: cases\[0\]: no 'output'"),
        (
            {"type": "stdin", "cases": [{"input": 1, "output": "1"}]},
            r"t.json: cases\[0\].input: found 1, allowed: text",
        ),
        ({"type": "function", "cases": [{}]}, "t.json: entry_point: found ''"),
        (
            {"type": "function", "entry_point": "f", "cases": [{"args": 1, "expected": 1}]},
            r"cases\[0\].args: found 1, allowed: a list",
        ),
    ],
)
def test_bad_tests_are_one_clear_line(document: Any, message: str) -> None:
    with pytest.raises(UserError, match=message.replace("[]", r"\[\]")):
        parse_tests(document, "t.json")


def execute(folder: Path, code: str, tests: str, *options: str) -> int:
    (folder / "code.py").write_text(code)
    (folder / "tests.json").write_text(tests)
    files = ["--code", str(folder / "code.py"), "--tests", str(folder / "tests.json")]
    return main(["execute", *files, *options])


def test_execute_prints_one_object(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for code, verdict in ((RIGHT, "passed"), ("print(3)", "wrong"), ("exit(1)", "crash")):
        assert execute(tmp_path, code, json.dumps(SUM)) == 0
        printed = json.loads(capsys.readouterr().out)
        assert printed["verdict"] == verdict and len(printed["cases"]) == 2
        assert printed["isolation"]["network"] in ("namespace", "seccomp")


def test_execute_refuses_bad_input_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for tests, options, part in (
        ("{", (), "not a readable JSON file"),
        ('{"type": "x"}', (), "allowed: stdin, function"),
        (json.dumps(SUM), ("--cpu-seconds", "0"), "--cpu-seconds: found 0.0, allowed: more than 0"),
    ):
        assert execute(tmp_path, RIGHT, tests, *options) == 2
        captured = capsys.readouterr()
        assert captured.out == "" and captured.err.count("\n") == 1 and part in captured.err
    missing = str(tmp_path / "none.py")
    assert main(["execute", "--code", missing, "--tests", str(tmp_path / "tests.json")]) == 2
    assert "none.py" in capsys.readouterr().err
