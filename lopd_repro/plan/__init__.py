"""What a configuration will cost: jobs from the workflow's own graph, work from its settings, time
and disk from a stated model (`assumptions.yaml`) or from a finished run."""
