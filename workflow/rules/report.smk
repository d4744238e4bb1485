"""Tables and comparisons."""

TABLE1_BENCHMARKS = ["envscaler", *benchmarks_of("tool_use", "bfcl", "acebench")]


rule table1:
    input:
        evaluations=evaluations(REGISTRY.methods(), TABLE1_BENCHMARKS),
        reported=local("paper_tables/table1.csv"),
    output:
        csv=report(
            f"{RESULTS}/table1.csv", category="Tables", caption="../report/table1.rst"
        ),
        markdown=f"{RESULTS}/table1.md",
        html=report(
            f"{RESULTS}/table1.html", category="Tables", caption="../report/table1.rst"
        ),
        problems=f"{RESULTS}/table1.log",
        comparisons=report(
            f"{RESULTS}/comparisons.csv",
            category="Tables",
            caption="../report/comparisons.rst",
        ),
    log:
        f"{RESULTS}/logs/table1.log",
    benchmark:
        f"{RESULTS}/benchmarks/table1.tsv"
    conda:
        "../envs/lopd_repro.yaml"
    params:
        layout="table1",
        settings=table_settings(REGISTRY.methods()),
        source=source("lopd_repro.commands.table"),
        results=lambda wildcards, output: Path(output[0]).parent,
    shell:
        "python -m lopd_repro table --settings {params.settings:q} --layout {params.layout} --results {params.results:q}"
        " --reported {input.reported:q} --csv {output.csv:q} --markdown {output.markdown:q}"
        " --html {output.html:q} --problems {output.problems:q}"
        " --comparisons {output.comparisons:q} > {log:q} 2>&1"


if "coding" in DOMAINS:

    use rule table1 as table2 with:
        input:
            evaluations=evaluations(
                REGISTRY.methods(),
                benchmarks_of("coding", "livecodebench", "evalplus"),
                "coding",
            ),
            reported=local("paper_tables/table2.csv"),
        output:
            csv=report(
                f"{RESULTS}/table2.csv",
                category="Tables",
                caption="../report/table2.rst",
            ),
            markdown=f"{RESULTS}/table2.md",
            html=report(
                f"{RESULTS}/table2.html",
                category="Tables",
                caption="../report/table2.rst",
            ),
            problems=f"{RESULTS}/table2.log",
            comparisons=report(
                f"{RESULTS}/comparisons2.csv",
                category="Tables",
                caption="../report/comparisons.rst",
            ),
        log:
            f"{RESULTS}/logs/table2.log",
        benchmark:
            f"{RESULTS}/benchmarks/table2.tsv"
        params:
            layout="table2",
            settings=table_settings(REGISTRY.methods(), "coding"),
            source=source("lopd_repro.commands.table"),
            results=lambda wildcards, output: Path(output[0]).parent,

    # HumanEval with its own tests, which is none of Table 2's benchmarks (suite humaneval_base).
    use rule table1 as humaneval with:
        input:
            evaluations=evaluations(
                REGISTRY.methods(), benchmarks_of("coding", "evalplus"), "coding"
            ),
            reported=local("paper_tables/table2.csv"),
        output:
            csv=report(
                f"{RESULTS}/humaneval.csv",
                category="Tables",
                caption="../report/humaneval.rst",
            ),
            markdown=f"{RESULTS}/humaneval.md",
            html=report(
                f"{RESULTS}/humaneval.html",
                category="Tables",
                caption="../report/humaneval.rst",
            ),
            problems=f"{RESULTS}/humaneval.log",
            comparisons=report(
                f"{RESULTS}/comparisons_humaneval.csv",
                category="Tables",
                caption="../report/comparisons.rst",
            ),
        log:
            f"{RESULTS}/logs/humaneval.log",
        benchmark:
            f"{RESULTS}/benchmarks/humaneval.tsv"
        params:
            layout="humaneval",
            settings=table_settings(REGISTRY.methods(), "coding"),
            source=source("lopd_repro.commands.table"),
            results=lambda wildcards, output: Path(output[0]).parent,
