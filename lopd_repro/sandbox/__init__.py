"""Confinement of code that this project did not write: commands, benchmarks, model programs.

`run` is in `launch.py`. The names are loaded on first use, because the processes inside a
sandbox import this package too and must start fast.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from lopd_repro.sandbox.launch import LAYERS, Limits, Outcome, SandboxError, run

__all__ = ["LAYERS", "Limits", "Outcome", "SandboxError", "run"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from lopd_repro.sandbox import launch

    return getattr(launch, name)
