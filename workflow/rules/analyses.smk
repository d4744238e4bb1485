"""Figures 3-5, Table 3, controls, selection, budget and diagnostics, on one backbone."""

FIGURES = [
    figure
    for figure, wanted in {
        "figure3": VARIANTS.of("margin"),
        "figure4": ANALYSES.get("curves"),
        "figure5": VARIANTS.of("latents") or VARIANTS.of("retrieved"),
    }.items()
    if wanted
]
RETRIEVED_BENCHMARKS = ["envscaler", *benchmarks_of("tool_use", "acebench")]
TEST_CURVES = "envscaler_candidates"


# The curve on test tasks: drawn beside the validation curve, never used for a choice.
use rule evaluate_envscaler as evaluate_candidates with:
    input:
        splits=rules.tasks.output.splits,
        noop=rules.tasks.output.noop,
        candidates=f"{run_folder('{method}', 'tool_use')}/candidates",
        vllm=vllm_that_samples,
    output:
        benchmark_rows(TEST_CURVES),
    log:
        benchmark_log(TEST_CURVES),
    benchmark:
        benchmark_times(TEST_CURVES)
    params:
        settings=settings("evaluate", domain="tool_use"),
        source=source("lopd_repro.commands.evaluate"),
        model=lambda wildcards, input: ["--candidates", input.candidates],


# Table 3's middle column: the base model with latents at inference. Illustrative only.
use rule evaluate_envscaler as evaluate_base_plus_composer with:
    input:
        splits=rules.tasks.output.splits,
        noop=rules.tasks.output.noop,
        model=rules.base_model.output.model,
        bank=rules.bank.output.bank,
        embedder=fetched_embedder,
        composer=f"{run_folder('lopd', 'tool_use')}/composer.safetensors",
        shape=f"{run_folder('lopd', 'tool_use')}/composer.json",
        vllm=vllm_that_samples,
    output:
        f"{RESULTS}/eval/envscaler/tool_use/{{backbone}}/base_plus_composer/seed{{seed}}.jsonl",
    log:
        f"{RESULTS}/logs/evaluate/envscaler/{{backbone}}/base_plus_composer/seed{{seed}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/evaluate/envscaler/{{backbone}}/base_plus_composer/seed{{seed}}.tsv"
    params:
        settings=settings("evaluate_with_latents", domain="tool_use"),
        source=source(
            "lopd_repro.commands.evaluate",
            "lopd_repro/commands/composer_contexts.py",
        ),
        model=lambda wildcards, input: [
            "--checkpoint",
            input.model,
            "--composer",
            input.composer,
            "--bank",
            input.bank,
        ],


ruleorder: evaluate_base_plus_composer > evaluate_envscaler


rule table3:
    input:
        evaluations=analysed(["vanilla", "base_plus_composer", "lopd"], "envscaler"),
        reported=local("paper_tables/table3.csv"),
    output:
        csv=report(
            f"{RESULTS}/table3.csv", category="Tables", caption="../report/table3.rst"
        ),
        markdown=f"{RESULTS}/table3.md",
        html=report(
            f"{RESULTS}/table3.html", category="Tables", caption="../report/table3.rst"
        ),
        problems=f"{RESULTS}/table3.log",
    log:
        f"{RESULTS}/logs/table3.log",
    benchmark:
        f"{RESULTS}/benchmarks/table3.tsv"
    conda:
        "../envs/lopd_repro.yaml"
    params:
        settings=analysis_settings,
        source=source("lopd_repro.commands.table3"),
        results=lambda wildcards, output: Path(output[0]).parent,
    shell:
        "python -m lopd_repro table3 --settings {params.settings:q} --results {params.results:q}"
        " --reported {input.reported:q} --csv {output.csv:q} --markdown {output.markdown:q}"
        " --html {output.html:q} --problems {output.problems:q} > {log:q} 2>&1"


FIGURE_INPUTS = {
    "figure3": [
        *analysed(trained([*VARIANTS.of("margin").values()]), "envscaler"),
        *analysed_runs(VARIANTS.of("margin").values(), "selected.json"),
        *analysed(
            ["lopd_frozen"] if "lopd_frozen" in VARIANTS.names() else [], "envscaler"
        ),
    ],
    "figure4": [
        *analysed_runs(ANALYSES.get("curves", [])),
        *analysed(ANALYSES.get("curves", []), TEST_CURVES),
    ],
    "figure5": [
        *analysed(VARIANTS.of("latents").values(), "envscaler"),
        *analysed(VARIANTS.of("retrieved").values(), *RETRIEVED_BENCHMARKS),
        *analysed_runs(
            [*VARIANTS.of("latents").values(), *VARIANTS.of("retrieved").values()],
            "selected.json",
        ),
    ],
}


DRAWN_FROM = {"divergence": "diagnostics"}


# Points and picture apart: a change of style draws again and computes nothing.
rule figure_data:
    input:
        lambda wildcards: FIGURE_INPUTS[wildcards.figure],
        reported=local("paper_tables/{figure}.csv"),
    output:
        csv=report(
            f"{RESULTS}/{{figure}}.csv",
            category="Figures",
            caption="../report/figure.rst",
        ),
        problems=f"{RESULTS}/{{figure}}.log",
    log:
        f"{RESULTS}/logs/{{figure}}_data.log",
    benchmark:
        f"{RESULTS}/benchmarks/{{figure}}_data.tsv"
    wildcard_constraints:
        figure=one_of(FIGURES),
    conda:
        "../envs/lopd_repro.yaml"
    params:
        settings=analysis_settings,
        source=source("lopd_repro.commands.figure_data"),
        results=lambda wildcards, output: Path(output[0]).parent,
    shell:
        "python -m lopd_repro figure-data --figure {wildcards.figure} --settings {params.settings:q}"
        " --results {params.results:q} --reported {input.reported:q} --out {output.csv:q}"
        " --problems {output.problems:q} > {log:q} 2>&1"


rule figure:
    input:
        lambda wildcards: f"{RESULTS}/{DRAWN_FROM.get(wildcards.figure, wildcards.figure)}.csv",
    output:
        pdf=f"{RESULTS}/{{figure}}.pdf",
        png=report(
            f"{RESULTS}/{{figure}}.png",
            category="Figures",
            caption="../report/figure.rst",
        ),
    log:
        f"{RESULTS}/logs/{{figure}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/{{figure}}.tsv"
    wildcard_constraints:
        figure=one_of([*FIGURES, "controls", "diagnostics", "divergence"]),
    conda:
        "../envs/lopd_repro.yaml"
    params:
        notice=NOTICE,
        source=source("lopd_repro.commands.figure"),
    shell:
        "python -m lopd_repro figure --figure {wildcards.figure} --data {input:q}"
        " --notice {params.notice:q} --pdf {output.pdf:q} --png {output.png:q} > {log:q} 2>&1"


rule controls:
    input:
        analysed(["vanilla", "lopd", *REGISTRY.controls()], "envscaler"),
    output:
        csv=report(
            f"{RESULTS}/controls.csv",
            category="Controls",
            caption="../report/controls.rst",
        ),
        verdict=f"{RESULTS}/controls_verdict.md",
        problems=f"{RESULTS}/controls.log",
    log:
        f"{RESULTS}/logs/controls.log",
    benchmark:
        f"{RESULTS}/benchmarks/controls.tsv"
    conda:
        "../envs/lopd_repro.yaml"
    params:
        settings=analysis_settings,
        decisive=ANALYSES.get("decisive", "lopd_shuffled"),
        source=source("lopd_repro.commands.controls"),
        results=lambda wildcards, output: Path(output[0]).parent,
    shell:
        "python -m lopd_repro controls --settings {params.settings:q} --results {params.results:q}"
        " --out {output.csv:q} --verdict {output.verdict:q} --decisive {params.decisive:q}"
        " --problems {output.problems:q} > {log:q} 2>&1"


rule selection:
    input:
        analysed_runs(trained([*REGISTRY.methods(), *lopd_runs()]), "selected.json"),
        analysed([*REGISTRY.methods(), *lopd_runs()], "envscaler"),
        analysed(ANALYSES.get("curves", []), TEST_CURVES),
        rule=local("config/selection_rule.yaml"),
    output:
        csv=report(
            f"{RESULTS}/selection.csv",
            category="Selection",
            caption="../report/selection.rst",
        ),
        chosen=f"{RESULTS}/chosen.json",
        problems=f"{RESULTS}/selection.log",
    log:
        f"{RESULTS}/logs/selection.log",
    benchmark:
        f"{RESULTS}/benchmarks/selection.tsv"
    conda:
        "../envs/lopd_repro.yaml"
    params:
        settings=analysis_settings,
        source=source("lopd_repro.commands.selection"),
        results=lambda wildcards, output: Path(output[0]).parent,
    shell:
        "python -m lopd_repro selection --settings {params.settings:q} --rule {input.rule:q}"
        " --results {params.results:q} --out {output.csv:q} --chosen {output.chosen:q}"
        " --problems {output.problems:q} > {log:q} 2>&1"


rule budget:
    input:
        analysed_runs(trained(REGISTRY.methods())),
        # What rollouts were drawn before training.
        expand(
            [METHOD_FILES["bank"], METHOD_FILES["skills"]],
            backbone=ANALYSES.get("backbone", []),
        ),
        claims=local("paper_tables/claims.yaml"),
    output:
        csv=report(
            f"{RESULTS}/budget.csv", category="Budget", caption="../report/budget.rst"
        ),
        problems=f"{RESULTS}/budget.log",
    log:
        f"{RESULTS}/logs/budget.log",
    benchmark:
        f"{RESULTS}/benchmarks/budget.tsv"
    conda:
        "../envs/lopd_repro.yaml"
    params:
        settings=analysis_settings,
        source=source("lopd_repro.commands.budget"),
        results=lambda wildcards, output: Path(output[0]).parent,
    shell:
        "python -m lopd_repro budget --settings {params.settings:q} --results {params.results:q}"
        " --claims {input.claims:q} --out {output.csv:q} --problems {output.problems:q}"
        " > {log:q} 2>&1"


rule diagnostics:
    input:
        analysed_runs([*lopd_runs(), *REGISTRY.controls()]),
    output:
        csv=report(
            f"{RESULTS}/diagnostics.csv",
            category="Diagnostics",
            caption="../report/diagnostics.rst",
        ),
        summary=report(
            f"{RESULTS}/diagnostics_summary.csv",
            category="Diagnostics",
            caption="../report/diagnostics.rst",
        ),
        problems=f"{RESULTS}/diagnostics.log",
    log:
        f"{RESULTS}/logs/diagnostics.log",
    benchmark:
        f"{RESULTS}/benchmarks/diagnostics.tsv"
    conda:
        "../envs/lopd_repro.yaml"
    params:
        settings=analysis_settings,
        source=source("lopd_repro.commands.diagnostics"),
        results=lambda wildcards, output: Path(output[0]).parent,
    shell:
        "python -m lopd_repro diagnostics --settings {params.settings:q}"
        " --results {params.results:q} --out {output.csv:q} --summary {output.summary:q}"
        " --problems {output.problems:q} > {log:q} 2>&1"
