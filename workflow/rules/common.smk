"""Helpers of the rules: slices of the configuration, source digests, the registry of methods."""

import json
import re
import sys
from functools import cache
from pathlib import Path

from snakemake_interface_executor_plugins.settings import SharedFSUsage

sys.path.insert(0, workflow.basedir)

from lopd_repro.workflow import fetched, methods, notice, slices, sources, variants
from lopd_repro.workflow import vllm_environment
from lopd_repro.workflow.released import released

VARIANTS = variants.expand(config)
ANALYSES = config.get("analyses", {})
DATA = fetched.data_folder(config)
REGISTRY = methods.Registry(config)

# Each domain's whole configuration, and the domain that a backbone belongs to.
DOMAINS = slices.domains(config)
NOTICE = notice.notice(config, DOMAINS)
RELEASED = {(r.backbone, r.name): r for own in DOMAINS.values() for r in released(own)}
DOMAIN_OF = {name: d for d, own in DOMAINS.items() for name in own["backbones"]}


wildcard_constraints:
    domain="|".join(slices.DOMAINS),
    backbone="[A-Za-z0-9_.-]+",
    method="[A-Za-z0-9_.-]+",
    seed=r"\d+",


def domain_of(wildcards):
    return getattr(wildcards, "domain", None) or DOMAIN_OF[wildcards.backbone]


def settings(job, name=None, domain=None):
    """A job's slice of its domain's configuration as one JSON argument; the name defaults to the
    backbone."""

    def slice_text(wildcards):
        own = DOMAINS[domain or domain_of(wildcards)]
        chosen = name or getattr(wildcards, "backbone", "")
        backbone = getattr(wildcards, "backbone", "")
        return json.dumps(slices.slice_for(own, job, chosen, backbone), sort_keys=True)

    return slice_text


def splits(wildcards):
    """The splits of a job's domain."""
    return f"{RESULTS}/tasks/{domain_of(wildcards)}/splits.json"


@cache
def source(module, *files):
    """Digest of the project's source that a command can import, and of further files."""
    return sources.digest(Path(workflow.basedir), module, files)


def backbones(kind):
    """Pattern of the backbones that come from one kind of source; matches nothing if none does."""
    names = [
        name
        for own in DOMAINS.values()
        for name, backbone in own["backbones"].items()
        if backbone["source"] == kind
    ]
    return one_of(names)


def run_folder(method, domain="{domain}"):
    return f"{RESULTS}/runs/{domain}/{{backbone}}/{method}/seed{{seed}}"


BACKBONE_FILES = f"{RESULTS}/backbones/{{backbone}}"

# Files that a variant does not share with the method it is like.
VARIANT_FILES = f"{BACKBONE_FILES}/variants/{{method}}"


COMPOSER_SECTIONS = ["composer", "cold_start", "retrieval"]


def changing(*sections):
    """Variants with settings of their own in one of the sections."""
    return [
        name
        for name in VARIANTS.names()
        if any(slices.overrides(config, name, section) for section in sections)
    ]


def one_of(names):
    """Pattern of the names; matches nothing if there are none."""
    return "|".join(map(re.escape, names)) or "(?!)"


def method_file(name, file):
    """A file that a method asks for by name: its own, or the shared one."""
    own = {"retrieved": ["retrieval"], "composer": COMPOSER_SECTIONS}
    if name in changing(*own.get(file, [])):
        suffix = Path(METHOD_FILES[file]).name
        return f"{BACKBONE_FILES}/variants/{name}/{suffix}"
    return METHOD_FILES[file]


def method_inputs(name):
    wanted = {file: method_file(name, file) for file in REGISTRY[name].inputs}
    return {
        "splits": splits,
        "model": f"{BACKBONE_FILES}/model",
        "vllm": vllm_that_samples,
        **wanted,
    }


def variant_inputs(wildcards):
    return {
        name: file(wildcards) if callable(file) else file.format(**wildcards)
        for name, file in method_inputs(wildcards.method).items()
    }


def method_outputs(name):
    folder = run_folder(name)
    kept = {"candidates": directory(f"{folder}/candidates")} if keeps(name) else {}
    own = [] if name == "{method}" else REGISTRY[name].outputs
    return {
        "checkpoint": directory(f"{folder}/checkpoint"),
        "metrics": f"{folder}/metrics.jsonl",
        "selected": f"{folder}/selected.json",
        "manifest": f"{folder}/manifest.json",
        **{file.replace(".", "_"): f"{folder}/{file}" for file in own},
        **kept,
    }


def keeps(name):
    """Whether a method has a curve on test tasks: its runs on the analyses' backbone keep every
    validated checkpoint, those on others leave the folder empty."""
    return name in config.get("analyses", {}).get("curves", [])


def method_params(name):
    method = REGISTRY[name]
    slices.refuse_overrides(config, name)
    return {
        "settings": settings("train", name),
        "file": method.file,
        "state": f"{RESULTS}/state/{{domain}}/{{backbone}}/{name}/seed{{seed}}",
        "source": source("lopd_repro.commands.train", method.file),
        "inputs": lambda wildcards, input: input_options(name, input),
    }


def variant_params():
    """The same, where the method's name is a wildcard."""

    def file(wildcards):
        return REGISTRY[wildcards.method].file

    return {
        "settings": variant_settings("train"),
        "file": file,
        "state": f"{RESULTS}/state/{{domain}}/{{backbone}}/{{method}}/seed{{seed}}",
        "source": lambda wildcards: source(
            "lopd_repro.commands.train", file(wildcards)
        ),
        "inputs": lambda wildcards, input: input_options(wildcards.method, input),
    }


def variant_settings(job):
    return lambda wildcards: settings(job, wildcards.method)(wildcards)


def input_options(name, input):
    return " ".join(f"--input {file}={input[file]}" for file in REGISTRY[name].inputs)


def method_log(name):
    return f"{RESULTS}/logs/train/{{domain}}/{{backbone}}/{name}/seed{{seed}}.log"


def method_benchmark(name):
    return f"{RESULTS}/benchmarks/train/{{domain}}/{{backbone}}/{name}/seed{{seed}}.tsv"


def evaluations(methods, benchmarks, domain="tool_use"):
    """Files of all backbones and seeds of a domain: the named benchmarks' rows. With them those of
    the released checkpoints, of one seed."""
    patterns = [benchmark_rows(name, domain) for name in benchmarks]
    rows = expand(
        patterns,
        backbone=DOMAINS[domain]["backbones"],
        method=methods,
        seed=config["seeds"],
    )
    for one in released(DOMAINS[domain]):
        names = {"backbone": one.backbone, "method": one.name}
        rows += expand(patterns, seed=config["seeds"][:1], **names)
    return rows


def conversations(wildcards):
    """Conversations in the forms of benchmarks, for tiny backbones; made by the rules in eval/."""
    corpus = DOMAINS[domain_of(wildcards)]["base_model"]["corpus"]
    return {
        name: f"{RESULTS}/conversations/{name}.jsonl"
        for name in corpus.get("conversations", {})
    }


def conversation_settings(name, domain="tool_use"):
    own = slices.conversations_slice(DOMAINS.get(domain, {}), name)
    text = json.dumps(own, sort_keys=True)
    return lambda wildcards: text


def benchmarks_of(domain, *names):
    """Those of the names that the configuration runs in a domain."""
    return [
        name for name in names if name in DOMAINS.get(domain, {}).get("benchmarks", {})
    ]


def benchmark_rows(name, domain="tool_use"):
    return f"{RESULTS}/eval/{name}/{domain}/{{backbone}}/{{method}}/seed{{seed}}.jsonl"


def benchmark_inputs(name, domain="tool_use", **more):
    return {
        "checkpoint": f"{run_folder('{method}', domain)}/checkpoint",
        "vllm": vllm_that_serves,
        **more,
    }


def beforehand(files):
    """Files of the project's folder that a submitted job needs.

    With a store whose copies lie on the nodes (docs/cluster.md), Snakemake would run a job on the
    login node for such an input: it is none there, and must have been made before.
    """
    shared = workflow.storage_settings.shared_fs_usage
    return local(files) if SharedFSUsage.INPUT_OUTPUT in shared else []


def vllm_that_samples(wildcards):
    """vLLM's environment, for jobs that sample in their own process; none for the engine hf."""
    own = DOMAINS[domain_of(wildcards)]
    wanted = vllm_environment.samples_with_vllm(own)
    return beforehand(vllm_environment.markers(own, wanted))


def vllm_that_serves(wildcards):
    """vLLM's environment, for jobs that ask a served checkpoint."""
    own = DOMAINS[domain_of(wildcards)]
    wanted = vllm_environment.serves_with_vllm(own)
    return beforehand(vllm_environment.markers(own, wanted))


def benchmark_params(name, domain="tool_use"):
    """Empty where the configuration does not run the benchmark: then no target asks for it."""

    def benchmark_settings(wildcards):
        chosen = slices.benchmark_slice(DOMAINS[domain], name, wildcards.backbone)
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


def table_settings(methods, domain="tool_use"):
    text = json.dumps(
        {
            "scale": config["scale"],
            "notice": NOTICE,
            "preset": config["preset"],
            "backbones": {
                name: {"label": b["label"], "paper_backbone": b["paper_backbone"]}
                for name, b in DOMAINS[domain]["backbones"].items()
            },
            **released_rows(DOMAINS[domain]),
            "methods": {name: REGISTRY[name].label for name in methods},
            "seeds": config["seeds"],
        }
    )
    return lambda wildcards: text


def released_checkpoint(wildcards):
    return RELEASED[wildcards.backbone, wildcards.method]


def released_rows(domain):
    """What a table is told of released checkpoints; nothing where there are none."""
    rows = [
        {
            key: getattr(one, key)
            for key in ("backbone", "name", "label", "paper_method")
        }
        for one in released(domain)
    ]
    return {"released": rows} if rows else {}


def page_settings(wildcards):
    """What the page of everything reads."""
    every = [*REGISTRY.methods(), *REGISTRY.controls(), *VARIANTS.names()]
    others = RELEASED.values()
    return json.dumps(
        {
            "scale": config["scale"],
            "notice": NOTICE,
            "preset": config["preset"],
            "seeds": config["seeds"],
            "methods": REGISTRY.methods(),
            "controls": REGISTRY.controls(),
            "labels": {
                **{name: REGISTRY[name].label for name in every},
                **{one.name: one.label for one in others},
            },
            **({"checkpoints": [one.label for one in others]} if others else {}),
            "backbones": {
                domain: {
                    name: {"label": b["label"], "paper_backbone": b["paper_backbone"]}
                    for name, b in own["backbones"].items()
                }
                for domain, own in DOMAINS.items()
            },
        },
        sort_keys=True,
    )


def analysed(methods, *benchmarks):
    """Rows of the analyses' backbone, all seeds."""
    return expand(
        [benchmark_rows(name) for name in benchmarks],
        backbone=ANALYSES.get("backbone", []),
        method=methods,
        seed=config["seeds"],
    )


def analysed_runs(methods, file="metrics.jsonl"):
    """One file of every run on the analyses' backbone."""
    return expand(
        f"{run_folder('{method}', 'tool_use')}/{file}",
        backbone=ANALYSES.get("backbone", []),
        method=methods,
        seed=config["seeds"],
    )


def trained(methods):
    return [name for name in methods if name != "vanilla"]


def lopd_runs():
    """LOPD and what is like it."""
    like = [v.name for v in VARIANTS.variants if v.like == "lopd"]
    return ["lopd", *like] if "lopd" in REGISTRY.methods() else []


def analysis_settings(wildcards):
    """What the commands of the analyses read."""
    backbone = config["backbones"][ANALYSES["backbone"]]
    methods, controls = REGISTRY.methods(), REGISTRY.controls()
    every = [*methods, *controls, *VARIANTS.names()]
    return json.dumps(
        {
            "scale": config["scale"],
            "notice": NOTICE,
            "preset": config["preset"],
            "domain": "tool_use",
            "backbone": ANALYSES["backbone"],
            "backbone_label": backbone["label"],
            "paper_backbone": backbone["paper_backbone"],
            "seeds": config["seeds"],
            "labels": {name: REGISTRY[name].label for name in every},
            "methods": methods,
            "controls": controls,
            "figure3": {
                "margin": VARIANTS.of("margin"),
                "frozen": "lopd_frozen" if "lopd_frozen" in every else None,
            },
            "figure4": {"methods": ANALYSES.get("curves", [])},
            "figure5": {
                "latents": VARIANTS.of("latents"),
                "retrieved": VARIANTS.of("retrieved"),
            },
        },
        sort_keys=True,
    )


def fetched_tasks(domain):
    """Folders of a domain's tasks; empty unless they come from the hub."""
    own = DOMAINS[domain]
    return local([fetched.place(own, source) for source in fetched.task_sources(own)])


def fetched_embedder(wildcards):
    """Folder of the retriever's model; empty unless it is fetched."""
    own = DOMAINS[domain_of(wildcards)]
    sources = fetched.embedder_sources(own)
    return beforehand([fetched.place(own, source) for source in sources])


def fetched_files(domain, *files):
    """Fetched folders that some files of a domain's configuration stand in."""
    return fetched.folders_of(DOMAINS.get(domain, {}), files)
