"""What a result was made from: settings, inputs, packages, seeds, hardware, time."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from collections.abc import Mapping
from typing import Any

from lopd_repro.files import digest_file, digest_json

PACKAGES = ("torch", "transformers", "peft", "tokenizers", "numpy", "faiss-cpu", "scikit-learn")


def manifest(
    settings: Mapping[str, Any],
    inputs: Mapping[str, str],
    source: str,
    seeds: Mapping[str, int],
    seconds: float,
    **more: Any,
) -> dict[str, Any]:
    """Content of a run's `manifest.json`; `inputs` maps names to files, which are hashed."""
    import torch

    return {
        "settings": dict(settings),
        "settings_digest": digest_json(settings),
        "source_digest": source,
        "inputs": {
            name: {"path": path, "sha256": digest_file(path)} for name, path in inputs.items()
        },
        "packages": {name: _version(name) for name in PACKAGES},
        "python": platform.python_version(),
        "seeds": dict(seeds),
        "hardware": {
            "machine": platform.machine(),
            "processor": _processor(),
            "cores": os.cpu_count(),
            "torch_threads": torch.get_num_threads(),
            "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        },
        "wall_seconds": round(seconds, 3),
        **more,
    }


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _processor() -> str:
    try:
        with open("/proc/cpuinfo") as file:  # noqa: PTH123
            for line in file:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor()
