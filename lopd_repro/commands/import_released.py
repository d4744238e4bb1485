"""`lopd-repro import-released`: a checkpoint that others trained, as a run's checkpoint.

    lopd-repro import-released --folder data/qwen3-8b-lopd --backbone MODEL_FOLDER \
        --tokenizer own --out results/runs/tool_use/qwen3-8b/lopd_released/seed0/checkpoint \
        --report .../released.json

Weights get a second name (a copy on another file system), other files are copied; symbolic links
would not do, since a benchmark's harness may read the checkpoint's folder and no other. Refused is
a folder that is no whole model in Hugging Face form, and one of other sizes than the backbone that
its row stands under.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path
from typing import Any

from lopd_repro.commands.import_hub import parameters
from lopd_repro.errors import UserError
from lopd_repro.fetch.place import MANIFEST, model_files
from lopd_repro.files import atomic_folder, digest_file, link_or_copy, read_json, write_json

SIZES = ("model_type", "hidden_size", "num_hidden_layers", "num_attention_heads")
TOKENIZER = ("tokenizer.json", "tokenizer_config.json")
_OF_THE_TOKENIZER = (
    *TOKENIZER,
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "vocab.json",
    "merges.txt",
    "tokenizer.model",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of this command."""
    parser.add_argument("--folder", type=Path, required=True, help="the released checkpoint")
    parser.add_argument("--backbone", type=Path, required=True, help="the base model's folder")
    parser.add_argument("--tokenizer", choices=("own", "backbone"), default="own")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--report", type=Path, required=True)


def run(args: argparse.Namespace) -> int:
    """Check, put there, report."""
    files = model_files(str(args.folder), args.folder)
    _same_sizes(args.folder, args.backbone)
    if args.tokenizer == "backbone":
        files = {name: path for name, path in files.items() if name not in _OF_THE_TOKENIZER}
        own = model_files(str(args.backbone), args.backbone)
        files |= {name: path for name, path in own.items() if name in _OF_THE_TOKENIZER}
    missing = [name for name in TOKENIZER if name not in files]
    if missing:
        raise UserError(
            f"{args.folder}: has no {missing[0]}; `tokenizer: backbone` takes the backbone's"
        )
    _place(files, args.out)
    known = args.folder / MANIFEST
    fetched = read_json(known) if known.is_file() else {}
    write_json(
        args.report,
        {
            "kind": "released checkpoint, not trained here",
            "source": fetched.get("source", str(args.folder)),
            "revision": fetched.get("revision"),
            "tokenizer": args.tokenizer,
            "parameters": parameters(args.out, list(files)),
            "sha256": {name: _sha256(name, path, fetched) for name, path in files.items()},
        },
    )
    return 0


def _same_sizes(folder: Path, backbone: Path) -> None:
    ours, base = read_json(folder / "config.json"), read_json(backbone / "config.json")
    for key in SIZES:
        if ours.get(key) != base.get(key):
            raise UserError(
                f"{folder}/config.json: {key} is {ours.get(key)!r}, the backbone's is "
                f"{base.get(key)!r}; a released checkpoint stands under the backbone it came from"
            )


def _place(files: dict[str, Path], out: Path) -> None:
    with atomic_folder(out) as new:
        for name, path in files.items():
            (new / name).parent.mkdir(parents=True, exist_ok=True)
            put = link_or_copy if name.endswith(".safetensors") else shutil.copyfile
            put(path, new / name)


def _sha256(name: str, path: Path, fetched: dict[str, Any]) -> str:
    # A fetch has read every byte already.
    known = fetched.get("files", {}).get(name, {}).get("sha256")
    return str(known) if known else digest_file(path)
