"""Bundled tiny tool-use tasks in the EnvScaler form: generator, demonstrator, vocabulary."""

from lopd_repro.data.tiny.demonstrate import (
    DONE,
    GOLD,
    MAX_STEPS,
    Call,
    Demonstrator,
    Episode,
    Noise,
    Turn,
    call_text,
    checks_in_process,
    demonstration,
    lite_trace,
    random_procedure,
    reward_in_process,
    run_in_process,
)
from lopd_repro.data.tiny.domains import DOMAINS, PROCEDURES, Domain, Family, Procedure
from lopd_repro.data.tiny.tasks import (
    DEFAULT_SIZES,
    Request,
    make_tiny_tasks,
    read_instruction,
    sample_task,
    tiny_task_set,
)
from lopd_repro.data.tiny.vocabulary import segment, segmenter, tiny_vocabulary
from lopd_repro.data.tiny.world import environment, environments

__all__ = [
    "DEFAULT_SIZES",
    "DOMAINS",
    "DONE",
    "GOLD",
    "MAX_STEPS",
    "PROCEDURES",
    "Call",
    "Demonstrator",
    "Domain",
    "Episode",
    "Family",
    "Noise",
    "Procedure",
    "Request",
    "Turn",
    "call_text",
    "checks_in_process",
    "demonstration",
    "environment",
    "environments",
    "lite_trace",
    "make_tiny_tasks",
    "random_procedure",
    "read_instruction",
    "reward_in_process",
    "run_in_process",
    "sample_task",
    "segment",
    "segmenter",
    "tiny_task_set",
    "tiny_vocabulary",
]
