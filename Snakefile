"""LOPD and its baselines, from data to tables: `snakemake --cores all results/table1.csv`."""

from snakemake.utils import min_version, validate

min_version("9.0")


# A configuration given on the command line stands alone: none of the default's keys show through.
if "scale" not in config:

    configfile: "config/tiny.yaml"


validate(config, "config/schema.yaml")

RESULTS = config["results"]


report: "workflow/report/workflow.rst"


include: "workflow/rules/common.smk"
include: "workflow/rules/fetch.smk"
include: "workflow/rules/data.smk"
include: "workflow/rules/demonstrations.smk"
include: "workflow/rules/train.smk"


for method_rules in sorted(Path(workflow.basedir, "baselines").glob("*.smk")):

    include: str(method_rules)


include: "workflow/rules/variants.smk"
include: "workflow/rules/released.smk"
include: "workflow/rules/evaluate.smk"


for benchmark_rules in sorted(Path(workflow.basedir, "eval").glob("*/*.smk")):

    include: str(benchmark_rules)


include: "workflow/rules/report.smk"
include: "workflow/rules/analyses.smk"
include: "workflow/rules/audit.smk"
include: "workflow/rules/page.smk"


rule all:
    default_target: True
    input:
        PARTS,
        rules.page.output,
