EVALPLUS_INSTALLED = local(".environments/evalplus/installed")
EVALPLUS = DOMAINS.get("coding", {}).get("benchmarks", {}).get("evalplus", {})
EVALPLUS_FILES = fetched_files(
    "coding", *(EVALPLUS.get(f"{name}_file", "") for name in ("humaneval", "mbpp"))
)


# The official package in an environment of its own. Its pins are another set than the project's.
rule evalplus_environment:
    input:
        local("eval/evalplus/requirements.txt"),
    output:
        EVALPLUS_INSTALLED,
    log:
        ".environments/logs/evalplus.log",
    priority: 20
    localrule: True
    conda:
        f"{workflow.basedir}/workflow/envs/lopd_repro.yaml"
    params:
        folder=subpath(output[0], parent=True),
    shell:
        "(rm -rf {params.folder:q} && python -m venv {params.folder:q}"
        " && {params.folder:q}/bin/python -m pip install --quiet --disable-pip-version-check"
        " --no-deps --requirement {input:q} && touch {output:q}) > {log:q} 2>&1"


rule evalplus_conversations:
    input:
        installed=EVALPLUS_INSTALLED,
    output:
        f"{RESULTS}/conversations/evalplus.jsonl",
    log:
        f"{RESULTS}/logs/conversations/evalplus.log",
    priority: 20
    conda:
        f"{workflow.basedir}/workflow/envs/lopd_repro.yaml"
    params:
        settings=conversation_settings("evalplus", "coding"),
        source=source("lopd_repro.commands.conversations", "eval/evalplus/launch.py"),
    shell:
        "python -m lopd_repro conversations --benchmark evalplus --settings {params.settings:q}"
        " --python $(dirname {input.installed:q})/bin/python --adapter-folder eval/evalplus"
        " --out {output:q} > {log:q} 2>&1"


use rule benchmark as evaluate_evalplus with:
    input:
        **benchmark_inputs(
            "evalplus",
            "coding",
            installed=beforehand([EVALPLUS_INSTALLED]),
            official=beforehand(EVALPLUS_FILES),
        ),
    output:
        benchmark_rows("evalplus", "coding"),
    log:
        benchmark_log("evalplus"),
    benchmark:
        benchmark_times("evalplus")
    params:
        **benchmark_params("evalplus", "coding"),
