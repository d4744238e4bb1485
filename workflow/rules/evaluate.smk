"""Evaluation of selected checkpoints on the held-out test split."""


rule evaluate_envscaler:
    input:
        splits=rules.tasks.output.splits,
        noop=rules.tasks.output.noop,
        checkpoint=f"{RESULTS}/runs/tool_use/{{backbone}}/{{method}}/seed{{seed}}/checkpoint",
    output:
        f"{RESULTS}/eval/envscaler/tool_use/{{backbone}}/{{method}}/seed{{seed}}.jsonl",
    log:
        f"{RESULTS}/logs/evaluate/envscaler/{{backbone}}/{{method}}/seed{{seed}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/evaluate/envscaler/{{backbone}}/{{method}}/seed{{seed}}.tsv"
    conda:
        "../envs/lopd_repro.yaml"
    params:
        settings=settings("evaluate"),
        source=source("lopd_repro.commands.evaluate"),
    shell:
        "python -m lopd_repro evaluate --settings {params.settings:q} --splits {input.splits:q}"
        " --noop {input.noop:q} --checkpoint {input.checkpoint:q} --seed {wildcards.seed}"
        " --out {output:q} > {log:q} 2>&1"
