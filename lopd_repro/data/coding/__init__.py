"""Programming tasks: their fields, files and splits."""

from lopd_repro.data.coding.files import code_record, load_code_tasks, write_code_tasks
from lopd_repro.data.coding.schema import CodeCase, CodeTask, CodeTaskSet, tests_of

__all__ = [
    "CodeCase",
    "CodeTask",
    "CodeTaskSet",
    "code_record",
    "load_code_tasks",
    "tests_of",
    "write_code_tasks",
]
