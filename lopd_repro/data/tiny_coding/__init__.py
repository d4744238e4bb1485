"""Bundled tiny programming tasks: generator, reference and noisy programs, vocabulary."""

from lopd_repro.data.tiny_coding.families import FAMILIES, TOPICS, Convention, Family, Topic
from lopd_repro.data.tiny_coding.plain import PLAIN_FAMILIES, plain_solution, plain_tasks
from lopd_repro.data.tiny_coding.programs import (
    GOLD,
    CodeNoise,
    Request,
    conventions,
    noisy_solution,
    program_lines,
    random_convention,
    read_statement,
    run_here,
    solution,
)
from lopd_repro.data.tiny_coding.tasks import (
    sample_statement,
    sample_task,
    tiny_tasks,
)
from lopd_repro.data.tiny_coding.vocabulary import vocabulary

__all__ = [
    "FAMILIES",
    "GOLD",
    "PLAIN_FAMILIES",
    "TOPICS",
    "CodeNoise",
    "Convention",
    "Family",
    "Request",
    "Topic",
    "conventions",
    "noisy_solution",
    "plain_solution",
    "plain_tasks",
    "program_lines",
    "random_convention",
    "read_statement",
    "run_here",
    "sample_statement",
    "sample_task",
    "solution",
    "tiny_tasks",
    "vocabulary",
]
