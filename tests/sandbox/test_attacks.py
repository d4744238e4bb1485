"""Hostile commands and programs: nothing outside changes, nothing survives, the next is unhurt.

Each as root and as an ordinary user, with all layers and with the namespaces refused.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from ordinary import script

from lopd_repro.sandbox import LAYERS

ATTACKS = Path(__file__).with_name("attacks.py")
NO_NAMESPACES = ("landlock", "seccomp")
WALLS = [("self", LAYERS), ("self", NO_NAMESPACES), ("nobody", LAYERS), ("nobody", NO_NAMESPACES)]
NAMES = ["namespaces", "no namespaces", "user, namespaces", "user, no namespaces"]


def attack(part: str, user: str, layers: tuple[str, ...]) -> dict[str, Any]:
    request = json.dumps({"part": part, "layers": layers})
    command, options = script(user, ATTACKS, request)
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, **options)
    assert done.returncode == 0, done.stderr
    seen: dict[str, Any] = json.loads(done.stdout)
    if user == "nobody":
        assert seen["uid"] == 65534
    return seen


def nothing_changed(seen: dict[str, Any]) -> None:
    assert seen["victim"] == ["precious", "0o666"]
    assert seen["folder"] == ["victim"]
    assert seen["bystander lives"]


@pytest.mark.parametrize(("user", "layers"), WALLS, ids=NAMES)
def test_commands(user: str, layers: tuple[str, ...]) -> None:
    seen = attack("run", user, layers)
    nothing_changed(seen)
    assert seen["survivors"] == []

    isolation = seen["isolation"]
    full = "pid-namespace" in layers
    if full:
        assert isolation["network"] == isolation["files"] == isolation["processes"] == "namespace"
    else:
        assert (isolation["network"], isolation["files"]) == ("seccomp", "landlock")
        assert isolation["processes"] == ("user" if seen["uid"] == 0 else "signals")
    assert isolation["limits_refused"] == []

    for name, verdict in (
        ("fork bomb", "timeout"),
        ("memory bomb", "memory"),
        ("infinite loop", "timeout"),
        ("sleeper", "timeout"),
        ("infinite output", "output"),
        ("exit", "crash"),
        ("big file", "crash"),
        ("many files", "crash"),
    ):
        assert seen[name][0] == verdict, name
    assert seen["exit"][1] == 7
    assert seen["infinite output"][2] == 64 * 1024  # the cap, both streams together
    if full:
        assert seen["memory of many"][0] == "memory"  # 6 x 40 MB, each below the 128 MB of one

    files = seen["files"]
    assert files.pop("own") == ["done", "1"]
    assert {name: done for name, (done, _) in files.items()} == dict.fromkeys(files, "refused")
    assert seen["reached"] == []
    assert {seen["sockets"][name][0] for name in ("host", "abstract", "file", "away")} == {
        "refused"
    }

    nosy = seen["nosy"]
    assert nosy["own"] == ["done", "[]"] and nosy["others"] == []
    assert nosy["ptrace"] == nosy["setuid"] == nosy["mount"] == nosy["unshare"] == -1
    assert nosy["limits"][0] == nosy["others_limits"][0] == "refused"
    assert seen["daemon"] == "ok" and seen["echo"]


@pytest.mark.parametrize(("user", "layers"), WALLS, ids=NAMES)
def test_programs(user: str, layers: tuple[str, ...]) -> None:
    seen = attack("executor", user, layers)
    nothing_changed(seen)
    assert seen["left"] == seen["left after the end"] == []
    assert all(after == ["ok", "2\n"] for after in seen["after"].values()), seen["after"]

    allowed = {
        "good": {"ok"},
        "fork bomb": {"timeout"},
        "memory bomb": {"memory"},
        "infinite loop": {"timeout"},
        "infinite output": {"refused"},
        "exit": {"crash"},
        "kill the parent": {"refused"},
        # With namespaces there is nobody to kill; without, itself is spared by the kernel.
        "kill everybody": {"crash", "ok", "refused"},
        "kill itself": {"crash"},
        "delete outside": {"crash", "refused"},
        "write outside": {"crash", "refused"},
        "read outside": {"crash", "refused"},
        "socket": {"refused"},
        "builtins": {"crash", "ok"},
        "huge integer": {"timeout", "memory"},
        "deep recursion": {"timeout", "memory", "crash"},
        "deep source": {"crash", "memory"},
        "threads": {"ok"},
        "daemon": {"ok"},
        "deep folders": {"ok", "timeout", "crash"},
        "handles": {"refused"},
        "segfault": {"crash"},
        "sees the next": {"ok"},
    }
    for name, (verdict, detail, _) in seen["verdicts"].items():
        assert verdict in allowed[name], (name, verdict, detail)
    assert "precious" not in json.dumps(seen["verdicts"])
    assert seen["verdicts"]["sees the next"][2] == "[]\n"
