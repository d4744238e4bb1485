"""The installed official package through the launcher, and the benchmark against a stub server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT
from stub_server import Action, Asked, Fail, Overflow, Say, stub

from lopd_repro.benchmarks import checked_rows
from lopd_repro.benchmarks.evalplus import EvalPlus, Settings
from lopd_repro.benchmarks.evalplus.mini import conversations, instruction
from lopd_repro.benchmarks.evalplus.official import Package, Part
from lopd_repro.conformance.evalplus import compare, sanitized
from lopd_repro.data.tiny_coding import GOLD
from lopd_repro.errors import UserError

GOLDEN = ROOT / ".." / "shared" / "golden"
FOLDER = ROOT / "eval" / "evalplus"
QUICK = {"pause_seconds": 0.01, "tries": 3, "max_tokens": 64}
needs_golden = pytest.mark.skipif(
    not (GOLDEN / "evalplus_verdicts.json").is_file(),
    reason="no golden vectors at ../shared/golden beside this repository",
)


def make(**settings: Any) -> EvalPlus:
    return EvalPlus(
        Settings(**{"suite": "mini", "sampling": QUICK, "in_flight": 8, **settings}), FOLDER
    )


def part(**more: Any) -> Part:
    problem = {
        "task_id": "HumanEval/901", "prompt": "def f(x):\n", "entry_point": "f", "contract": "",
        "canonical_solution": "    return x\n", "base_input": [[1], [2]], "plus_input": [[3]],
        "atol": 0,
    }  # fmt: skip
    return Part("p", "humaneval", [problem], min_time_limit=0.2, **more)


def test_verdicts_by_hand(package: Package) -> None:
    expected = {
        "def f(x):\n    return x": ("pass", "pass"),
        "def f(x):\n    return min(x, 2)": ("pass", "fail"),
        "def f(x):\n    return 1": ("fail", "fail"),
        "def f(x):\n    import os\n    os._exit(0)\n    return x": ("timeout", "timeout"),
        "def f(x):\n    while x > 2: pass\n    return x": ("pass", "fail"),
        # Output to the descriptor goes nowhere, however much it is.
        "def f(x):\n    import os\n    os.write(1, b'x' * 3_000_000)\n    return x": (
            "pass",
            "pass",
        ),
        "no code at all, but prose": ("fail", "fail"),
        "def f(x):\n    return '\ud800'": ("fail", "fail"),
    }
    answers = [("HumanEval/901", text) for text in expected]
    found = package.score([part()], {"p": answers})["p"]
    assert {t: (v.base, v.plus) for t, v in zip(expected, found, strict=True)} == expected
    died, late, broken = found[3], found[4], found[7]
    assert died.died and died.alone and not died.late
    assert late.late and late.alone and not late.died and late.first == ("pass", "fail")
    assert broken.refused.startswith("UnicodeEncodeError")
    assert [v.passed for v in found] == [True] + [False] * 4 + [True, False, False]
    assert not any(v.alone for v in (found[0], found[1], found[2]))


def test_every_task_needs_an_answer(package: Package) -> None:
    with pytest.raises(UserError, match="no answer for p HumanEval/901"):
        package.score([part()], {"p": []})


def test_a_result_file_that_is_there_is_not_used(package: Package, tmp_path: Path) -> None:
    launcher = tmp_path / "launch.py"
    text = (FOLDER / "launch.py").read_text()
    planted = 'Path(str(samples).replace(".jsonl", "_eval_results.json"))\n'
    assert planted in text
    launcher.write_text(text.replace(planted, planted + '    results.write_text("{}")\n'))
    with pytest.raises(UserError, match="exists, which evalplus would use"):
        Package(package.environment, launcher).score(
            [part()], {"p": [("HumanEval/901", "def f(x):\n    return x")]}
        )


@needs_golden
def test_recorded_verdicts_and_extractions(package: Package) -> None:
    """All that take no seconds: programs that hang or sleep wait for `lopd_repro.conformance`."""
    cases = json.loads((GOLDEN / "evalplus_verdicts.json").read_text())
    slow = ("loop", "sleep", "timing", "memory", "swallow", "alarm", "recursion", "thread")
    quick = [c for c in cases if not c["timing"] and not any(w in c["name"] for w in slow)]
    assert len(quick) > 120
    assert compare(package, quick[::3]) == ([], [])
    wrong = json.loads(json.dumps(quick[0]))
    wrong["output"]["plus_details"] = [True, True, False]
    assert compare(package, [wrong]) == ([wrong["name"]], [])
    assert sanitized({}, GOLDEN / "evalplus_sanitize.json").ok


def test_mini_suite_end_to_end(package: Package, tmp_path: Path) -> None:
    benchmark = make(repeats=2, tasks_per_dataset=6)
    references = {
        row["prompt"].strip(): row["prompt"] + row["canonical_solution"]
        for own in benchmark.suite.ask
        for row in own.problems
    }

    def script(request: Asked) -> Action:
        messages = request.body["messages"]
        assert [message["role"] for message in messages] == ["user"]
        prompt = messages[0]["content"].split("```python\n")[1].removesuffix("\n```")
        program = references[prompt]
        if "sum of all" in prompt:
            program = program.replace("return ", "return 0, ")
        return Say(f"<think>```python\nx\n```</think>```python\n{program}```", usage=(7, 9))

    with stub(script) as server:
        rows = benchmark.run(server.endpoint, tmp_path, tmp_path)
        again = benchmark.run(server.endpoint, tmp_path, tmp_path)
        assert len(server.asked) == 24
    assert again == rows == checked_rows(rows, benchmark.expected(), "evalplus")
    assert {row["category"] for row in rows} == {"humaneval_plus", "mbpp_plus"}
    wrong = {
        row["task_id"]
        for own in benchmark.suite.ask
        for row in own.problems
        if "sum of all" in row["prompt"]
    }
    assert wrong and all(row["score"] == (row["task_id"] not in wrong) for row in rows)
    assert all(row["strict_score"] == row["score"] for row in rows)
    assert rows[0]["prompt_tokens"] == 7 and rows[0]["new_tokens"] == 9
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["answers"] == 24 and report["strict_differs"] == report["timeouts"] == 0
    own = [row["score"] for row in rows if row["category"] == "mbpp_plus"]
    assert report["pass@1"]["mbpp_plus"] == pytest.approx(100 * sum(own) / len(own))


def test_endpoint_errors_are_no_scores(package: Package, tmp_path: Path) -> None:
    benchmark = make(tasks_per_dataset=6, strict=False)
    bad = benchmark.suite.ask[0].problems[3]["prompt"].strip()
    assert benchmark.partial and benchmark.data.startswith("partial: 12 tasks of mini-suite")
    with (
        stub(lambda request: Fail(500) if bad in request.text else Say("no")) as server,
        pytest.raises(UserError, match=r"failed on 1 of 12 tasks .*11 are kept"),
    ):
        benchmark.run(server.endpoint, tmp_path, tmp_path)
    with stub(lambda _: Overflow()) as server:
        with pytest.raises(UserError, match="maximum context length"):
            benchmark.run(server.endpoint, tmp_path, tmp_path)
        zero = make(tasks_per_dataset=6, strict=False, overflow="zero")
        rows = zero.run(server.endpoint, tmp_path, tmp_path)
    assert [row["status"] for row in rows].count("refused") == 1
    assert all(row["score"] == 0 and "strict_score" not in row for row in rows)


def test_official_system_message_on_request(package: Package) -> None:
    told, _ = make(tasks_per_dataset=1, system="official").prompts()
    plain, _ = make(tasks_per_dataset=1).prompts()
    own = told["mbpp_plus"]["Mbpp/10000"]
    assert [message["role"] for message in own] == ["system", "user"]
    assert plain["mbpp_plus"]["Mbpp/10000"] == own[1:]


def test_human_eval_asks_problems_and_scores_their_tests(package: Package) -> None:
    from lopd_repro.benchmarks.answers import Answer
    from lopd_repro.benchmarks.evalplus.data import read_human_eval

    benchmark = make(suite="humaneval_base", tasks_per_dataset=8)
    assert benchmark.data == "partial: 8 tasks of HumanEval (base tests), human-eval 1.0.3"
    messages, inputs = benchmark.prompts()
    rows = read_human_eval(package.environment.human_eval)[:8]
    asked = messages["humaneval_base"]
    assert all(row["prompt"].strip() in asked[row["task_id"]][0]["content"] for row in rows)
    assert not any("def check" in texts[0]["content"] for texts in asked.values())
    answers = {
        (row["task_id"], 0): Answer(
            row["prompt"] + (row["canonical_solution"] if n % 2 else "    return None\n")
        )
        for n, row in enumerate(rows)
    }
    found = benchmark.judge(answers, inputs)
    assert [row["score"] for row in found] == [0, 1] * 4
    assert [row["strict_score"] for row in found] == [0, 1] * 4
    assert {row["category"] for row in found} == {"humaneval_base"}
    assert {row["plus_status"] for row in found} == {""}


def test_conversations_are_official_prompts_with_programs(package: Package) -> None:
    found = conversations(package, 0, 6, GOLD)
    assert len(found) == 6
    for user, assistant in found:
        assert user["role"] == "user" and user["content"].startswith(instruction(found[0]))
        assert assistant["content"].startswith("```python\ndef ")
    assert '"""\n```' in found[1][0]["content"]
