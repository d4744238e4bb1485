"""The stub server of the serving tests, and the official package where it is installed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from lopd_repro.benchmarks.evalplus.environment import default_python, find_environment
from lopd_repro.benchmarks.evalplus.official import Package
from lopd_repro.errors import UserError

sys.path.append(str(Path(__file__).resolve().parents[1] / "serving"))
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def package() -> Package:
    try:
        environment = find_environment(default_python(ROOT))
    except UserError as error:
        pytest.skip(str(error))
    return Package(environment, ROOT / "eval" / "evalplus" / "launch.py")
