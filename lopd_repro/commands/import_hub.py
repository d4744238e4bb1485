"""`lopd-repro import-hub`: a fetched model as a backbone's folder, by links.

lopd-repro import-hub --fetched data/qwen3-4b --out results/backbones/qwen3-4b/model --report FILE
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path

from lopd_repro.errors import UserError
from lopd_repro.fetch.place import MANIFEST
from lopd_repro.files import read_json, write_json


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of this command."""
    parser.add_argument("--fetched", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--report", type=Path, required=True)


def run(args: argparse.Namespace) -> int:
    """Link every file; report what it is, from its headers."""
    manifest = read_json(args.fetched / MANIFEST)
    config = read_json(args.fetched / "config.json")
    args.out.mkdir(parents=True, exist_ok=True)
    for name in manifest["files"]:
        link = args.out / name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.unlink(missing_ok=True)
        link.symlink_to((args.fetched / name).resolve())
    write_json(
        args.report,
        {
            "source": manifest["source"],
            "revision": manifest["revision"],
            "model_type": config.get("model_type"),
            "parameters": parameters(args.fetched, list(manifest["files"])),
        },
    )
    return 0


def parameters(folder: Path, names: list[str]) -> int:
    """Entries of all tensors in a folder's safetensors files; reads their headers alone."""
    from safetensors import SafetensorError, safe_open

    total = 0
    for name in names:
        if not name.endswith(".safetensors"):
            continue
        try:
            with safe_open(folder / name, "pt") as file:
                total += sum(math.prod(file.get_slice(key).get_shape()) for key in file.keys())  # noqa: SIM118
        except SafetensorError as error:
            raise UserError(f"{folder / name}: no safetensors file ({error})") from None
    return total
