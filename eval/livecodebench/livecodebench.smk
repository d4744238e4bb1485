use rule benchmark as evaluate_livecodebench with:
    input:
        **benchmark_inputs("livecodebench", "coding"),
    output:
        benchmark_rows("livecodebench", "coding"),
    log:
        benchmark_log("livecodebench"),
    benchmark:
        benchmark_times("livecodebench")
    params:
        **benchmark_params("livecodebench", "coding"),
