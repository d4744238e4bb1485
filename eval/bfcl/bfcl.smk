BFCL_RELEASE = config["benchmarks"].get("bfcl", {}).get("release", "v3")
BFCL_INSTALLED = ".environments/bfcl-{release}/installed"


# The official package in an environment of its own. Its pins are another set than the project's.
rule bfcl_environment:
    input:
        local("eval/bfcl/requirements-{release}.txt"),
    output:
        local(BFCL_INSTALLED),
    log:
        ".environments/logs/bfcl-{release}.log",
    wildcard_constraints:
        release="v3|v4",
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


rule bfcl_conversations:
    input:
        installed=local(BFCL_INSTALLED.format(release="v3")),
    output:
        f"{RESULTS}/conversations/bfcl.jsonl",
    log:
        f"{RESULTS}/logs/conversations/bfcl.log",
    priority: 20
    conda:
        f"{workflow.basedir}/workflow/envs/lopd_repro.yaml"
    params:
        settings=conversation_settings("bfcl"),
        source=source("lopd_repro.commands.conversations", "eval/bfcl/record.py"),
    shell:
        "python -m lopd_repro conversations --benchmark bfcl --settings {params.settings:q}"
        " --python $(dirname {input.installed:q})/bin/python --adapter-folder eval/bfcl --out {output:q} > {log:q} 2>&1"


use rule benchmark as evaluate_bfcl with:
    input:
        **benchmark_inputs(
            "bfcl", installed=beforehand([BFCL_INSTALLED.format(release=BFCL_RELEASE)])
        ),
    output:
        benchmark_rows("bfcl"),
    log:
        benchmark_log("bfcl"),
    benchmark:
        benchmark_times("bfcl")
    params:
        **benchmark_params("bfcl"),
