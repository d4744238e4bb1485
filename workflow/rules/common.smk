"""Helpers of the rules: slices of the configuration, source digests, the registry of methods."""

import json
import re
import sys
from pathlib import Path

sys.path.insert(0, workflow.basedir)

from lopd_repro.workflow import methods, slices, sources

REGISTRY = methods.Registry(config)


wildcard_constraints:
    backbone="[A-Za-z0-9_.-]+",
    method="[A-Za-z0-9_]+",
    seed=r"\d+",


def settings(job, name=None):
    """A job's slice of the configuration as one JSON argument; the name defaults to the backbone."""

    def slice_text(wildcards):
        chosen = name or getattr(wildcards, "backbone", "")
        return json.dumps(slices.slice_for(config, job, chosen), sort_keys=True)

    return slice_text


def source(module, *files):
    """Digest of the project's source that a command can import, and of further files."""
    return sources.digest(Path(workflow.basedir), module, files)


def backbones(kind):
    """Pattern of the backbones that come from one kind of source; matches nothing if none does."""
    names = [n for n, b in config["backbones"].items() if b["source"] == kind]
    return "|".join(map(re.escape, names)) or "(?!)"


def run_folder(method, domain="tool_use"):
    return f"{RESULTS}/runs/{domain}/{{backbone}}/{method}/seed{{seed}}"


def method_inputs(name):
    wanted = {file: METHOD_FILES[file] for file in REGISTRY[name].inputs}
    return {
        "splits": rules.tasks.output.splits,
        "model": rules.base_model.output.model,
        **wanted,
    }


def method_outputs(name):
    folder = run_folder(name)
    return {
        "checkpoint": directory(f"{folder}/checkpoint"),
        "metrics": f"{folder}/metrics.jsonl",
        "selected": f"{folder}/selected.json",
        "manifest": f"{folder}/manifest.json",
    }


def method_params(name):
    method = REGISTRY[name]
    return {
        "settings": settings("train", name),
        "file": method.file,
        "state": f"{RESULTS}/state/tool_use/{{backbone}}/{name}/seed{{seed}}",
        "source": source("lopd_repro.commands.train", method.file),
        "inputs": lambda wildcards, input: " ".join(
            f"--input {file}={input[file]}" for file in method.inputs
        ),
    }


def method_log(name):
    return f"{RESULTS}/logs/train/{{backbone}}/{name}/seed{{seed}}.log"


def method_benchmark(name):
    return f"{RESULTS}/benchmarks/train/{{backbone}}/{name}/seed{{seed}}.tsv"


def evaluations(methods, benchmarks=()):
    """Evaluation files of all backbones and seeds: the test split, and the named benchmarks."""
    return expand(
        [rules.evaluate_envscaler.output[0], *map(benchmark_rows, benchmarks)],
        backbone=config["backbones"],
        method=methods,
        seed=config["seeds"],
    )


def conversation_settings(name):
    text = json.dumps(slices.conversations_slice(config, name), sort_keys=True)
    return lambda wildcards: text


def benchmark_rows(name, domain="tool_use"):
    return f"{RESULTS}/eval/{name}/{domain}/{{backbone}}/{{method}}/seed{{seed}}.jsonl"


def benchmark_inputs(name, domain="tool_use", **more):
    return {"checkpoint": f"{run_folder('{method}', domain)}/checkpoint", **more}


def benchmark_params(name, domain="tool_use"):
    def benchmark_settings(wildcards):
        chosen = slices.benchmark_slice(config, name, wildcards.backbone)
        return json.dumps(chosen, sort_keys=True)

    folder = Path("eval", name)
    files = [str(path) for path in sorted(folder.rglob("*")) if path.is_file()]
    kept = [path for path in files if "__pycache__" not in path]
    return {
        "settings": benchmark_settings,
        "file": str(folder / "adapter.py"),
        "state": f"{RESULTS}/state/eval/{name}/{domain}/{{backbone}}/{{method}}/seed{{seed}}",
        "source": source("lopd_repro.commands.benchmark", *kept),
    }


def benchmark_log(name):
    return f"{RESULTS}/logs/evaluate/{name}/{{backbone}}/{{method}}/seed{{seed}}.log"


def benchmark_times(name):
    return (
        f"{RESULTS}/benchmarks/evaluate/{name}/{{backbone}}/{{method}}/seed{{seed}}.tsv"
    )


def table_settings(methods):
    text = json.dumps(
        {
            "scale": config["scale"],
            "notice": config["notice"],
            "preset": config["preset"],
            "backbones": {
                name: {"label": b["label"], "paper_backbone": b["paper_backbone"]}
                for name, b in config["backbones"].items()
            },
            "methods": {name: REGISTRY[name].label for name in methods},
            "seeds": config["seeds"],
        }
    )
    return lambda wildcards: text
