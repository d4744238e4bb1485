# The decisive control: LOPD as it is, but every task gets another task's retrieved experiences.
REGISTRY.add(
    "lopd_shuffled",
    label="LOPD, shuffled experiences",
    file="lopd_repro/lopd/method.py",
    inputs=REGISTRY["lopd"].inputs,
    control=True,
)


use rule train as train_lopd_shuffled with:
    input:
        **method_inputs("lopd_shuffled"),
    output:
        **method_outputs("lopd_shuffled"),
    log:
        method_log("lopd_shuffled"),
    benchmark:
        method_benchmark("lopd_shuffled")
    params:
        **method_params("lopd_shuffled"),
