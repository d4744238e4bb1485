"""The page of everything that a configuration makes, and what it consists of."""

CODE_SUITE = (
    DOMAINS.get("coding", {}).get("benchmarks", {}).get("evalplus", {}).get("suite")
)
CODE_TABLE = "humaneval" if CODE_SUITE == "humaneval_base" else "table2"
COMPARISONS = {
    "table1": "comparisons",
    "table2": "comparisons2",
    "humaneval": "comparisons_humaneval",
}
TABLES = ["table1", *([CODE_TABLE] if "coding" in DOMAINS else [])]

PARTS = [
    *expand(f"{RESULTS}/{{table}}.csv", table=TABLES),
    *[f"{RESULTS}/{COMPARISONS[table]}.csv" for table in TABLES],
    rules.audit.output.html,
    rules.audit_reproduced.output.html,
]

if ANALYSES:
    PICTURES = [*FIGURES, "controls", "diagnostics", "divergence"]
    PARTS += [
        f"{RESULTS}/table3.csv",
        *expand(
            f"{RESULTS}/{{picture}}.{{kind}}", picture=PICTURES, kind=["pdf", "png"]
        ),
        *expand(f"{RESULTS}/{{figure}}.csv", figure=FIGURES),
        f"{RESULTS}/controls_verdict.md",
        f"{RESULTS}/selection.csv",
        f"{RESULTS}/budget.csv",
        f"{RESULTS}/diagnostics_summary.csv",
    ]


rule page:
    input:
        PARTS,
        PAPER,
    output:
        report(
            f"{RESULTS}/index.html",
            category="Everything",
            caption="../report/page.rst",
        ),
    log:
        f"{RESULTS}/logs/page.log",
    benchmark:
        f"{RESULTS}/benchmarks/page.tsv"
    conda:
        "../envs/lopd_repro.yaml"
    params:
        settings=page_settings,
        source=source("lopd_repro.commands.page"),
        results=lambda wildcards, output: Path(output[0]).parent,
        reported=lambda wildcards: Path(PAPER[0]).parent,
    shell:
        "python -m lopd_repro page --settings {params.settings:q} --results {params.results:q}"
        " --reported {params.reported:q} --out {output:q} > {log:q} 2>&1"
