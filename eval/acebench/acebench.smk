ACEBENCH = DOMAINS["tool_use"].get("benchmarks", {}).get("acebench", {})
ACEBENCH_FILES = []
if ACEBENCH.get("suite") == "official":
    if not ACEBENCH.get("official", {}).get("repository"):
        ACEBENCH_FILES.append("eval/acebench/official")
    if not ACEBENCH.get("official", {}).get("python"):
        ACEBENCH_FILES.append(".environments/acebench/installed")


# The official repository at its pinned commit, for `suite: official`.
rule acebench_repository:
    output:
        local(directory("eval/acebench/official")),
    log:
        ".environments/logs/acebench-repository.log",
    localrule: True
    conda:
        f"{workflow.basedir}/workflow/envs/lopd_repro.yaml"
    params:
        source=source("lopd_repro.benchmarks.ace.repository", "eval/acebench/fetch.py"),
    shell:
        "PYTHONPATH=. python eval/acebench/fetch.py {output:q} > {log:q} 2>&1"


rule acebench_environment:
    input:
        local("eval/acebench/requirements.txt"),
    output:
        local(".environments/acebench/installed"),
    log:
        ".environments/logs/acebench.log",
    localrule: True
    conda:
        f"{workflow.basedir}/workflow/envs/lopd_repro.yaml"
    params:
        folder=subpath(output[0], parent=True),
    shell:
        "(rm -rf {params.folder:q} && python -m venv {params.folder:q}"
        " && {params.folder:q}/bin/python -m pip install --quiet --disable-pip-version-check"
        " --requirement {input:q} && touch {output:q}) > {log:q} 2>&1"


rule acebench_conversations:
    output:
        f"{RESULTS}/conversations/acebench.jsonl",
    log:
        f"{RESULTS}/logs/conversations/acebench.log",
    priority: 20
    conda:
        f"{workflow.basedir}/workflow/envs/lopd_repro.yaml"
    params:
        settings=conversation_settings("acebench"),
        source=source("lopd_repro.commands.conversations"),
    shell:
        "python -m lopd_repro conversations --benchmark acebench --settings {params.settings:q}"
        " --out {output:q} > {log:q} 2>&1"


use rule benchmark as evaluate_acebench with:
    input:
        **benchmark_inputs("acebench", official=beforehand(ACEBENCH_FILES)),
    output:
        benchmark_rows("acebench"),
    log:
        benchmark_log("acebench"),
    benchmark:
        benchmark_times("acebench")
    params:
        **benchmark_params("acebench"),
