# A control: the experiences that LOPD retrieves, as text in the teacher's prompt.
REGISTRY.add(
    "lopd_text",
    label="Text instead of latents",
    file="baselines/lopd_text.py",
    inputs=["bank", "retrieved"],
    order=200,
    control=True,
)


use rule train as train_lopd_text with:
    input:
        **method_inputs("lopd_text"),
    output:
        **method_outputs("lopd_text"),
    log:
        method_log("lopd_text"),
    benchmark:
        method_benchmark("lopd_text")
    params:
        **method_params("lopd_text"),
