REGISTRY.add("sdpo", label="SDPO", file="baselines/sdpo.py", order=40)


use rule train as train_sdpo with:
    input:
        **method_inputs("sdpo"),
    output:
        **method_outputs("sdpo"),
    log:
        method_log("sdpo"),
    benchmark:
        method_benchmark("sdpo")
    params:
        **method_params("sdpo"),
