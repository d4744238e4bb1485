"""The core's small models and the worlds of ranks serve here too; without vLLM nothing can run."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

for _folder in ("core", "parallel"):
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / _folder))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    found = importlib.util.find_spec("vllm")
    if found is not None and found.origin is not None:
        return
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.skip(reason="needs vLLM beside lopd-repro: docs/vllm.md"))


@pytest.fixture(scope="session", params=["qwen3", "olmo3"])
def started(request: pytest.FixtureRequest, tmp_path_factory: Any) -> Any:
    """Started once for all tests: a start costs more than they do."""
    from pair import Pair

    return Pair(request.param, tmp_path_factory.mktemp(request.param))


@pytest.fixture
def pair(started: Any) -> Any:
    """The engine with the weights of its model, whatever a test before it has left there."""
    started.engine.sync_weights(started.model)
    return started
