REGISTRY.add(
    "opsd",
    label="OPSD",
    file="baselines/opsd.py",
    inputs=["demonstrations"],
    order=30,
)


use rule train as train_opsd with:
    input:
        **method_inputs("opsd"),
    output:
        **method_outputs("opsd"),
    log:
        method_log("opsd"),
    benchmark:
        method_benchmark("opsd")
    params:
        **method_params("opsd"),
