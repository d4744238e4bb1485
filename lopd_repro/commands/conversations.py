"""`lopd-repro conversations`: training conversations in a benchmark's form, for tiny base models.

    lopd-repro conversations --benchmark acebench --settings JSON --out FILE
    lopd-repro conversations --benchmark bfcl --settings JSON --out FILE \
        --python .environments/bfcl-v3/bin/python --adapter-folder eval/bfcl

Tasks of the mini-suites never appear in them. BFCL's are played on the official backend classes,
and EvalPlus's prompts come from the official package, each in that benchmark's environment.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lopd_repro.benchmarks import ace, bfcl_mini
from lopd_repro.benchmarks.evalplus import mini as evalplus_mini
from lopd_repro.benchmarks.evalplus.environment import find_environment
from lopd_repro.benchmarks.evalplus.official import Package
from lopd_repro.data import tiny_coding
from lopd_repro.data.tiny_coding import CodeNoise
from lopd_repro.errors import UserError
from lopd_repro.files import write_jsonl
from lopd_repro.models.chat import ChatCodec
from lopd_repro.models.tiny_tokenizer import build_tokenizer
from lopd_repro.settings import build, read_settings


@dataclass(frozen=True)
class ConversationSettings:
    """How many, from which seed, and the scripted agent's mistakes (by benchmark).

    model: BFCL's key of the handler that renders the prompts.
    """

    count: int
    seed: int = 0
    noise: dict[str, float] = field(default_factory=dict)
    model: str = ""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of this command."""
    parser.add_argument("--benchmark", required=True, help=f"one of {', '.join(RECORDERS)}")
    parser.add_argument("--settings", required=True)
    parser.add_argument("--python", type=Path, help="interpreter of the benchmark's environment")
    parser.add_argument("--adapter-folder", type=Path, help="folder with record.py and the data")
    parser.add_argument("--out", type=Path, required=True)


def run(args: argparse.Namespace) -> int:
    """Record and write."""
    if args.benchmark not in RECORDERS:
        raise UserError(f"--benchmark: found {args.benchmark!r}, allowed: {', '.join(RECORDERS)}")
    settings = build(ConversationSettings, read_settings(args.settings), "conversations")
    write_jsonl(args.out, RECORDERS[args.benchmark](settings, args))
    return 0


def _bfcl(settings: ConversationSettings, args: argparse.Namespace) -> list[dict[str, Any]]:
    """Scripts of ours, played in the benchmark's environment."""
    if args.python is None or args.adapter_folder is None:
        raise UserError("--python, --adapter-folder: needed for bfcl")
    noise = build(bfcl_mini.Noise, settings.noise, "conversations.noise")
    closed = {task.texts for tasks in bfcl_mini.suite().values() for task in tasks}
    with tempfile.TemporaryDirectory() as scratch:
        scripts, recorded = Path(scratch, "scripts.jsonl"), Path(scratch, "recorded.jsonl")
        lines = bfcl_mini.scripts(settings.seed, settings.count, noise, closed)
        scripts.write_text("".join(json.dumps(line) + "\n" for line in lines))
        command = [str(args.python.absolute()), str(args.adapter_folder / "record.py")]
        options = {
            "--scripts": scripts,
            "--docs": args.adapter_folder / "data" / "mini" / "multi_turn_func_doc",
            "--model": settings.model,
            "--out": recorded,
        }
        for option, value in options.items():
            command += [option, str(value)]
        # The package makes folders for results where this variable says.
        environment = {**os.environ, "BFCL_PROJECT_ROOT": scratch}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode != 0 or not recorded.is_file():
            last = (done.stderr or done.stdout).strip().splitlines()[-1:]
            raise UserError(f"record.py: it stopped with code {done.returncode}: {last}")
        rows: list[dict[str, Any]] = [json.loads(line) for line in recorded.open()]
    return [{**rows[0], "variables": bfcl_mini.variables()}, *rows[1:]]


def _acebench(settings: ConversationSettings, args: argparse.Namespace) -> list[dict[str, Any]]:
    """The scripted agent on the mini-suite's simulators."""
    noise = build(ace.Noise, settings.noise, "conversations.noise")
    found = ace.conversations(settings.seed, settings.count, noise)
    return [{"fixed": [], "variables": ace.vocabulary()}, *_rendered(found)]


def _evalplus(settings: ConversationSettings, args: argparse.Namespace) -> list[dict[str, Any]]:
    """The official package's prompts with noisy programs."""
    if args.python is None or args.adapter_folder is None:
        raise UserError("--python, --adapter-folder: needed for evalplus")
    noise = build(CodeNoise, settings.noise, "conversations.noise")
    package = Package(find_environment(args.python), args.adapter_folder.resolve() / "launch.py")
    found = evalplus_mini.conversations(package, settings.seed, settings.count, noise)
    fixed = sorted({evalplus_mini.instruction(messages) for messages in found})
    return [{"fixed": fixed, "variables": tiny_coding.vocabulary()}, *_rendered(found)]


def _rendered(conversations: Iterable[list[dict[str, Any]]]) -> Iterator[dict[str, Any]]:
    """Messages as segments, by the tiny backbones' chat template."""
    tokenizer = build_tokenizer([], 1024)
    codec = ChatCodec(tokenizer, (tokenizer.eos_token_id,))
    for messages in conversations:
        segments: list[tuple[str, bool]] = []
        seen = ""
        for place, message in enumerate(messages):
            if message["role"] == "assistant":
                prompt = codec.render(messages[:place], None)
                segments += [(prompt.removeprefix(seen), False), (message["content"], True)]
                seen = prompt + message["content"]
        yield {"segments": segments}


RECORDERS = {"bfcl": _bfcl, "acebench": _acebench, "evalplus": _evalplus}
