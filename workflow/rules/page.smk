"""The page of everything that a configuration makes, and what it consists of."""

TABLES = ["table1", *(["table2"] if "coding" in DOMAINS else [])]
COMPARISONS = [
    f"comparisons{name.removeprefix('table').removeprefix('1')}" for name in TABLES
]

if ANALYSES:
    TABLES.append("table3")
    FIGURES += ["controls", "diagnostics"]
    PARTS = [
        *expand(
            f"{RESULTS}/{{figure}}.{{kind}}", figure=FIGURES, kind=["csv", "pdf", "png"]
        ),
        f"{RESULTS}/controls_verdict.md",
        f"{RESULTS}/selection.csv",
        f"{RESULTS}/budget.csv",
        f"{RESULTS}/diagnostics_summary.csv",
    ]
else:
    PARTS = []

PARTS += [
    *expand(f"{RESULTS}/{{table}}.csv", table=TABLES),
    *expand(f"{RESULTS}/{{name}}.csv", name=COMPARED),
    rules.audit.output.html,
    rules.audit_reproduced.output.html,
]


rule page:
    input:
        PARTS,
        PAPER,
    output:
        report(f"{RESULTS}/index.html", category="Everything"),
    log:
        f"{RESULTS}/logs/page.log",
    benchmark:
        f"{RESULTS}/benchmarks/page.tsv"
    conda:
        "../envs/lopd_repro.yaml"
    params:
        settings=page_settings,
        source=source("lopd_repro.commands.page"),
        results=RESULTS,
        reported="paper_tables",
    shell:
        "python -m lopd_repro page --settings {params.settings:q} --results {params.results:q}"
        " --reported {params.reported:q} --out {output:q} > {log:q} 2>&1"
