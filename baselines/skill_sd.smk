REGISTRY.add(
    "skill_sd",
    label="Skill-SD",
    file="baselines/skill_sd.py",
    inputs=["skills"],
    order=50,
)


use rule train as train_skill_sd with:
    input:
        **method_inputs("skill_sd"),
    output:
        **method_outputs("skill_sd"),
    log:
        method_log("skill_sd"),
    benchmark:
        method_benchmark("skill_sd")
    params:
        **method_params("skill_sd"),
