"""A small version of benchmarks/audit_simulation.py: no false alarms, errors found."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="module")
def simulation() -> ModuleType:
    path = Path(__file__).parents[2] / "benchmarks" / "audit_simulation.py"
    spec = importlib.util.spec_from_file_location("audit_simulation", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["audit_simulation"] = module
    spec.loader.exec_module(module)
    return module


def test_no_false_alarm(simulation: ModuleType) -> None:
    alarms, said = simulation.false_alarms(tables=100, seed=11)
    assert alarms == 0, said


def test_errors_are_found(simulation: ModuleType) -> None:
    for kind in simulation.ERRORS:
        detected, detectable, _ = simulation.detection(kind, wanted=15, seed=11)
        assert detectable == 15 and detected >= 14, kind


def test_an_error_that_no_one_could_see_is_not_counted(simulation: ModuleType) -> None:
    # 41.7 of 12 items may be 5/12; 41.8 is no share of 12, 24, ... 120 items
    assert simulation.printable("41.7", 12, 1, simulation.MODES)
    assert simulation.honest_column(["41.7", "50.0"], 12, 1)
    assert not simulation.honest_column(["40.0", "41.3"], 5, 1)
