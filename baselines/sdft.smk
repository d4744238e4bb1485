REGISTRY.add(
    "sdft",
    label="SDFT",
    file="baselines/sdft.py",
    inputs=["demonstrations"],
    order=20,
)


use rule train as train_sdft with:
    input:
        **method_inputs("sdft"),
    output:
        **method_outputs("sdft"),
    log:
        method_log("sdft"),
    benchmark:
        method_benchmark("sdft")
    params:
        **method_params("sdft"),
