from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from lopd_repro.errors import UserError
from lopd_repro.files import (
    atomic_write,
    digest_file,
    digest_json,
    digest_text,
    read_json,
    read_jsonl,
    read_jsonl_with_footer,
    write_json,
    write_jsonl,
    write_text,
)
from lopd_repro.settings import build, read_settings


@dataclass(frozen=True)
class Shape:
    width: int
    rate: float
    name: str = "x"
    deep: bool = False
    limit: float | None = None
    places: tuple[str, ...] = ()
    shares: dict[str, float] = field(default_factory=dict)
    order: list[int] = field(default_factory=list)


def test_settings_become_a_dataclass() -> None:
    made = build(Shape, {"width": 3, "rate": 1, "limit": None, "places": ["a", "b"]}, "shape")
    assert made == Shape(3, 1.0, places=("a", "b"))
    assert isinstance(made.rate, float), "whole numbers pass as floats"
    assert build(Shape, {"width": 3, "rate": 0.5, "limit": 2}, "shape").limit == 2.0
    assert build(Shape, {"width": 1, "rate": 0.5, "shares": {"a": 1.0}}, "s").shares == {"a": 1.0}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hight": 2}, r"shape\.hight: unknown key, allowed: .*width"),
        ({"width": None}, r"shape\.width: found None, allowed: int"),
        ({"width": 2.0}, r"shape\.width: found 2\.0, allowed: int"),
        ({"width": "2"}, r"shape\.width: found '2', allowed: int"),
        ({"width": True}, r"shape\.width: found True, allowed: int"),
        ({"rate": True}, r"shape\.rate: found True, allowed: float"),
        ({"rate": "fast"}, r"shape\.rate: found 'fast', allowed: float"),
        ({"name": 3}, r"shape\.name: found 3, allowed: str"),
        ({"deep": 1}, r"shape\.deep: found 1, allowed: bool"),
        ({"limit": "none"}, r"shape\.limit: found 'none', allowed: float"),
        ({"shares": [1]}, r"shape\.shares: found \[1\], allowed: a dict"),
        ({"order": "12"}, r"shape\.order: found '12', allowed: a list"),
        ({"places": "ab"}, r"shape\.places: found 'ab', allowed: a tuple"),
    ],
)
def test_settings_that_do_not_fit_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        build(Shape, {"width": 3, "rate": 0.5, **change}, "shape")


def test_missing_settings_are_refused() -> None:
    with pytest.raises(UserError, match=r"shape\.rate: missing"):
        build(Shape, {"width": 3}, "shape")
    with pytest.raises(UserError, match=r"shape: found \[\], allowed: a mapping"):
        build(Shape, [], "shape")


def test_the_settings_option(tmp_path: Path) -> None:
    assert read_settings('{"a": 1}') == {"a": 1}
    (tmp_path / "s.yaml").write_text("a: {b: 1e-3}\nc: [x]\n")
    assert read_settings(f"@{tmp_path / 's.yaml'}")["c"] == ["x"]
    for bad in ("{", "[1]", f"@{tmp_path / 'none.yaml'}"):
        with pytest.raises(UserError, match="--settings"):
            read_settings(bad)


ROWS: list[dict[str, Any]] = [{"b": 1, "a": "x\u2028y"}, {"c": [1.5, None]}, {}]


def test_rows_come_back_with_their_footer(tmp_path: Path) -> None:
    path = tmp_path / "sub" / "rows.jsonl"
    write_jsonl(path, ROWS, expected=3)
    assert read_jsonl(path) == ROWS
    rows, footer = read_jsonl_with_footer(path)
    body = "".join(json.dumps(row, sort_keys=True) + "\n" for row in rows)
    assert footer == {"footer": True, "rows": 3, "sha256": digest_text(body), "expected": 3}
    write_jsonl(path, [])
    assert read_jsonl(path) == []
    assert [f.name for f in path.parent.iterdir()] == ["rows.jsonl"], "no temporary file is left"


def test_a_cut_or_edited_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    write_jsonl(path, ROWS)
    whole = path.read_text()
    lines = whole.splitlines(keepends=True)
    for text, message in (
        ("", "no footer"),
        ("".join(lines[:-1]), "no footer"),
        (whole[:-9], "not JSON"),
        ("".join([lines[0], *lines[2:]]), "does not match"),
        (whole.replace("1.5", "1.6"), "does not match"),
        ("".join([lines[1], lines[0], *lines[2:]]), "does not match"),
        (whole.replace('"rows": 3', '"rows": 2'), "does not match"),
    ):
        assert text != whole
        path.write_text(text)
        with pytest.raises(UserError, match=message):
            read_jsonl(path)
    with pytest.raises(UserError, match="cannot be read"):
        read_jsonl(tmp_path / "none.jsonl")


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "value.json"
    write_json(path, {"a": 1})
    with pytest.raises(ValueError, match="JSON"):
        write_json(path, {"a": float("nan")})

    def half(file: Any) -> None:
        file.write(b"half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        atomic_write(path, half)
    assert read_json(path) == {"a": 1}
    assert [f.name for f in tmp_path.iterdir()] == ["value.json"]


def test_equal_values_give_equal_bytes_and_usual_permissions(tmp_path: Path) -> None:
    left, right = tmp_path / "left.json", tmp_path / "right.json"
    write_json(left, {"a": 1, "b": 2})
    write_json(right, {"b": 2, "a": 1})
    assert digest_file(left) == digest_file(right)
    assert digest_json({"a": 1, "b": 2}) == digest_json({"b": 2, "a": 1}) != digest_json([1, 2])
    umask = os.umask(0)
    os.umask(umask)
    assert left.stat().st_mode & 0o777 == 0o666 & ~umask
    write_text(left, "{")
    with pytest.raises(UserError, match="not a readable JSON file"):
        read_json(left)
    # SHA-256 of the empty text
    assert digest_text("").startswith("e3b0c44298fc1c149afbf4c8996fb924")
