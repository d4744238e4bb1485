REGISTRY.add("vanilla", label="Vanilla", file="baselines/vanilla.py", order=0)


use rule train as train_vanilla with:
    input:
        **method_inputs("vanilla"),
    output:
        **method_outputs("vanilla"),
    log:
        method_log("vanilla"),
    benchmark:
        method_benchmark("vanilla")
    params:
        **method_params("vanilla"),
