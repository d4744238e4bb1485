"""What the text-based baselines show their teachers: demonstrations, and first skills."""


rule demonstrations:
    input:
        splits=splits,
        model=rules.base_model.output.model,
        bank=rules.bank.output.bank,
    output:
        pool=f"{RESULTS}/backbones/{{backbone}}/demonstrations.jsonl",
    log:
        f"{RESULTS}/logs/demonstrations/{{backbone}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/demonstrations/{{backbone}}.tsv"
    conda:
        "../envs/lopd_repro.yaml"
    params:
        settings=settings("demonstrations"),
        source=source("lopd_repro.commands.demonstrations"),
    shell:
        "python -m lopd_repro demonstrations --settings {params.settings:q} --splits {input.splits:q}"
        " --backbone {input.model:q} --bank {input.bank:q} --out {output.pool:q} > {log:q} 2>&1"


rule skills:
    input:
        splits=splits,
        rollouts=rules.base_rollouts.output.rollouts,
    output:
        skills=f"{RESULTS}/backbones/{{backbone}}/skills.jsonl",
    log:
        f"{RESULTS}/logs/skills/{{backbone}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/skills/{{backbone}}.tsv"
    conda:
        "../envs/lopd_repro.yaml"
    params:
        settings=settings("skills"),
        source=source("lopd_repro.commands.skills"),
    shell:
        "python -m lopd_repro skills --settings {params.settings:q} --splits {input.splits:q}"
        " --rollouts {input.rollouts:q} --out {output.skills:q} > {log:q} 2>&1"
