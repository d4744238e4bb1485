"""Evaluation of selected checkpoints: the held-out test split, and the template for benchmarks.

Every folder in eval/ with a rule file makes one benchmark of it:

use rule benchmark as evaluate_NAME with:
    input:
        **benchmark_inputs("NAME"),
    output:
        benchmark_rows("NAME"),
    params:
        **benchmark_params("NAME"),
    log:
        benchmark_log("NAME"),
    benchmark:
        benchmark_times("NAME")
"""


rule evaluate_envscaler:
    input:
        splits=rules.tasks.output.splits,
        noop=rules.tasks.output.noop,
        checkpoint=f"{RESULTS}/runs/tool_use/{{backbone}}/{{method}}/seed{{seed}}/checkpoint",
        vllm=vllm_that_samples,
    output:
        f"{RESULTS}/eval/envscaler/tool_use/{{backbone}}/{{method}}/seed{{seed}}.jsonl",
    log:
        f"{RESULTS}/logs/evaluate/envscaler/{{backbone}}/{{method}}/seed{{seed}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/evaluate/envscaler/{{backbone}}/{{method}}/seed{{seed}}.tsv"
    conda:
        "../envs/lopd_repro.yaml"
    params:
        settings=settings("evaluate", domain="tool_use"),
        source=source("lopd_repro.commands.evaluate"),
        model=lambda wildcards, input: ["--checkpoint", input.checkpoint],
    shell:
        "python -m lopd_repro evaluate --settings {params.settings:q} --splits {input.splits:q}"
        " --noop {input.noop:q} {params.model:q} --seed {wildcards.seed}"
        " --out {output:q} > {log:q} 2>&1"


rule benchmark:
    output:
        f"{RESULTS}/template/benchmark/{{backbone}}/{{method}}/seed{{seed}}.jsonl",
    log:
        f"{RESULTS}/logs/template/benchmark/{{backbone}}/{{method}}/seed{{seed}}.log",
    conda:
        f"{workflow.basedir}/workflow/envs/lopd_repro.yaml"
    shell:
        "python -m lopd_repro benchmark --file {params.file:q} --settings {params.settings:q}"
        " --checkpoint {input.checkpoint:q} --seed {wildcards.seed} --state {params.state:q}"
        " --out {output:q} > {log:q} 2>&1"
