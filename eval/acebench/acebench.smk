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
        **benchmark_inputs("acebench"),
    output:
        benchmark_rows("acebench"),
    log:
        benchmark_log("acebench"),
    benchmark:
        benchmark_times("acebench")
    params:
        **benchmark_params("acebench"),
