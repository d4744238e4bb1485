LIVECODEBENCH = DOMAINS.get("coding", {}).get("benchmarks", {}).get("livecodebench", {})
LIVECODEBENCH_FILES = []
if LIVECODEBENCH and LIVECODEBENCH.get("suite", "official") == "official":
    if not LIVECODEBENCH.get("repository"):
        LIVECODEBENCH_FILES.append("eval/livecodebench/official")
    if not LIVECODEBENCH.get("data_folder"):
        LIVECODEBENCH_FILES.append("eval/livecodebench/official-data")
    if not LIVECODEBENCH.get("python"):
        LIVECODEBENCH_FILES.append(".environments/livecodebench/installed")


# The official repository at its pinned commit and the official problems, for `suite: official`.
rule livecodebench_repository:
    output:
        local(directory("eval/livecodebench/official")),
    log:
        ".environments/logs/livecodebench-repository.log",
    localrule: True
    conda:
        f"{workflow.basedir}/workflow/envs/lopd_repro.yaml"
    params:
        what="repository",
        options=[],
        source=source(
            "lopd_repro.benchmarks.lcb.official", "eval/livecodebench/fetch.py"
        ),
    shell:
        "PYTHONPATH=. python eval/livecodebench/fetch.py {params.what} {output:q}"
        " {params.options:q} > {log:q} 2>&1"


use rule livecodebench_repository as livecodebench_data with:
    input:
        local(f"{DATA}/livecodebench-data"),
    output:
        local(directory("eval/livecodebench/official-data")),
    log:
        ".environments/logs/livecodebench-data.log",
    params:
        what=["data"],
        options=lambda wildcards, input: ["--source", input[0]],
        source=source(
            "lopd_repro.benchmarks.lcb.official_data", "eval/livecodebench/fetch.py"
        ),


rule livecodebench_environment:
    input:
        local("eval/livecodebench/requirements.txt"),
    output:
        local(".environments/livecodebench/installed"),
    log:
        ".environments/logs/livecodebench.log",
    localrule: True
    conda:
        f"{workflow.basedir}/workflow/envs/lopd_repro.yaml"
    params:
        folder=subpath(output[0], parent=True),
    shell:
        "(rm -rf {params.folder:q} && python -m venv {params.folder:q}"
        " && {params.folder:q}/bin/python -m pip install --quiet --disable-pip-version-check"
        " --requirement {input:q} && touch {output:q}) > {log:q} 2>&1"


use rule benchmark as evaluate_livecodebench with:
    input:
        **benchmark_inputs(
            "livecodebench", "coding", official=beforehand(LIVECODEBENCH_FILES)
        ),
    output:
        benchmark_rows("livecodebench", "coding"),
    log:
        benchmark_log("livecodebench"),
    benchmark:
        benchmark_times("livecodebench")
    params:
        **benchmark_params("livecodebench", "coding"),
