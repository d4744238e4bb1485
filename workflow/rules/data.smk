"""Tasks and splits, backbones, base rollouts, experience bank, cold start.

What every run waits for has priority over runs that need less.
"""

TASKS = f"{RESULTS}/tasks/tool_use"


rule tasks:
    input:
        fetched_tasks("tool_use"),
    output:
        environments=f"{TASKS}/environments.jsonl",
        scenarios=f"{TASKS}/scenarios.jsonl",
        splits=f"{TASKS}/splits.json",
        noop=f"{TASKS}/noop.json",
    log:
        f"{RESULTS}/logs/tasks.log",
    benchmark:
        f"{RESULTS}/benchmarks/tasks.tsv"
    conda:
        "../envs/lopd_repro.yaml"
    params:
        settings=settings("tasks", domain="tool_use"),
        source=source("lopd_repro.commands.tasks"),
    shell:
        "python -m lopd_repro tasks --settings {params.settings:q} --out $(dirname {output.splits:q})"
        " > {log:q} 2>&1"


if "coding" in DOMAINS:

    use rule tasks as coding_tasks with:
        input:
            fetched_tasks("coding"),
        output:
            tasks=f"{RESULTS}/tasks/coding/tasks.jsonl",
            splits=f"{RESULTS}/tasks/coding/splits.json",
            noop=f"{RESULTS}/tasks/coding/noop.json",
        log:
            f"{RESULTS}/logs/coding_tasks.log",
        benchmark:
            f"{RESULTS}/benchmarks/coding_tasks.tsv"
        params:
            settings=settings("tasks", domain="coding"),
            source=source("lopd_repro.commands.tasks"),


rule base_model:
    input:
        splits=splits,
        conversations=lambda wildcards: list(conversations(wildcards).values()),
    output:
        model=directory(f"{RESULTS}/backbones/{{backbone}}/model"),
        report=f"{RESULTS}/backbones/{{backbone}}/report.json",
    log:
        f"{RESULTS}/logs/base_model/{{backbone}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/base_model/{{backbone}}.tsv"
    wildcard_constraints:
        backbone=backbones("tiny"),
    priority: 10
    conda:
        "../envs/lopd_repro.yaml"
    params:
        settings=settings("base_model"),
        source=source("lopd_repro.commands.base_model"),
        conversations=lambda wildcards: [
            f"--conversations={name}={file}"
            for name, file in conversations(wildcards).items()
        ],
    shell:
        "python -m lopd_repro base-model --settings {params.settings:q} --splits {input.splits:q}"
        " {params.conversations:q} --out {output.model:q} --report {output.report:q} > {log:q} 2>&1"


rule import_smollm2:
    output:
        model=directory(f"{RESULTS}/backbones/{{backbone}}/model"),
        report=f"{RESULTS}/backbones/{{backbone}}/report.json",
    log:
        f"{RESULTS}/logs/import_smollm2/{{backbone}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/import_smollm2/{{backbone}}.tsv"
    wildcard_constraints:
        backbone=backbones("smollm2-package"),
    conda:
        "../envs/lopd_repro.yaml"
    params:
        source=source("lopd_repro.commands.import_smol"),
    shell:
        "python -m lopd_repro import-smol --out {output.model:q} --report {output.report:q}"
        " > {log:q} 2>&1"


rule base_rollouts:
    input:
        splits=splits,
        model=rules.base_model.output.model,
        vllm=vllm_that_samples,
    output:
        rollouts=f"{RESULTS}/backbones/{{backbone}}/rollouts.jsonl",
    log:
        f"{RESULTS}/logs/base_rollouts/{{backbone}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/base_rollouts/{{backbone}}.tsv"
    priority: 10
    conda:
        "../envs/lopd_repro.yaml"
    resources:
        ranks=1,
    params:
        settings=settings("base_rollouts"),
        source=source("lopd_repro.commands.base_rollouts"),
    shell:
        "python -m lopd_repro base-rollouts --settings {params.settings:q} --splits {input.splits:q}"
        " --backbone {input.model:q} --out {output.rollouts:q} --ranks {resources.ranks}"
        " > {log:q} 2>&1"


rule bank:
    input:
        splits=splits,
        rollouts=rules.base_rollouts.output.rollouts,
    output:
        bank=f"{RESULTS}/backbones/{{backbone}}/bank.jsonl",
    log:
        f"{RESULTS}/logs/bank/{{backbone}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/bank/{{backbone}}.tsv"
    priority: 10
    conda:
        "../envs/lopd_repro.yaml"
    params:
        settings=settings("bank"),
        source=source("lopd_repro.commands.bank"),
    shell:
        "python -m lopd_repro bank --settings {params.settings:q} --splits {input.splits:q}"
        " --rollouts {input.rollouts:q} --out {output.bank:q} > {log:q} 2>&1"


rule retrieve:
    input:
        splits=splits,
        model=rules.base_model.output.model,
        bank=rules.bank.output.bank,
        embedder=fetched_embedder,
    output:
        retrieved=f"{RESULTS}/backbones/{{backbone}}/retrieved.json",
    log:
        f"{RESULTS}/logs/retrieve/{{backbone}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/retrieve/{{backbone}}.tsv"
    priority: 10
    conda:
        "../envs/lopd_repro.yaml"
    params:
        settings=settings("retrieve"),
        source=source("lopd_repro.commands.retrieve"),
    shell:
        "python -m lopd_repro retrieve --settings {params.settings:q} --splits {input.splits:q}"
        " --backbone {input.model:q} --bank {input.bank:q} --out {output.retrieved:q}"
        " > {log:q} 2>&1"


rule cold_start:
    input:
        splits=splits,
        model=rules.base_model.output.model,
        bank=rules.bank.output.bank,
        retrieved=rules.retrieve.output.retrieved,
        vllm=vllm_that_samples,
    output:
        composer=f"{RESULTS}/backbones/{{backbone}}/composer.safetensors",
        shape=f"{RESULTS}/backbones/{{backbone}}/composer.json",
        report=f"{RESULTS}/backbones/{{backbone}}/cold_start.json",
    log:
        f"{RESULTS}/logs/cold_start/{{backbone}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/cold_start/{{backbone}}.tsv"
    priority: 10
    conda:
        "../envs/lopd_repro.yaml"
    resources:
        ranks=1,
    params:
        settings=settings("cold_start"),
        source=source("lopd_repro.commands.cold_start"),
    shell:
        "python -m lopd_repro cold-start --settings {params.settings:q} --splits {input.splits:q}"
        " --backbone {input.model:q} --bank {input.bank:q} --retrieved {input.retrieved:q}"
        " --out {output.composer:q} --report {output.report:q} --ranks {resources.ranks}"
        " > {log:q} 2>&1"
