from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lopd_repro.conformance.environments import ENTRIES

FOLDER = Path(__file__).resolve().parents[2].parent / "shared" / "golden"

needs_golden = pytest.mark.skipif(
    not (FOLDER / "manifest.json").is_file(), reason=f"no golden vectors at {FOLDER}"
)


@needs_golden
@pytest.mark.parametrize("name", ENTRIES)
def test_recorded_behaviour_is_ours(name: str) -> None:
    outcome = ENTRIES[name]({}, FOLDER / f"{name}.json")
    assert outcome.ok, outcome.detail
    assert outcome.value_error == 0


@needs_golden
@pytest.mark.parametrize(
    ("name", "path", "value"),
    [
        ("envscaler_parse", (3, "lopd", "action", "name"), "other"),
        ("envscaler_parse", (4, "envscaler", "parse_success"), True),
        ("envscaler_reward", ("cases", 0, "envscaler", "reward"), 0.5),
        ("envscaler_reward", ("cases", 2, "lopd", "per_check_success_result_error", 0, 2), "x"),
        ("envscaler_reward", ("cases", 1, "final_state", "limit"), 6),
        ("envscaler_reward", ("cases", 7, "lopd", "reward"), 1.0),
        ("envscaler_episodes", ("cases", 0, "steps", 1, "reward"), 0.6),
        ("envscaler_episodes", ("cases", 3, "steps", 1, "observation"), "other"),
        ("envscaler_episodes", ("cases", 0, "final_items", "bolt"), 4),
        ("lopd_env_episodes", ("cases", 2, "steps", 0, "observation"), "other"),
        ("lopd_env_episodes", ("cases", 5, "steps", 0, "info", "action_executed"), True),
    ],
)
def test_a_changed_record_is_noticed(
    name: str, path: tuple[Any, ...], value: Any, tmp_path: Path
) -> None:
    content = json.loads((FOLDER / f"{name}.json").read_text())
    place = content
    for key in path[:-1]:
        place = place[key]
    assert place[path[-1]] != value
    place[path[-1]] = value
    changed = tmp_path / f"{name}.json"
    changed.write_text(json.dumps(content))
    outcome = ENTRIES[name]({}, changed)
    assert (outcome.ok, outcome.value_error) == (False, 1.0)
    assert "differing" in outcome.detail
