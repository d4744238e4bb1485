"""A bank, what every task retrieves from it, and a composer: the inputs of LOPD, small."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from small import ScriptDomain, backbone, codec, tokenizer

from lopd_repro.experience.bank import Experience, write_bank
from lopd_repro.files import write_json
from lopd_repro.lopd.composer import Composer, ComposerSettings
from lopd_repro.lopd.saved import save_composer
from lopd_repro.models.backbone import Backbone, copy_model, freeze
from lopd_repro.models.tiny_tokenizer import EOS
from lopd_repro.training.method import Resources

TRAIN = [f"t{i}" for i in range(6)]
RETRIEVED = {
    "t0": ["t1#1", "t2#1"],
    "t1": ["t2#1", "t3#1"],
    "t2": ["t3#1", "t0#1"],
    "t3": ["t0#1", "t1#1"],
    "t4": ["t0#1"],
    "t5": [],
}
GROUPS = {task: "ab"[i % 2] for i, task in enumerate(TRAIN)}
SHAPE = ComposerSettings(n_latents=3, depth=2, ff_mult=2, lora_rank=2, lora_alpha=4)
PROMPTS = {"latent_before": "<", "latent_after": ">"}


def experience(task_id: str, trace: str, number: int = 1) -> Experience:
    """One experience whose trajectory is a single turn."""
    tail = tuple(tokenizer().encode(trace + EOS, add_special_tokens=False))
    name = f"{task_id}#{number}"
    return Experience(name, task_id, f"task {task_id}", trace, 1.0, tail, (True,) * len(tail))


def bank() -> list[Experience]:
    """Experiences of the first four tasks, with traces of different lengths."""
    return [experience(f"t{i}", f"{i + 1}. do " + "more " * i) for i in range(4)]


def make_composer(
    model: Any, seed: int = 0, name: str = "composer", shape: ComposerSettings = SHAPE
) -> Composer:
    """A composer whose adapter does something (a fresh one starts at zero)."""
    composer = Composer(model, tokenizer(), shape, seed, name)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in composer.lora_parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.1)
    return composer


def lopd_files(folder: Path, policy: Backbone) -> dict[str, str]:
    """Write the method's input files."""
    write_bank(folder / "bank.jsonl", bank())
    write_json(folder / "retrieved.json", {"train": RETRIEVED, "groups": GROUPS})
    composer = make_composer(freeze(copy_model(policy.model)))
    save_composer(composer, folder / "composer.safetensors")
    return {
        "bank": str(folder / "bank.jsonl"),
        "retrieved": str(folder / "retrieved.json"),
        "composer": str(folder / "composer.safetensors"),
    }


def resources(policy: Backbone | None = None, folder: Path | None = None) -> Resources:
    """A method's surroundings; with a folder, LOPD's files are in it."""
    policy = policy or backbone()
    files = lopd_files(folder, policy) if folder is not None else {}
    return Resources(policy, codec(), ScriptDomain(), 7, "base", files, dict(PROMPTS))
