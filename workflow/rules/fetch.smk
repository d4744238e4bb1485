"""What comes from outside: data sets and weights at pinned revisions, checked, in one folder.

Each stands in DATA/NAME (`lopd-repro fetch NAME`). A fetch that was cut short goes on where it
ended: what has arrived stays in the Hugging Face cache.
"""

from lopd_repro.files import digest_json
from lopd_repro.workflow import fetched

SOURCES = fetched.needed(DOMAINS)


# Runs where the workflow was started: compute nodes often have no way out.
rule fetch:
    output:
        local(directory(f"{DATA}/{{source}}")),
    log:
        f"{DATA}/logs/{{source}}.log",
    wildcard_constraints:
        source=one_of([name for name, own in SOURCES.items() if not own.target]),
    localrule: True
    conda:
        "../envs/lopd_repro.yaml"
    params:
        request=lambda wildcards: SOURCES[wildcards.source].request,
        pins=lambda wildcards: digest_json(SOURCES[wildcards.source].as_json())[:16],
        data=lambda wildcards, output: Path(output[0]).parent,
    shell:
        "python -m lopd_repro fetch {params.request:q} --data {params.data:q} > {log:q} 2>&1"


rule hub_model:
    input:
        fetched=lambda wildcards: local(
            fetched.place(
                DOMAINS[domain_of(wildcards)],
                fetched.backbone_source(
                    DOMAINS[domain_of(wildcards)],
                    DOMAINS[domain_of(wildcards)]["backbones"][wildcards.backbone],
                ),
            )
        ),
    output:
        model=directory(f"{RESULTS}/backbones/{{backbone}}/model"),
        report=f"{RESULTS}/backbones/{{backbone}}/report.json",
    log:
        f"{RESULTS}/logs/hub_model/{{backbone}}.log",
    wildcard_constraints:
        backbone=backbones("hub"),
    localrule: True
    conda:
        "../envs/lopd_repro.yaml"
    params:
        source=source("lopd_repro.commands.import_hub"),
    shell:
        "python -m lopd_repro import-hub --fetched {input.fetched:q} --out {output.model:q}"
        " --report {output.report:q} > {log:q} 2>&1"
