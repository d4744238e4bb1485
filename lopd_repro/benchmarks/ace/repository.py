"""The official repository at its pinned commit: its code and its English agent data."""

from __future__ import annotations

from lopd_repro.benchmarks.repository import Repository

COUNTS = {"multi_step": 20, "multi_turn": 30}

_CODE = ("eval_main.py", "generate.py", "category.py", "model_eval", "model_inference")
_DATA = tuple(
    f"data_all/data_en/{place}data_agent_{category}.json"
    for category in COUNTS
    for place in ("", "possible_answer/")
)

REPOSITORY = Repository(
    name="acebench",
    url="https://github.com/chenchen0103/ACEBench.git",
    # Answers as corrected on 2025-10-29.
    commit="56dd66cf6439b0d9655ee1b353e4cd745c6f664e",
    digest="3629bab204b53253ce651a57589da11f9704518ea6c05b84ae43ac4812459a95",
    parts=(*_CODE, *_DATA),
    suffixes=(".py",),
    option="acebench.official.repository",
    variable="LOPD_ACEBENCH_REPO",
)


def data_files() -> tuple[str, ...]:
    """Relative names of the English agent data files."""
    return _DATA
