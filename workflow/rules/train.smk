"""The one training rule. Every method is a copy of it, made in baselines/NAME.smk.

REGISTRY.add("NAME", label="Label", file="baselines/NAME.py", inputs=[...])

use rule train as train_NAME with:
    input:
        **method_inputs("NAME"),
    output:
        **method_outputs("NAME"),
    params:
        **method_params("NAME"),
    log:
        method_log("NAME"),
    benchmark:
        method_benchmark("NAME")
"""

# Files a method may ask for by name; each becomes `--input NAME=FILE`. As plain patterns: with a
# storage plugin, a rule's `output` can neither be formatted nor expanded.
METHOD_FILES = {
    "bank": f"{BACKBONE_FILES}/bank.jsonl",
    "retrieved": f"{BACKBONE_FILES}/retrieved.json",
    "composer": f"{BACKBONE_FILES}/composer.safetensors",
    "demonstrations": f"{BACKBONE_FILES}/demonstrations.jsonl",
    "skills": f"{BACKBONE_FILES}/skills.jsonl",
}


rule train:
    output:
        checkpoint=directory(f"{RESULTS}/template/{{backbone}}/seed{{seed}}/checkpoint"),
        metrics=f"{RESULTS}/template/{{backbone}}/seed{{seed}}/metrics.jsonl",
    log:
        f"{RESULTS}/logs/template/{{backbone}}/seed{{seed}}.log",
    conda:
        # Whole, since the copies in baselines/ would read a relative path from their own folder.
        f"{workflow.basedir}/workflow/envs/lopd_repro.yaml"
    resources:
        # Processes of a training, a GPU each; a profile says how many the machine has.
        ranks=1,
    shell:
        "python -m lopd_repro train --settings {params.settings:q} --method-file {params.file:q}"
        " --seed {wildcards.seed} --splits {input.splits:q} --backbone {input.model:q}"
        " --out $(dirname {output.metrics:q}) --state {params.state:q}"
        " --source-digest {params.source} {params.inputs} --ranks {resources.ranks} > {log:q} 2>&1"


REGISTRY.add(
    "lopd",
    label="LOPD",
    file="lopd_repro/lopd/method.py",
    inputs=["bank", "retrieved", "composer"],
    outputs=["composer.safetensors", "composer.json"],
    order=100,
)


use rule train as train_lopd with:
    input:
        **method_inputs("lopd"),
    output:
        **method_outputs("lopd"),
    log:
        method_log("lopd"),
    benchmark:
        method_benchmark("lopd")
    params:
        **method_params("lopd"),
