"""Tiny stand-ins for all that `config/paper.yaml` loads, and that configuration on them.

    python benchmarks/stand_ins.py FOLDER

Writes models with random weights in the architectures of the paper's backbones, a retriever, and a
handful of rows in the file forms of EnvScaler, DeepCoder, HumanEval+ and MBPP+; `sources.yaml`,
which puts them in the place of the real ones; and `config.yaml`: the paper's configuration with
the changes of `CHANGES`, and with one backbone for each domain. Nothing is a copy of the data, and
no number made from it means anything.
"""

from __future__ import annotations

import argparse
import copy
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from lopd_repro.data.coding.files import code_record
from lopd_repro.data.envscaler import environment_record, scenario_record
from lopd_repro.data.tiny import tiny_task_set
from lopd_repro.data.tiny_coding import tiny_tasks
from lopd_repro.workflow.configuration import ROOT, load

WINDOW = 40960
TASKS = 24
BACKBONES = {"tool_use": "qwen3-8b", "coding": "olmo3-7b-code"}
ENDS = ("<|im_end|>", "<|endoftext|>")
SPECIAL = (*ENDS, "<|im_start|>", "<think>", "</think>", "<tool_call>", "</tool_call>")

_SHORT = {"temperature": 0.7, "top_p": 0.95, "top_k": 20, "max_turn_tokens": 8}
_SAMPLING = {**_SHORT, "max_tail_tokens": 400, "max_episode_tokens": WINDOW}
_ANSWER = {"temperature": 0.7, "top_p": 0.95, "top_k": 20, "max_tokens": 8}
_SIZES = {"validation": 4, "test": 4}

# Sections are laid over the paper's; those of benchmarks take their place.
CHANGES: dict[str, Any] = {
    "scale": "stand-ins",
    "notice": "Random models on a handful of tasks: these numbers mean nothing.",
    "seeds": [0],
    # A retriever of random weights finds the same experiences for every task, and such lists cannot
    # be shuffled: the controls that do so are left out.
    "controls": ["lopd_hidden_task", "lopd_self_retrieval", "lopd_frozen", "lopd_text"],
    "analyses": {
        "backbone": BACKBONES["tool_use"],
        "margins": [0.0, 0.05],
        "latents": [8, 32],
        "retrieved": [1, 3],
        "decisive": "lopd_hidden_task",
    },
    "tasks": {"sizes": _SIZES},
    "environment": {"max_steps": 2, "step_cap": "submit", "workers": 1},
    "engine": {"name": "hf", "max_batch": 8, "device": "cpu"},
    "sampling": {"rollout": _SAMPLING, "evaluation": _SAMPLING},
    # What a random model does is a success here, or nothing would reach the bank.
    "bank": {"threshold": 0.0},
    "composer": {"depth": 2},
    "cold_start": {"steps": 2, "batch": 2},
    "train": {"steps": 2, "rollouts_per_step": 4, "validate_every": 1, "checkpoint_every": 1},
    "validation": {"task_limit": 2},
    "serve": {"engine": "hf", "dtype": "float32", "max_batch": 8, "python": ""},
    "coding": {
        "tasks": {"sizes": _SIZES},
        "environment": {"workers": 1},
        "sampling": {
            "rollout": {**_SHORT, "max_tail_tokens": 8},
            "evaluation": {**_SHORT, "max_tail_tokens": 8},
        },
        "bank": {"threshold": 0.0},
    },
}
BENCHMARKS: dict[str, dict[str, Any]] = {
    "tool_use": {
        # The official tasks come with the package; one of each category.
        "bfcl": {"tasks_per_category": 1, "steps_per_turn": 1, "max_new_tokens": 4},
        "acebench": {"suite": "mini", "limit": 1, "repeats": 1, "sampling": _ANSWER},
    },
    "coding": {
        "livecodebench": {"suite": "mini", "limit": 1, "sampling": _ANSWER},
        "evalplus": {"tasks_per_dataset": 1, "other_data": True, "workers": 1, "sampling": _ANSWER},
    },
}
_REPLACED = ("acebench", "livecodebench")


def main() -> int:
    """Write everything into a folder."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    print(make(parser.parse_args().folder))
    return 0


def make(folder: Path, without: Sequence[str] = ()) -> Path:
    """All of it; returns the configuration's file. `without` names benchmarks to leave out."""
    folder = folder.resolve()
    sources = {
        "envscaler-environments": _dataset(folder, *_environments()),
        "envscaler-scenarios": _dataset(folder, *_scenarios()),
        "deepcoder-taco": _taco(folder),
        "humaneval-plus": _evalplus(folder, "humaneval_plus", "HumanEvalPlus.jsonl", 164),
        "mbpp-plus": _evalplus(folder, "mbpp_plus", "MbppPlus.jsonl", 378),
        "qwen3-8b": _model(folder / "qwen3-8b", "qwen3", 1),
        "qwen3-8b-lopd": _model(folder / "qwen3-8b-lopd", "qwen3", 2),
        "olmo3-7b-think": _model(folder / "olmo3-7b-think", "olmo3", 3),
        "olmo3-7b-think-lopd": _model(folder / "olmo3-7b-think-lopd", "olmo3", 4),
        "qwen3-embedding-8b": _retriever(folder / "qwen3-embedding-8b"),
    }
    (folder / "sources.yaml").write_text(yaml.safe_dump(sources))
    config = folder / "config.yaml"
    config.write_text(yaml.safe_dump(configuration(folder, without), sort_keys=False))
    load([config])
    return config


def configuration(folder: Path, without: Sequence[str] = ()) -> dict[str, Any]:
    """The paper's configuration on the stand-ins in a folder."""
    config = load([ROOT / "config/paper.yaml"])
    _lay_over(config, CHANGES)
    config |= {name: str(folder / name) for name in ("results", "data")}
    config["sources"] = str(folder / "sources.yaml")
    for domain, own in (("tool_use", config), ("coding", config["coding"])):
        kept = BACKBONES[domain]
        own["backbones"] = {kept: own["backbones"][kept]}
        for name, values in BENCHMARKS[domain].items():
            if name in _REPLACED:
                own["benchmarks"][name] = values
            else:
                own["benchmarks"][name].update(values)
    for name, file in (("humaneval", "humaneval-plus"), ("mbpp", "mbpp-plus")):
        key = f"{name}_file"
        unpacked = Path(config["coding"]["benchmarks"]["evalplus"][key]).name
        config["coding"]["benchmarks"]["evalplus"][key] = str(folder / "data" / file / unpacked)
    for own in (config, config["coding"]):
        for name in without:
            own["benchmarks"].pop(name, None)
    return config


def _lay_over(below: dict[str, Any], above: dict[str, Any]) -> None:
    for key, value in above.items():
        if isinstance(value, dict) and isinstance(below.get(key), dict):
            _lay_over(below[key], value)
        else:
            below[key] = copy.deepcopy(value)


def _source(folder: Path, kind: str, files: tuple[str, ...] = (), **more: Any) -> dict[str, Any]:
    values = {"kind": kind, "about": "a stand-in", "licence": "none", "folder": folder.name, **more}
    if kind.startswith("hub"):
        values["repository"] = f"stand-ins/{folder.name}"
    return {**values, "files": {name: {} for name in files}} if files else values


def _dataset(folder: Path, name: str, file: str, records: list[Any]) -> dict[str, Any]:
    place = folder / name
    place.mkdir(parents=True, exist_ok=True)
    (place / file).write_text(json.dumps(records))
    return _source(place, "hub-dataset", (file,), patterns=[file])


def _environments() -> tuple[str, str, list[Any]]:
    tasks = tiny_task_set(0, TASKS)
    records = [environment_record(e) for e in tasks.environments.values()]
    return "envscaler-environments", "191_env_metadata_processed.json", records


def _scenarios() -> tuple[str, str, list[Any]]:
    tasks = tiny_task_set(0, TASKS)
    records = [scenario_record(t, tasks.environments[t.env_id]) for t in tasks.tasks.values()]
    return "envscaler-scenarios", "envscaler_rl_scenario_metadata.json", records


def _taco(folder: Path) -> dict[str, Any]:
    """Parquet files with the release's two columns."""
    from pyarrow import Table
    from pyarrow.parquet import write_table

    records = [code_record(task) for task in tiny_tasks(0, TASKS).values()]
    rows = [{key: record[key] for key in ("problem", "tests")} for record in records]
    place = folder / "deepcoder-taco"
    (place / "taco").mkdir(parents=True, exist_ok=True)
    names = ("taco/train-00000-of-00002.parquet", "taco/train-00001-of-00002.parquet")
    for name, part in zip(names, (rows[::2], rows[1::2]), strict=True):
        write_table(Table.from_pylist(part), place / name)
    return _source(place, "hub-dataset", names, patterns=["taco/*.parquet"])


def _evalplus(folder: Path, dataset: str, file: str, count: int) -> dict[str, Any]:
    """As many rows as the official file has: bundled ones under further ids."""
    bundled = ROOT / f"eval/evalplus/data/mini/{dataset}.jsonl"
    rows = [json.loads(line) for line in bundled.read_text().splitlines()]
    form = rows[0]["task_id"].partition("/")[0]
    made = [{**rows[i % len(rows)], "task_id": f"{form}/{i}"} for i in range(count)]
    place = folder / dataset.replace("_", "-")
    place.mkdir(parents=True, exist_ok=True)
    (place / file).write_text("".join(json.dumps(row) + "\n" for row in made))
    address = f"https://stand-ins.invalid/{file}.gz"
    return _source(place, "url", url=address, unpack=file)


def _model(place: Path, architecture: str, seed: int) -> dict[str, Any]:
    """Two layers of random weights, with a tokenizer and a chat template like the original's."""
    import torch
    from transformers import (
        GenerationConfig,
        Olmo3Config,
        Olmo3ForCausalLM,
        Qwen3Config,
        Qwen3ForCausalLM,
    )

    tokenizer = _tokenizer()
    ends = tokenizer.convert_tokens_to_ids(list(ENDS))
    shape: dict[str, Any] = {
        "vocab_size": len(tokenizer),
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "max_position_embeddings": WINDOW,
        "bos_token_id": None,
        "eos_token_id": ends[0],
        "pad_token_id": ends[1],
    }
    torch.manual_seed(seed)
    if architecture == "qwen3":
        model: Any = Qwen3ForCausalLM(Qwen3Config(**shape, head_dim=32))
    else:
        model = Olmo3ForCausalLM(Olmo3Config(**shape, sliding_window=4096))
    model.generation_config = GenerationConfig(eos_token_id=ends, pad_token_id=ends[1])
    model.save_pretrained(place)
    tokenizer.save_pretrained(place)
    return _source(place, "hub-model")


def _retriever(place: Path) -> dict[str, Any]:
    """A decoder in the form of the paper's retriever. It takes the mean over tokens: the last one's
    state, which the paper's takes, tells hardly any texts apart where weights are random."""
    _model(place, "qwen3", 5)
    modules = [("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize")]
    listed = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for i, (path, kind) in enumerate(modules)
    ]
    (place / "modules.json").write_text(json.dumps(listed))
    (place / "1_Pooling").mkdir(exist_ok=True)
    pooling = {"word_embedding_dimension": 64, "pooling_mode_mean_tokens": True}
    (place / "1_Pooling/config.json").write_text(json.dumps(pooling))
    prompts = {"prompts": {"query": "", "document": ""}, "similarity_fn_name": "cosine"}
    (place / "config_sentence_transformers.json").write_text(json.dumps(prompts))
    return _source(place, "hub-model")


def _tokenizer() -> Any:
    """Byte pairs learned from the project's own texts; any text has ids."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=2048,
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    texts = sorted((ROOT / "docs").glob("*.md"))
    tokenizer.train_from_iterator((path.read_text() for path in texts), trainer)
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=ENDS[0],
        pad_token=ENDS[1],
        model_max_length=WINDOW,
        clean_up_tokenization_spaces=False,
    )
    fast.chat_template = TEMPLATE
    return fast


# As Qwen3's: tools in the system message, and no reasoning of earlier turns in the history.
TEMPLATE = """\
{%- if tools -%}
<|im_start|>system
{% if messages[0].role == 'system' %}{{ messages[0].content }}
{% endif %}{% for tool in tools %}{{ tool | tojson }}
{% endfor %}<|im_end|>
{% elif messages[0].role == 'system' -%}
<|im_start|>system
{{ messages[0].content }}<|im_end|>
{% endif -%}
{%- for message in messages -%}
{%- if message.role != 'system' -%}
<|im_start|>{{ message.role }}
{% if message.content is string -%}
{{ message.content.split('</think>')[-1].lstrip('\\n') }}
{%- endif -%}
{%- for call in message.tool_calls or [] %}
<tool_call>
{{ (call.function or call) | tojson }}
</tool_call>
{%- endfor -%}
<|im_end|>
{% endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
<|im_start|>assistant
{% if enable_thinking is defined and not enable_thinking -%}
<think>

</think>

{% endif -%}
{%- endif -%}
"""


if __name__ == "__main__":
    sys.exit(main())
