"""Checkpoints that others trained: brought to where a run's checkpoint is, then asked like one.

Each stands in the folder of the first seed, since that seed's draws ask it; it is no run of it.
"""

from lopd_repro.workflow.released import check_names

check_names(RELEASED.values(), [*REGISTRY.labels(), *REGISTRY.labels().values()])


rule released_checkpoint:
    input:
        folder=lambda wildcards: local(
            fetched.released_folder(
                DOMAINS[wildcards.domain], released_checkpoint(wildcards)
            )
        ),
        model=rules.base_model.output.model,
    output:
        checkpoint=directory(f"{run_folder('{method}')}/checkpoint"),
        report=f"{run_folder('{method}')}/released.json",
    log:
        f"{RESULTS}/logs/released/{{domain}}/{{backbone}}/{{method}}/seed{{seed}}.log",
    wildcard_constraints:
        method=one_of([one.name for one in RELEASED.values()]),
        seed=str(config["seeds"][0]),
    localrule: True
    conda:
        "../envs/lopd_repro.yaml"
    params:
        tokenizer=lambda wildcards: released_checkpoint(wildcards).tokenizer,
        source=source("lopd_repro.commands.import_released"),
    shell:
        "python -m lopd_repro import-released --folder {input.folder:q} --backbone {input.model:q}"
        " --tokenizer {params.tokenizer} --out {output.checkpoint:q} --report {output.report:q}"
        " > {log:q} 2>&1"
