"""The audit of the paper's printed numbers, alone and beside reproduced results."""

PAPER = local(
    sorted(
        str(path)
        for path in Path("paper_tables").iterdir()
        if path.suffix in (".csv", ".yaml")
    )
)


rule audit:
    input:
        PAPER,
    output:
        findings=report(
            f"{RESULTS}/audit/findings.csv",
            category="Audit",
            caption="../report/audit.rst",
        ),
        claims=report(
            f"{RESULTS}/audit/claims.csv",
            category="Audit",
            caption="../report/audit.rst",
        ),
        html=report(
            f"{RESULTS}/audit/report.html",
            category="Audit",
            caption="../report/audit.rst",
        ),
        markdown=f"{RESULTS}/audit/report.md",
    log:
        f"{RESULTS}/logs/audit.log",
    benchmark:
        f"{RESULTS}/benchmarks/audit.tsv"
    conda:
        "../envs/lopd_repro.yaml"
    params:
        source=source("lopd_repro.audit.command"),
        folder=lambda wildcards, output: Path(output.html).parent,
        reproduced=[],
    shell:
        "python -m lopd_repro audit --paper paper_tables --out {params.folder:q}"
        " {params.reproduced:q} > {log:q} 2>&1"


# The claims ledger with a second verdict, from this workflow's own tables.
use rule audit as audit_reproduced with:
    input:
        PAPER,
        table1=rules.table1.output.csv,
    output:
        findings=f"{RESULTS}/audit_reproduced/findings.csv",
        claims=report(
            f"{RESULTS}/audit_reproduced/claims.csv",
            category="Audit",
            caption="../report/audit.rst",
        ),
        html=report(
            f"{RESULTS}/audit_reproduced/report.html",
            category="Audit",
            caption="../report/audit.rst",
        ),
        markdown=f"{RESULTS}/audit_reproduced/report.md",
    log:
        f"{RESULTS}/logs/audit_reproduced.log",
    benchmark:
        f"{RESULTS}/benchmarks/audit_reproduced.tsv"
    params:
        source=source("lopd_repro.audit.command"),
        folder=lambda wildcards, output: Path(output.html).parent,
        reproduced=lambda wildcards, input: [
            "--results",
            str(Path(input.table1).parent),
            *(
                f"--backbone={name}={backbone['paper_backbone']}"
                for name, backbone in config["backbones"].items()
            ),
        ],
