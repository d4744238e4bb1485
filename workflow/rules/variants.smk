"""Variants: runs of a method with other settings, for figures and controls.

One rule trains them all. A variant that changes the composer, its cold start or the retrieval has
files of its own before its training; the others share theirs with the method they are like.
"""

for variant in VARIANTS.variants:
    shared = REGISTRY[variant.root]
    REGISTRY.add(
        variant.name,
        label=variant.label,
        file=shared.file,
        inputs=shared.inputs,
        outputs=shared.outputs,
        order=200,
        control=True,
    )


use rule retrieve as retrieve_variant with:
    output:
        retrieved=f"{VARIANT_FILES}/retrieved.json",
    log:
        f"{RESULTS}/logs/retrieve/{{backbone}}/{{method}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/retrieve/{{backbone}}/{{method}}.tsv"
    wildcard_constraints:
        method=one_of(changing("retrieval")),
    params:
        settings=variant_settings("retrieve"),
        source=source("lopd_repro.commands.retrieve"),


use rule cold_start as cold_start_variant with:
    input:
        splits=splits,
        model=rules.base_model.output.model,
        bank=rules.bank.output.bank,
        retrieved=lambda wildcards: method_file(wildcards.method, "retrieved").format(
            **wildcards
        ),
        vllm=vllm_that_samples,
    output:
        composer=f"{VARIANT_FILES}/composer.safetensors",
        shape=f"{VARIANT_FILES}/composer.json",
        report=f"{VARIANT_FILES}/cold_start.json",
    log:
        f"{RESULTS}/logs/cold_start/{{backbone}}/{{method}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/cold_start/{{backbone}}/{{method}}.tsv"
    wildcard_constraints:
        method=one_of(changing(*COMPOSER_SECTIONS)),
    params:
        settings=variant_settings("cold_start"),
        source=source("lopd_repro.commands.cold_start"),


use rule train as train_variant with:
    input:
        unpack(variant_inputs),
    output:
        **method_outputs("{method}"),
    log:
        method_log("{method}"),
    benchmark:
        method_benchmark("{method}")
    wildcard_constraints:
        method=one_of(VARIANTS.names()),
    params:
        **variant_params(),
