"""Audit of the paper's printed numbers; needs no other job."""

from lopd_repro.files import digest_file


# Tables of an earlier run sharpen the claims ledger, but the audit must not wait for them: their
# digests are a parameter, so that the next call of the workflow updates it.
rule audit:
    input:
        sorted(
            str(p)
            for p in Path("paper_tables").iterdir()
            if p.suffix in (".csv", ".yaml")
        ),
    output:
        findings=report(f"{RESULTS}/audit/findings.csv", category="Audit"),
        claims=report(f"{RESULTS}/audit/claims.csv", category="Audit"),
        html=report(f"{RESULTS}/audit/report.html", category="Audit"),
        markdown=f"{RESULTS}/audit/report.md",
    log:
        f"{RESULTS}/logs/audit.log",
    benchmark:
        f"{RESULTS}/benchmarks/audit.tsv"
    params:
        source=source("lopd_repro.audit.command"),
        reproduced={
            p.name: digest_file(p)
            for p in sorted(Path(RESULTS).glob("table[123].csv"))
        },
        folder=lambda wildcards, output: str(Path(output.html).parent),
        backbones=[
            f"--backbone={name}={b['paper_backbone']}"
            for name, b in config["backbones"].items()
            if b.get("paper_backbone")
        ],
    shell:
        "lopd-repro audit --paper paper_tables --out {params.folder:q} --results {RESULTS:q}"
        " {params.backbones:q} > {log:q} 2>&1"
