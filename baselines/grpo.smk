REGISTRY.add("grpo", label="GRPO", file="baselines/grpo.py", order=10)


use rule train as train_grpo with:
    input:
        **method_inputs("grpo"),
    output:
        **method_outputs("grpo"),
    log:
        method_log("grpo"),
    benchmark:
        method_benchmark("grpo")
    params:
        **method_params("grpo"),
